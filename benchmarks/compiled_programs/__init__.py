"""The 25 programs of benchmarks/compiled.py: ``PROGRAMS`` by name. See ``program.py`` for what a program is."""

from compiled_programs import inference, training
from compiled_programs.program import PROGRAMS

__all__ = ["PROGRAMS", "inference", "training"]
