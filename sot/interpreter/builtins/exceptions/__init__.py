"""Exceptions that the program makes, and groups of them."""
