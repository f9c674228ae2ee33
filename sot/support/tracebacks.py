"""The traceback of an exception that capture has raised and caught, as Python would have made it."""
from __future__ import annotations

from types import CodeType, FunctionType, TracebackType

Places = tuple[tuple[CodeType, int], ...]       # the frames it went through, innermost first, each with a line


def _unstarted():
    yield


def traceback_of(places: Places) -> TracebackType | None:
    """A traceback needs frame objects: each is that of a generator which only looks like the user's function.

    It never runs, so that no frame of ours is behind it: that one would keep the variables of all callers alive.
    """
    found: TracebackType | None = None
    for code, line in places:
        looks = _unstarted.__code__.replace(co_filename=code.co_filename, co_name=code.co_name,
                                            co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno)
        found = TracebackType(found, FunctionType(looks, {})().gi_frame, -1, line)
    return found
