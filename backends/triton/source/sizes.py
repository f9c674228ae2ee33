"""The text of a module's function ``fits``: whether its lowering holds for other values of the symbols."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from sot.graph.kernels.sizes import LEAST, Facts


def fits(symbols: Iterable[str], facts: Facts) -> Iterator[str]:
    """The lines of ``fits(s0, s1)``."""
    conditions = [f"{name} >= {LEAST}" for name in sorted(facts.axes)]
    conditions += [f"{number} {'>' if holds else '<='} 0" for number, holds in facts.assumed.items()]
    yield f"def fits({', '.join(symbols)}):"
    yield f"    return {' and '.join(conditions) or 'True'}"
