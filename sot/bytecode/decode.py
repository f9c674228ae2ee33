"""Code object -> canonical instructions.

The opcodes come from `co_code`, in which CPython has undone specialisation and instrumentation. Each opcode has one
reader `read(decoder, arg)`, which appends zero or more canonical instructions. A family shares a reader, and the
version's file adds readers. An offset in the bytecode maps to the first instruction appended at or after it. A jump
to an EXTENDED_ARG, or to an opcode folded into the next one, therefore has the right target.
"""

from __future__ import annotations

import dis
import itertools
import types
from collections.abc import Callable, Iterator

from sot.bytecode.instr import FAST, FLAG, NAME, NO_POSITION, NUMBER, PLAIN, Code, Handler, Instr
from sot.bytecode.versions import CURRENT as VERSION

CACHE_SIZE = 1024
_cache: dict[int, Code] = {}


def decode(code: types.CodeType) -> Code:
    """The canonical instructions of a code object. The result is cached, so callers must not change it."""
    hit = _cache.get(id(code))
    if hit is not None:  # the cache holds `code`, so the id still belongs to it
        return hit
    if len(_cache) >= CACHE_SIZE:
        _cache.clear()
    result = _cache[id(code)] = Decoder(code).run()
    return result


def forget() -> None:
    """Empty the cache, which keeps code objects alive."""
    _cache.clear()


def slot_names(
    local: tuple[str, ...], cells: tuple[str, ...], free: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of the frame's variable slots: locals, cells that are no locals, then free variables. In a class body
    a name may be both a cell and free; then the free variable gets another name.
    """
    only_cells = tuple(name for name in cells if name not in local)
    return local + only_cells + tuple(f"{n} (free)" if n in cells else n for n in free)


def parse_exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """Entries (start, end, target, depth, lasti) in code units. `end` is exclusive."""
    numbers = _varints(table)
    for start in numbers:
        length, target, depth_lasti = next(numbers), next(numbers), next(numbers)
        yield start, start + length, target, depth_lasti >> 1, bool(depth_lasti & 1)


def _varints(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


class Decoder:
    """The state while one code object is decoded: the tables for arguments, and the output."""

    __slots__ = ("code", "consts", "names", "slots", "out", "pos", "handler", "next",
                 "keywords", "in_end_for")

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.consts = code.co_consts
        self.names = code.co_names
        self.slots = slot_names(code.co_varnames, code.co_cellvars, code.co_freevars)
        self.out: list[Instr] = []
        self.pos = NO_POSITION
        self.handler = -1
        self.next = 0  # the code unit after the current instruction and its caches
        self.keywords: tuple[str, ...] = ()  # from KW_NAMES, for the CALL that follows
        self.in_end_for = False  # between an END_FOR and its POP_TOP

    def emit(self, op: str, arg: object = None, target: int | None = None) -> None:
        self.out.append(Instr(op, arg, target, self.pos, self.handler))

    def run(self) -> Code:
        handlers, handler_at = self._handlers()
        raw = self.code.co_code
        index_at = [0] * (len(raw) // 2 + 1)
        out, extended = self.out, 0
        # some positions may be missing
        positions = itertools.chain(self.code.co_positions(), itertools.repeat(NO_POSITION))
        for unit, (opcode, arg, pos) in enumerate(zip(raw[::2], raw[1::2], positions, strict=False)):
            index_at[unit] = len(out)
            read = READERS[opcode]
            if read is None:  # CACHE
                continue
            if opcode == EXTENDED_ARG:
                extended = (extended | arg) << 8
                continue
            self.pos = pos
            self.handler = handler_at[unit]
            self.next = unit + 1 + CACHES[opcode]
            read(self, arg | extended)
            extended = 0
        index_at[-1] = len(out)
        for instr in out:
            if instr.target is not None:
                instr.target = index_at[instr.target]
        for handler in handlers:
            handler.target = index_at[handler.target]
        VERSION.finish(self, handlers)
        return Code(out, handlers, self.code)

    def _handlers(self) -> tuple[list[Handler], list[int]]:
        at = [-1] * (len(self.code.co_code) // 2 + 1)
        known: dict[tuple[int, int, bool], int] = {}
        for start, end, target, depth, lasti in parse_exception_table(self.code.co_exceptiontable):
            index = known.setdefault((target, depth, lasti), len(known))
            at[start:end] = [index] * (end - start)
        return [Handler(*entry) for entry in known], at


# ---------------------------------------------------------------------------------------------------
# Readers

Reader = Callable[[Decoder, int], None]


def _plain(op: str) -> Reader:
    return lambda d, arg: d.out.append(Instr(op, None, None, d.pos, d.handler))


def _number(op: str) -> Reader:
    return lambda d, arg: d.out.append(Instr(op, arg, None, d.pos, d.handler))


def _flag(op: str) -> Reader:
    return lambda d, arg: d.out.append(Instr(op, bool(arg), None, d.pos, d.handler))


def _name(op: str) -> Reader:
    return lambda d, arg: d.out.append(Instr(op, d.names[arg], None, d.pos, d.handler))


def _slot(op: str) -> Reader:
    return lambda d, arg: d.out.append(Instr(op, d.slots[arg], None, d.pos, d.handler))


_FAMILIES = ((PLAIN, _plain), (NUMBER, _number), (FLAG, _flag), (NAME, _name), (FAST, _slot))


def _jump(op: str, arg: object, sign: int) -> Reader:
    return lambda d, distance: d.emit(op, arg, d.next + sign * distance)


def _removed(decoder: Decoder, arg: int) -> None:
    """An opcode without a canonical instruction."""


def _unknown(decoder: Decoder, arg: int) -> None:
    raise ValueError(f"an opcode that co_code never contains, in {decoder.code}")


def _reader(opname: str) -> Reader | None:
    if opname == "CACHE":
        return None
    if opname in VERSION.READ:
        return VERSION.READ[opname]
    if opname in VERSION.READ_JUMP:
        return _jump(*VERSION.READ_JUMP[opname])
    if opname in VERSION.REMOVED or opname == "EXTENDED_ARG":
        return _removed
    if opname not in VERSION.NEVER:
        for family, make in _FAMILIES:
            if opname in family:
                return make(opname)
    return _unknown


EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHES = [VERSION.cache_units(opcode) for opcode in range(256)]
READERS = [_reader(opname) for opname in dis.opname[:256]]
