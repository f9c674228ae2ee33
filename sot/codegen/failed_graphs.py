"""The exception of a graph that has changed its inputs. Python cannot run the frame again, so the exception leaves the
function, with the traceback that it has in the program.
"""
from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, TracebackType

from torch import SymBool, SymFloat, SymInt
from torch.fx import Node

from sot import _hook
from sot._hook import Tail
from sot.codegen.source import on_one_line
from sot.guards.draws import Draws
from sot.support.own_code import is_own
from sot.support.tracebacks import looking_like, traceback_of
from sot.torch_compat.graphs import lines_of, node_at


def _fail(raised: list[BaseException]) -> None:
    error = raised.pop()
    context = error.__context__
    try:
        raise error
    except BaseException:
        error.__context__ = context     # it was raised elsewhere
        raise
    finally:
        del error, context              # the traceback holds this frame


def leaving(error: BaseException, code: CodeType) -> Tail:
    """The result of an entry that means the exception: it is raised where the frame of this code has been left.
    ``code`` stands in for that of the frame, if the failed operation is not known.
    """
    places, rest = where(error.__traceback__)
    *inner, outermost = places or (code,)
    error.__traceback__ = traceback_of(inner, rest)
    looks = on_one_line(_fail.__code__.replace(co_filename=outermost.co_filename), outermost)
    return Tail(_hook.plain(FunctionType(looks, {"BaseException": BaseException})), ([error],))


def stand_in(code: CodeType) -> CodeType:
    """Code that a traceback shows like this one. An entry that held the code itself would keep it for good."""
    return code_at(code.co_filename, str(code.co_firstlineno), code.co_name)


def take_back_later_draws(error: BaseException, draws: Draws, drawn: tuple[tuple, tuple]) -> None:
    """Take back the random numbers of Python and NumPy that the program draws after the operation that has failed."""
    nodes = [node for node, _ in failed(error.__traceback__)]
    if nodes:       # in compiled code the operation is not known
        draws.take_back_all_but(nodes[-1].meta.get("draws_before", 0), drawn)


def failed(trace: TracebackType | None) -> Iterator[tuple[Node, TracebackType | None]]:
    """The nodes of graphs that have failed, the outermost first, each with the frames inside it."""
    while trace is not None:
        if (node := node_at(trace.tb_frame, trace.tb_lineno)) is not None:
            yield node, trace.tb_next
        trace = trace.tb_next


def where(trace: TracebackType | None) -> tuple[tuple[CodeType, ...], TracebackType | None]:
    """Code for the frames of the program in which an operation of a graph has failed, innermost first, and the frames
    inside it.
    """
    frames: list[tuple[str, str, str]] = []
    rest = trace
    for node, inside in failed(trace):
        if found := lines_of(node):
            frames, rest = found, None if computes_number(node) else inside
    places = tuple(code_at(*frame) for frame in reversed(frames))
    return places, visible(rest) if frames else rest


def computes_number(node: Node) -> bool:
    """Whether it stands for a function of Python's own, which has no frame."""
    return isinstance(node.meta.get("example_value"), SymInt | SymFloat | SymBool)


def visible(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of this package."""
    if trace is None:
        return None
    rest = visible(trace.tb_next)
    if is_own(trace.tb_frame.f_code.co_filename):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def code_at(file: str, line: str, name: str) -> CodeType:
    """Code that a traceback shows like that of a frame of the program, whose columns are not known."""
    named = _fail.__code__.replace(co_filename=file, co_name=name, co_qualname=name, co_firstlineno=int(line))
    return looking_like(named, (int(line), None, None, None))
