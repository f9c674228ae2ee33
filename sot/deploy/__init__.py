"""save and load: a captured model as a file, which runs and trains without the program that made it.

``arguments`` makes examples from an input_spec. ``trace`` captures one method as a ``module`` with the graph and its
weights. ``state`` decides which changes of a call in Python are kept. ``structure`` writes results as plain
containers. ``sizes`` describes the sizes that a file accepts. ``saving`` passes all of this to torch.export and writes
torch's ``.pt2`` archive, with its ``provenance``. ``loading`` reads an archive, after ``safety`` has checked its
parts, ``program_text`` the programs, and ``layouts`` the description of the methods.
"""
