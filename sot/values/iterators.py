"""Iterators over known elements, slices, and suspended generators."""
from __future__ import annotations

import builtins
from collections import OrderedDict
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.of_objects.range_iterators import RANGE_ITERATOR, MoreGuard, Upcoming, rest_of
from sot.polyfills.rebuilt import ENDED, advanced
from sot.support.errors import Break, NotRebuildable, Reason, article
from sot.values.base import ABSENT, Const, Value
from sot.values.objects import DictValue, ListValue, SetValue, TupleValue, view_of
from sot.values.wrapping import wrap, wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sot.bytecode import Code
    from sot.guards.origin import Origin
    from sot.values.protocols import Emitter, Machine


def finished_generator() -> Generator[None, None, None]:
    made = (None for _ in ())
    made.close()
    return made


FINISHED = _hook.plain(finished_generator)
ADVANCED = _hook.plain(advanced)
REVERSED_LIST: Any = type(reversed([]))
EMPTY: dict[type, str] = {type(eval(code)): code for code in (       # noqa: S307
    "iter([])", "iter(())", "iter(set())", "iter('')", "iter(b'')", "reversed(())", "reversed([])")}


class IteratorValue(Value):
    """An iterator whose next element is known without running user code."""

    def step(self, m: Machine) -> Value | Any:
        """The next element, or ABSENT at the end. The journal records its change of position."""
        raise NotImplementedError

    def remaining(self) -> int | None:
        """How many elements follow, if that is known."""
        return None

    def snapshot(self) -> Callable[[], None]:
        raise NotImplementedError

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self


def iterate_as(source: Value) -> str:
    """The function that makes the iterator. An override of ``__iter__`` is ignored."""
    if source.pytype in (list, tuple):
        return "iter"
    return "list.__iter__" if issubclass(source.pytype, list) else "tuple.__iter__"


class SequenceIterator(IteratorValue):
    """Iterates over a list (live), or over the elements that a container had when iteration began."""

    def __init__(self, source: Value | None, items: list, pytype: type) -> None:
        self.source, self.items, self.pytype, self.index = source, items, pytype, 0
        self.ended = False      # it stays ended, even if the list grows again
        fixed = isinstance(source, SetValue) or (isinstance(source, ListValue) and not issubclass(source.pytype, list))
        self.size = len(items) if fixed else None

    def step(self, m: Machine) -> Value | Any:
        if self.ended:
            return ABSENT
        if self.size is not None and len(self.source.items) != self.size:  # type: ignore[union-attr]
            m.throw(RuntimeError, "Set changed size during iteration" if isinstance(self.source, SetValue)
                    else "deque mutated during iteration")
        m.touch(self)
        if self.index >= len(self.items):
            self.ended = True
            return ABSENT
        self.index += 1
        return m.settle_at(self.items, self.index - 1)

    def remaining(self) -> int:
        return 0 if self.ended else len(self.items) - self.index

    def snapshot(self) -> Callable[[], None]:
        index, ended = self.index, self.ended

        def undo() -> None:
            self.index, self.ended = index, ended
        return undo

    def rebuild(self, e: Emitter) -> str:
        source = self.source
        if self.ended:
            return e.variable(self, EMPTY.get(self.pytype, "iter([])"))
        if self.size is not None and len(source.items) != self.size:  # type: ignore[union-attr]
            raise NotRebuildable("an iterator over something that has changed")
        if isinstance(source, SetValue) and self.index == 0 and source.pytype in (set, frozenset):
            return e.variable(self, f"iter({e.value(source)})")
        if isinstance(source, TupleValue) or (isinstance(source, ListValue) and issubclass(source.pytype, list)):
            made = e.variable(self, f"{iterate_as(source)}({e.value(source)})")
            if self.index:
                e.set_position(made, self.index)
            return made
        rest = [e.value(v) for v in self.items[self.index:]]
        if self.pytype is reversed:
            inner = "".join(f"{name}, " for name in reversed(rest))
            return e.variable(self, f"reversed(({inner}))")
        return e.variable(self, f"iter([{', '.join(rest)}])")


class ReversedIterator(IteratorValue):
    """Iterates over a list from its end, live."""

    pytype = REVERSED_LIST

    def __init__(self, source: ListValue) -> None:
        self.source, self.index = source, len(source.items) - 1

    def step(self, m: Machine) -> Value | Any:
        if self.index < 0:
            return ABSENT
        m.touch(self)
        if self.index >= len(self.source.items):
            self.index = -1
            return ABSENT
        self.index -= 1
        return m.settle_at(self.source.items, self.index + 1)

    def snapshot(self) -> Callable[[], None]:
        index = self.index

        def undo() -> None:
            self.index = index
        return undo

    def rebuild(self, e: Emitter) -> str:
        if self.index < 0:
            return e.variable(self, "reversed([])")
        made = e.variable(self, f"list.__reversed__({e.value(self.source)})")
        e.set_position(made, self.index)
        return made


class RangeIterator(IteratorValue):
    """Iterates over a range, which may be too long to list."""

    pytype = RANGE_ITERATOR

    def __init__(self, over: range) -> None:
        self.over, self.index = over, 0

    def step(self, m: Machine) -> Value | Any:
        if self.index >= len(self.over):
            return ABSENT
        m.touch(self)
        self.index += 1
        return Const(self.over[self.index - 1])

    def remaining(self) -> int:
        return len(self.over) - self.index

    def snapshot(self) -> Callable[[], None]:
        index = self.index

        def undo() -> None:
            self.index = index
        return undo

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"iter({self.over[self.index:]!r})")


class StartedRange(IteratorValue):
    """An iterator over a range that existed before."""

    pytype = RANGE_ITERATOR

    def __init__(self, real: Any, origin: Origin) -> None:
        self.real: Any = real
        self.origin: Origin = origin
        self.rest, self.index = rest_of(real), 0

    def step(self, m: Machine) -> Value | Any:
        more = self.index < len(self.rest)
        m.guard(MoreGuard(self.origin, self.index, more))
        if not more:
            return ABSENT
        m.touch(self)
        self.index += 1
        return wrap(m, self.rest[self.index - 1], Upcoming(self.origin, self.index - 1))

    def snapshot(self) -> Callable[[], None]:
        index = self.index

        def undo() -> None:
            self.index = index
        return undo

    def replay(self, e: Emitter) -> None:
        if self.index:
            e.line(f"{e.const(ADVANCED)}({e.value(self)}, {self.index})")


class DictIterator(IteratorValue):
    """Iterates over the keys, values or items of a dict, whose size must not change meanwhile. ``turn`` is ``iter``, or
    ``reversed`` for an iterator that begins at the last one.
    """

    def __init__(self, kind: str, of: DictValue, keys: list, turn: Callable[[Any], Any] = iter) -> None:
        self.kind, self.of, self.keys, self.turn, self.index = kind, of, keys, turn, 0
        empty = OrderedDict[Any, Any]() if issubclass(of.pytype, OrderedDict) else {}
        self.pytype = type(turn(getattr(empty, kind)()))
        self.written = len(of.overlay), of.deletions

    def step(self, m: Machine) -> Value | Any:
        if self.index > len(self.keys):
            return ABSENT
        if self.written != (len(self.of.overlay), self.of.deletions):
            self.check(m)
        m.touch(self)
        self.index += 1
        if self.index > len(self.keys):
            return ABSENT
        key = self.keys[self.index - 1 if self.turn is iter else -self.index]
        if self.of.get(m, key) is ABSENT:
            m.throw(RuntimeError, "dictionary keys changed during iteration")
        if self.kind == "keys":
            return self.of.key_value(m, key)
        value = self.of.get(m, key)
        return value if self.kind == "values" else TupleValue([self.of.key_value(m, key), value])

    def check(self, m: Machine) -> None:
        """Break if the dict has changed. If keys were deleted and added again, the next item depends on their place in
        C's table.
        """
        ordered = issubclass(self.of.pytype, OrderedDict)
        if self.written[1] == self.of.deletions and self.of.keys(m) == self.keys:
            return
        if len(self.of.keys(m)) == len(self.keys) or ordered:
            raise Break(Reason.UNSUPPORTED, "an iterator over a dict that has changed")
        m.throw(RuntimeError, "dictionary changed size during iteration")

    def snapshot(self) -> Callable[[], None]:
        index = self.index

        def undo() -> None:
            self.index = index
        return undo

    def rebuild(self, e: Emitter) -> str:
        """A real iterator over the current dict, because it sees later writes. An exhausted one is empty."""
        ordered = issubclass(self.of.pytype, OrderedDict)
        if self.index > len(self.keys):
            empty = e.const(OrderedDict if ordered else dict)
            return e.variable(self, f"{self.turn.__name__}({empty}().{self.kind}())")
        now = self.of.keys(None)
        if self.written[1] != self.of.deletions:
            raise NotRebuildable("an iterator over a dict that has changed")
        if len(now) != len(self.keys) or any(a is not b and a != b for a, b in zip(now, self.keys, strict=True)):
            raise NotRebuildable("an iterator over a dict that has changed")
        e.complete(self.of)
        made = e.variable(self, f"{self.turn.__name__}({view_of(e, self.of, self.kind)})")
        if self.index:
            e.line(f"for _ in range({self.index}): next({made})")
        return made


class SliceValue(Value):
    """``slice(start, stop, step)`` of which a part is not a constant."""

    pytype = slice

    def __init__(self, parts: list[Value]) -> None:
        self.slice_parts = parts

    def load_attr(self, m: Machine, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.slice_parts[("start", "stop", "step").index(name)]
        return super().load_attr(m, name)

    def truth(self, m: Machine) -> bool | None:
        return True

    def host(self, m: Machine, depth: int = 0) -> slice:
        depth = self.deeper(depth)
        return slice(*(v.host(m, depth) for v in self.slice_parts))

    def array_argument(self, m: Machine) -> slice:
        return slice(*(v.array_argument(m) for v in self.slice_parts))

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> slice:
        return slice(*(v.graph_argument(m, found) for v in self.slice_parts))

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"slice({', '.join(e.value(v) for v in self.slice_parts)})")


class CombinedIterator(IteratorValue):
    """zip and enumerate over iterators of this file."""

    def __init__(self, pytype: type, parts: list[IteratorValue], start: int = 0) -> None:
        self.pytype, self.parts, self.count = pytype, parts, start

    def step(self, m: Machine) -> Value | Any:
        m.touch(self)
        got = []
        for part in self.parts:
            value = part.step(m)
            if value is ABSENT:
                return ABSENT
            got.append(value)
        if not self.parts:
            return ABSENT
        self.count += 1
        if self.pytype is enumerate:
            got.insert(0, wrap_new(m, self.count - 1))
        return TupleValue(got)

    def snapshot(self) -> Callable[[], None]:
        count = self.count

        def undo() -> None:
            self.count = count
        return undo

    def rebuild(self, e: Emitter) -> str:
        parts = ", ".join(e.value(p) for p in self.parts)
        if self.pytype is enumerate:
            return e.variable(self, f"enumerate({parts}, {self.count})")
        return e.variable(self, f"zip({parts})")


class CountIterator(IteratorValue):
    """itertools.count and itertools.repeat over constants."""

    def __init__(self, pytype: type, value: Any, increment: Any = 0, limit: int | None = None) -> None:
        self.pytype, self.value, self.increment, self.limit = pytype, value, increment, limit

    def step(self, m: Machine) -> Value | Any:
        m.touch(self)
        if self.limit is not None:
            if self.limit <= 0:
                return ABSENT
            self.limit -= 1
        if isinstance(self.value, Value):
            return self.value
        current = self.value
        self.value = current + self.increment
        return wrap_new(m, current)

    def snapshot(self) -> Callable[[], None]:
        before = (self.value, self.limit)

        def undo() -> None:
            self.value, self.limit = before
        return undo

    def rebuild(self, e: Emitter) -> str:
        if isinstance(self.value, Value):
            limit = "" if self.limit is None else f", {self.limit}"
            return e.variable(self, f"{e.const(self.pytype)}({e.value(self.value)}{limit})")
        return e.variable(self, f"{e.const(self.pytype)}({e.literal(self.value)}, {e.literal(self.increment)})")


class GeneratorValue(Value):
    """A generator of the captured program: its frame, suspended, running or finished (None)."""

    def __init__(self, frame: Any, pytype: type) -> None:
        self.frame: Any = frame
        self.pytype = pytype
        self.started = self.running = False
        self.failed = False     # a polyfilled generator that an exception has left: the C iterator could continue
        self.handled: Value | None = None       # the exception handled where it is suspended

    def snapshot(self) -> Callable[[], None]:
        before = self.frame, self.started, self.running, self.handled, self.failed
        state = self.frame.snapshot() if self.frame is not None else None

        def undo() -> None:
            self.frame, self.started, self.running, self.handled, self.failed = before
            if state is not None:
                state()
        return undo

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def cleans_up(self, at_any_yield: bool) -> bool:
        """Whether closing it runs code of the program: where it is suspended, or at any later yield."""
        frame = self.frame
        if frame is None or not (self.started or at_any_yield):
            return False
        if at_any_yield:
            return any(handles_closing(frame.code, i.handler) for i in frame.instrs if i.op == "YIELD_VALUE")
        return handles_closing(frame.code, frame.instrs[frame.last].handler)

    def rebuild(self, e: Emitter) -> str:
        if self.running:
            raise NotRebuildable("a generator that is running")
        if self.frame is None and self.pytype is GeneratorType:
            return e.variable(self, f"{e.const(FINISHED)}()")
        return e.generator(self)


class CoroutineValue(Value):
    """A coroutine or async generator that the trace has made. Python awaits it, or capture drives it from its start."""

    def __init__(self, made: GeneratorValue, name: str) -> None:
        self.made, self.name, self.pytype = made, name, made.pytype

    def truth(self, m: Machine) -> bool | None:
        return True

    def rebuild(self, e: Emitter) -> str:
        if self.made.started:
            raise NotRebuildable(f"{self.name}, a coroutine that has begun,")
        return e.generator(self.made)


# Local variables die with the frame, whatever is stored there, for example None at the end of ``except ... as e``.
PASSES_ON = frozenset(("PUSH_EXC_INFO", "BUILD_TUPLE", "CHECK_EXC_MATCH", "COPY", "POP_EXCEPT",
                       "LOAD_CONST", "STORE_FAST", "DELETE_FAST"))


def handles_closing(code: Code, handler: int) -> bool:
    """Whether the program's handlers do anything about a GeneratorExit except to pass it on.

    The handlers that CPython puts around every generator and ``yield from`` do not count, nor does ``except`` of
    ordinary exceptions.
    """
    pc = code.handlers[handler].target if handler >= 0 else -1
    while pc >= 0:
        instr = code.instrs[pc]
        if instr.op in ("RERAISE", "CLEANUP_THROW"):
            pc = code.handlers[instr.handler].target if instr.handler >= 0 else -1
        elif instr.op == "POP_JUMP_IF_FALSE":       # it is not an ordinary exception
            pc = instr.target
        elif (instr.op in PASSES_ON or (instr.op, instr.arg) == ("CALL_INTRINSIC_1", "STOPITERATION_ERROR")
                or instr.op == "LOAD_GLOBAL" and is_ordinary(instr.arg)):
            pc += 1
        else:
            return True
    return False


def is_ordinary(name: str) -> bool:
    """Whether it is the name of a Python exception that a GeneratorExit is not an instance of."""
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


class PolyfilledGenerator(GeneratorValue):
    """A polyfill's generator in place of a C iterator, such as ``map``. See sot.polyfills.rebuilt."""

    def __init__(self, frame: Any, pytype: type, rebuilt_by: Callable | None) -> None:
        super().__init__(frame, pytype)
        self.rebuilt_by = rebuilt_by

    def rebuild(self, e: Emitter) -> str:
        if self.running:
            raise NotRebuildable(article(f"{self.pytype.__name__} that is being stepped"))
        if self.frame is None and self.pytype in ENDED:
            args = ", ".join(map(repr, ENDED[self.pytype]))
            return e.variable(self, f"{e.const(self.pytype)}({args})")
        if self.frame is None or self.rebuilt_by is None or self.failed:
            raise NotRebuildable(article(self.pytype.__name__))
        code = self.rebuilt_by.__code__
        args = ", ".join(f"{name}={e.value(self.frame.locals[name])}"
                         for name in code.co_varnames[:code.co_argcount] if name in self.frame.locals)
        e.flush()       # it reads lists
        return e.variable(self, f"{e.const(_hook.plain(self.rebuilt_by))}({args})")


class ListedIterator(SequenceIterator):
    """The known results of ``make(*parts)``: the rows of itertools.product and similar functions."""

    def __init__(self, make: Callable, parts: list[Value], rows: list, pytype: type) -> None:
        super().__init__(None, rows, pytype)
        self.make, self.parts = make, parts

    def rebuild(self, e: Emitter) -> str:
        made = f"{e.const(self.make)}({', '.join(e.value(p) for p in self.parts)})"
        return e.variable(self, f"{e.const(ADVANCED)}({made}, {self.index + self.ended})")
