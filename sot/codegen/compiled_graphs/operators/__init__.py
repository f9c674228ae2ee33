"""Operators that AOTAutograd traces to others than PyTorch runs: ``same_sizes`` has interpolations that keep a size,
``recurrent_layers`` recurrent networks with dropout, ``shuffles`` random permutations.
"""
