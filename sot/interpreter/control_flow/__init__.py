"""Branches and loops on tensors, as part of the graph: ways are followed one by one, and joined."""
