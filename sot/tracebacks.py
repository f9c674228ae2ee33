"""The traceback of an exception that capture has raised and caught, as Python would have made it."""
from __future__ import annotations

import sys
from types import CodeType, FunctionType, TracebackType

Places = tuple[tuple[CodeType, int], ...]       # the frames it went through, innermost first, each with a line


def _probe():
    return get_frame()  # type: ignore[name-defined]  # noqa: F821


def traceback_of(places: Places) -> TracebackType | None:
    """A traceback needs frame objects: each is that of a function which only looks like the user's."""
    found: TracebackType | None = None
    for code, line in places:
        looks = _probe.__code__.replace(co_filename=code.co_filename, co_name=code.co_name,
                                        co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno)
        frame = FunctionType(looks, {"get_frame": sys._getframe})()
        found = TracebackType(found, frame, -1, line)
    return found
