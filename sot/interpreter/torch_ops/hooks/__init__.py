"""Hooks on modules, on tensors, and on tensors that autograd saves."""
