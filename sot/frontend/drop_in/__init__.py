"""sot.compile: takes the arguments of torch.compile, with the same meaning.

``arguments`` translates them and refuses what is not possible. ``compiled`` has the translations of functions and
modules, which obey torch.compiler.set_stance. ``compile_`` is the function itself. ``replacement`` puts it in place of
torch.compile if SOT_REPLACE_TORCH_COMPILE is set.
"""
