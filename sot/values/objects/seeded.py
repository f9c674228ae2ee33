"""Generators of Python and NumPy that the program makes with a known seed: their numbers are known."""
from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from sot.guards.draws import set_state_of, state_of
from sot.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.protocols import Emitter, Machine


class SeededGenerator(Value):
    """``host`` is such a generator, in the state that the program's has at this point of the trace."""

    def __init__(self, host: Any) -> None:
        self.host_generator, self.pytype = host, type(host)

    def snapshot(self) -> Callable[[], None]:
        state = deepcopy(state_of(self.host_generator))
        return lambda: set_state_of(self.host_generator, state)

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        frozen = deepcopy(self.host_generator)
        return e.variable(self, f"{e.const(deepcopy)}({e.const(frozen)})")
