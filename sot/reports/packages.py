"""Packages of libraries in which captures begin. A user cannot change their code, but can exclude them.

A trainer or a generation loop of a library calls the user's model. If captures begin in the library's own code, they
contain its bookkeeping, with breaks and recompiles that the user cannot remove. If the library's package is excluded,
captures begin in the functions that it calls. So the package must not contain models: of
``transformers.generation.utils`` it is ``transformers.generation``, if the program runs a model of
``transformers.models``.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable

from sot.reports.model import Function
from sot.reports.recording import TORCH
from sot.support.places import Place, is_installed

FORWARD = "forward"     # the name of the method with the tensor operations of a model


class Packages:
    """The packages of a run, by the functions in which operations ran."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self.modules = {file: name for name, module in [*sys.modules.items()]
                        if (file := getattr(module, "__file__", None)) and name != "__main__"}
        self.models = {module for f in functions if is_forward(f.name) and (module := self.modules.get(f.line.file))}

    def of(self, name: str, place: Place) -> str:
        """The largest package without a model that has the function ``name`` at ``place``; empty if there is none, if
        the function is a model's (a decorator of a model has its name), or if the code is the user's own.
        """
        module = self.modules.get(place.file, "")
        if not is_installed(place.file) or place.file.startswith(TORCH) or is_forward(name):
            return ""
        parts = module.split(".")
        packages = (".".join(parts[:n]) for n in range(1, len(parts) + 1))
        return next((p for p in packages if not any(f"{m}.".startswith(f"{p}.") for m in self.models)), "")


def is_forward(name: str) -> bool:
    return name.rpartition(".")[2] == FORWARD
