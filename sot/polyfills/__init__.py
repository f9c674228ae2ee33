"""Builtins and library functions as plain Python, which is executed symbolically like user code."""
