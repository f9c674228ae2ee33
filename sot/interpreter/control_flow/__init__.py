"""Branches and loops on tensors as part of the graph: both sides are executed one after the other, and merged."""
