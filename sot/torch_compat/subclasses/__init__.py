"""Subclasses of Tensor with ``__torch_dispatch__``."""
