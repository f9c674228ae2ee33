"""Symbolic execution of a frame. Importing the package imports all that fills its tables."""
# isort: skip_file
from sot.interpreter import machine  # noqa: F401
from sot.interpreter.builtins import impure  # noqa: F401   the last: what nothing before it knows
