"""Numbers and sizes that depend on the data of tensors, in the graph: ``x[mask]``, ``nonzero``, ``zeros(n.item())``."""
