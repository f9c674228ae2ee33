"""Constructors of tensors that capture replaces by operations."""
