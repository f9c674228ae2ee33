"""Tracebacks for the user: those of exceptions in captured code, and those of refused calls."""
from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import ParamSpec, TypeVar

from sot.support.own_code import is_own

P = ParamSpec("P")
R = TypeVar("R")

Place = tuple[int | None, int | None, int | None, int | None]      # first and last line, first and last column
Places = tuple[tuple[CodeType, Place], ...]     # the frames it went through, innermost first


def _unstarted():
    yield


def traceback_of(places: Places, inside: TracebackType | None = None) -> TracebackType | None:
    """Build a traceback that ends with another. Its frames are those of generators that have the user's function name,
    file and place.

    It never runs, so it has no caller: a frame of a caller would keep the caller's variables alive.
    """
    found = inside
    for code, place in places:
        table = table_of(place, code.co_firstlineno)
        looks = _unstarted.__code__.replace(
            co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname,
            co_firstlineno=code.co_firstlineno, co_linetable=table)
        found = TracebackType(
            found, FunctionType(looks, {})().gi_frame, 0 if table else -1, place[0] or code.co_firstlineno)
    return found


def table_of(place: Place, first_line: int) -> bytes:
    """The line table of code whose first instruction is at a place, in the long form of CPython's
    ``Objects/locations.md``. Tracebacks mark the columns. Empty if the columns are not known.
    """
    line, end_line, column, end_column = place
    if line is None or end_line is None or column is None or end_column is None:
        return b""
    delta = line - first_line
    numbers = (delta << 1 if delta >= 0 else -delta << 1 | 1, end_line - line, column + 1, end_column + 1)
    return b"".join([b"\xf0", *map(varint, numbers)])      # the long form, for one code unit


def varint(number: int) -> bytes:
    """A number in groups of six bits, the lowest first. Bit 6 says that another group follows."""
    groups = bytearray()
    while number >= 64:
        groups.append(64 | number & 63)
        number >>= 6
    return bytes((*groups, number))


# ---- what is refused --------------------------------------------------------------------------------------
def public(*, hint: str = "", every: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function of the public interface: an error in its arguments is raised at the caller's line.

    Arguments:
        hint: a suggestion for a call with too many arguments.
        every: treat every exception so. If False, an exception that user code or torch raises keeps its traceback.
    """
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as e:
                if isinstance(e, TypeError) and e.__traceback__ is not None and e.__traceback__.tb_next is None:
                    raise ends_here(TypeError(with_suggestion(str(e), function, hint))) from None
                if not every and not is_refusal(e):
                    raise
                raise ends_here(e) from None
        return call
    return decorate


def ends_here(error: Exception) -> Exception:
    """The exception without its traceback and its context. The traceback starts where it is raised next."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def is_refusal(error: Exception) -> bool:
    """Whether it is an exception that this package raises on purpose, and not a defect."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_own(trace.tb_frame.f_code.co_filename):
        return False
    return type(error).__module__.startswith("sot.") or type(error) in (TypeError, ValueError)


def with_suggestion(text: str, function: Callable[..., object], hint: str) -> str:
    """Python's message for arguments that do not fit, with a suggestion."""
    _, unexpected, name = text.partition("unexpected keyword argument ")
    if not unexpected:
        return f"{text}. {hint}" if hint and "positional argument" in text else text
    close = difflib.get_close_matches(name.strip("'"), inspect.signature(function).parameters, n=1)
    return f"{text}. Did you mean {close[0]!r}?" if close and "Did you mean" not in text else text
