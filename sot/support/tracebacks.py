"""Tracebacks for the user: those of exceptions in captured code, and those of refused calls."""
from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, TracebackType
from typing import ParamSpec, TypeVar

from bytecode import Bytecode, Instr
from bytecode.instr import InstrLocation

from sot.support.own_code import is_own

P = ParamSpec("P")
R = TypeVar("R")

Place = tuple[int | None, int | None, int | None, int | None]      # first and last line, first and last column
Places = tuple[tuple[CodeType, Place], ...]     # the frames that an exception went through, innermost first


def _unstarted():
    yield


def looking_like(code: CodeType, place: Place) -> CodeType:
    """The code of a generator that a traceback shows as other code at a place: with its name, file and columns."""
    made, where = Bytecode.from_code(_unstarted.__code__), InstrLocation(*place)
    made.filename, made.name, made.first_lineno = code.co_filename, code.co_name, code.co_firstlineno
    for instr in made:
        if isinstance(instr, Instr):
            instr.location = where
    return made.to_code().replace(co_qualname=code.co_qualname)


def traceback_of(frames: Iterable[CodeType], inside: TracebackType | None = None) -> TracebackType | None:
    """Build a traceback that ends with another. Its frames, innermost first, are those of generators of this code (see
    ``looking_like``).

    It never runs, so it has no caller: a frame of a caller would keep the caller's variables alive.
    """
    found = inside
    for code in frames:
        line, *_ = next(iter(code.co_positions()))
        found = TracebackType(found, FunctionType(code, {})().gi_frame, 0, line or code.co_firstlineno)
    return found


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
