"""Numbers and sizes that depend on the data of tensors, in the graph: ``x[mask]``, ``nonzero``, ``zeros(n.item())``.
Floats of Python that vary, as arguments of operations (``float_arguments.py``).
"""
