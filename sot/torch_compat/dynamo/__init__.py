"""State of torch.compile's own front end: its stance, its limits, the class of compiled modules, its marks.

Everything here is read from torch._dynamo, which takes about a second to import: ``loaded`` imports it for
``sot.compile``; the rest of the package asks it only if the program has imported it.
"""
