"""Operators that a program or a library has registered."""
