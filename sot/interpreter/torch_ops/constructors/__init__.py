"""Constructors of tensors that are no operations."""
