"""Small programs, one feature each, of torch's public API and of Python's language reference.

The files are by part; each program is a function with a decorator that names its group. They are what users of the
feature write, and are not changed because a translator fails on them.
"""
import importlib
import pkgutil

from .program import PROGRAMS, Program

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)

__all__ = ["PROGRAMS", "Program"]
