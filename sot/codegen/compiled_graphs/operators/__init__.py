"""Operators that AOTAutograd traces to others than PyTorch runs: ``same_sizes`` has interpolations that keep a size,
``recurrent_layers`` recurrent networks with dropout, ``shuffles`` random permutations, ``draws_in_order`` other random
numbers, ``changes_in_place`` changes of shapes. ``powers`` has one that Inductor does not compile.
"""
