"""Symbolic values: one class per kind of object. It answers the program's operations and rebuilds the object."""
