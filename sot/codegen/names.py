"""The names in an emitted function: of objects that it holds, and of values that it loads.

A function compiled from source can hold objects only as globals. ``Names`` allots their names, and a variable to each
origin that is used more than once. ``Walk`` writes the lines that load origins and check the guards that are not in
the guard program.
"""
from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from math import isfinite
from types import CellType, FunctionType, MethodType
from typing import Any, Protocol

from sot import _hook
from sot.guards.draws import is_drawn
from sot.guards.guards import Guard
from sot.guards.origin import Origin
from sot.guards.tensor_guards import TensorGuard
from sot.torch_compat.tensors import TensorChecks

BUILT_IN = {"MISS": _hook.MISS, "PLAIN": _hook.PLAIN, "CellType": CellType, "FunctionType": FunctionType,
            "MethodType": MethodType, "deque": deque, "partial": functools.partial, "Tail": _hook.Tail}
LITERALS = (int, str, bytes, bool, type(None))


class Names:
    """``objects`` are the globals of the function; ``origins`` are the variables that hold existing objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = dict(BUILT_IN)
        self.origins: dict[Origin, str] = {}
        self._constants: dict[int, str] = {}
        self._count = 0

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def ref(self, origin: Origin) -> str:
        """The variable that holds the value of an origin."""
        if origin.cheap:
            return origin.expr(self)
        name = self.origins.get(origin)
        if name is None:
            name = self.origins[origin] = self.fresh("t")
        return name

    def const(self, value: object, hint: str = "k") -> str:
        """The name of an object that the function holds."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = self.fresh(hint)
            self.objects[name] = value
        return name


def as_literal(value: Any) -> str | None:
    """The literal of a constant; None if the function must hold the object."""
    if type(value) is str and sys.intern(value) is not value:
        return None         # the compiler would use the interned object
    if type(value) in LITERALS or (type(value) is float and isfinite(value)):
        return repr(value) if not (type(value) in (int, float) and value < 0) else f"({value!r})"
    return None


class Loads(Protocol):
    """The guard program, which loads values before the emitted function is called."""

    def has(self, origin: Origin) -> bool: ...


class Walk:
    """The lines that load existing objects and check guards on the way.

    ``given`` are the names of the values that the guard program loads and passes as arguments.
    """

    def __init__(self, names: Names, program: Loads) -> None:
        self.names, self.program = names, program
        self.lines: list[str] = []
        self.given: dict[str, Origin] = {}
        self._loaded: set[Origin] = set()

    def ref(self, origin: Origin) -> str:
        """The variable that holds the value of an origin. The first use loads it."""
        if origin.cheap:
            return origin.expr(self)
        name = self.names.ref(origin)
        if origin not in self._loaded:
            if self.program.has(origin):
                self.given[name] = origin
            else:
                expression = origin.expr(self)
                self.lines.append(f"{name} = {expression}")
            self._loaded.add(origin)
        return name

    def const(self, value: object, hint: str = "k") -> str:
        return self.names.const(value, hint)

    def write(self, guards: Iterable[Guard], examples: Mapping[Guard, Any]) -> None:
        """Check guards in the order in which capture met them: the tensors together, then the guards that depend on
        tensors. Then load the other values.
        """
        guards = [*guards]
        tensors = [g for g in guards if isinstance(g, TensorGuard)]
        self._test(g for g in guards if not isinstance(g, TensorGuard) and not g.after_tensors)
        if tensors:
            checks = TensorChecks([examples[g] for g in tensors], [g.layout for g in tensors])
            refs = ", ".join(self.ref(g.origin) for g in tensors)
            self.lines.append(f"if not {self.const(checks.check)}({refs}): return MISS")
        self._test(g for g in guards if g.after_tensors)
        for origin in sorted(self.names.origins, key=is_drawn):
            self.ref(origin)

    def _test(self, guards: Iterable[Guard]) -> None:
        for guard in guards:
            test = guard.test(self)
            self.lines.append(f"if not ({test}): return MISS")
