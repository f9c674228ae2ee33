"""functools.partial made during capture."""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot.values.objects import DictValue, ObjectValue, TupleValue

if TYPE_CHECKING:
    from sot.emit import Emitter


class PartialValue(ObjectValue):
    """``partial(func, *args, **keywords)``; the parts are in ``slots``, as C keeps them."""

    def rebuild(self, e: Emitter) -> str:
        args, keywords = self.slots["args"], self.slots["keywords"]
        assert isinstance(args, TupleValue) and isinstance(keywords, DictValue)
        given = "".join(f", {e.value(v)}" for v in args.items)
        named = "".join(f", {e.key(k)}: {e.value(keywords.overlay[k])}" for k in keywords.keys(None))[2:]
        made = e.variable(self, f"{e.const(self.pytype)}({e.value(self.slots['func'])}{given}, **{{{named}}})")
        if self.has_attrs:
            attrs = self.attrs

            def fill() -> None:
                for k in attrs.keys(None):
                    e.line(f"{made}.{k} = {e.value(attrs.overlay[k])}")
            e.later(fill)
        return made
