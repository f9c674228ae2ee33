"""Modules of the standard library whose functions call the comparisons, iterators and functions of the program."""
