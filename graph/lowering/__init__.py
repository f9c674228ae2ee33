"""From an ATen graph to a program of kernels, with one rule per operator. An operator without a rule is called."""
from sot.graph.lowering import draws, movement, pointwise, pooling, products, reductions, scans, scatter
from sot.graph.lowering.driver import LOWERINGS, Lowering, NotLowered, lower

__all__ = ["LOWERINGS", "Lowering", "NotLowered", "draws", "lower", "movement", "pointwise", "pooling", "products",
           "reductions", "scans", "scatter"]
