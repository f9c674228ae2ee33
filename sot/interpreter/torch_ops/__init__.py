"""Tensor operations, which run on fakes and become graph nodes; autograd, modules, torch's global state."""
