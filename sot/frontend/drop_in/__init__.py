"""sot.compile: torch.compile's arguments with torch.compile's meaning.

``arguments`` says what they mean here and refuses what is not possible, ``compiled`` is what stands for a function or
a module and obeys torch.compiler.set_stance, ``compile_`` is the function itself, ``replacement`` puts it in the place
of torch.compile if SOT_REPLACE_TORCH_COMPILE asks for it.
"""
