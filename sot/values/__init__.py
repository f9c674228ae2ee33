"""Symbolic values: one class a kind of object, with what the program can ask of it and how it is made again."""
