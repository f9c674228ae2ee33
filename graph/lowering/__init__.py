"""From an ATen graph to a program of kernels: one rule an operator; an operator without a rule is called as it is."""
from sot.graph.lowering import draws, movement, pointwise, reductions, scans, scatter
from sot.graph.lowering.driver import LOWERINGS, Lowering, NotLowered, lower

__all__ = ["LOWERINGS", "Lowering", "NotLowered", "draws", "lower", "movement", "pointwise", "reductions", "scans",
           "scatter"]
