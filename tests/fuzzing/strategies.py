"""Programs for hypothesis, which makes the choices."""
from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .grammar import Writer


@st.composite
def programs(draw) -> str:
    """The text of a module that defines ``program``."""
    return Writer(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).module()


def each_program(count: int, number: int, do: Callable[[str], None]) -> None:
    """Call ``do`` with ``count`` programs; those of one seed are the same every time."""
    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(programs())
    def run(source: str) -> None:
        do(source)

    run()


