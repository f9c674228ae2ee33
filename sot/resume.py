"""Leave a function in the middle, and go on later in another function: how a break becomes code.

At a break the stack and the locals of the user's frame are known. Three kinds of code come of it:

- E (`step_code`) restores them, runs the one instruction that could not be captured, and leaves;
- E of an outer frame (`call_code`) does the same around a call of which the inner frame broke;
- R (`resume_code`) restores them and is the rest of the user's function: an ordinary function.

E does not call R but answers `Tail(R, args)`, and the hook calls it, so a loop that breaks each time around needs no
deeper stack, and a traceback has the user's frames only. What they restore are their parameters (`argument_order`);
the closure is the cells of the frame, in the order `code.co_cellvars + code.co_freevars`. R may break too: it counts
as the code it is a copy of (`source`), so there is one R for each place and layout, however often the function breaks.

The exception table of the original goes on to fit. What does not is the thread's record of the exception being
handled, which PUSH_EXC_INFO saves on the stack (SAVED): E pops it with POP_EXCEPT before it leaves, and R pushes it
again. Its parameter is the exception being handled, which need not be on the stack any more. A lasti on the stack is
passed on as it is: only the line that a tracer sees while RERAISE unwinds depends on it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeVar

from sot import _hook
from sot._hook import Tail, run
from sot.bytecode import NO_FALL_THROUGH, NULL_FIRST, Handler, Instr, decode, encode, with_targets

CACHE_SIZE = 4096
GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
SEES_ALL_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
SHOWS_FRAMES = frozenset({"breakpoint", "set_trace", "_getframe", "currentframe"})

VALUE, NULL, SAVED = "value", "null", "saved"

Emit = Callable[..., Instr]
F = TypeVar("F", bound=Callable[..., Any])

SLOT = "__stack_"
CALL = "__call"  # the parameter for the rest of what has been called, with its arguments
_slot = (SLOT + "{}").format  # the parameter for a slot


@dataclass(frozen=True)
class Layout:
    """What of a frame is restored: the kinds of the stack's slots, bottom first, and the local variables (no cells)
    that have a value which is still needed.

    A SAVED of which COPY made a copy is of kind VALUE from then on: only the copy is ever restored from."""

    slots: tuple[str, ...]
    names: tuple[str, ...]


Place = tuple[int, Layout]


class Point:
    """Where E leaves to: a constant of E, which makes R when it is needed."""

    __slots__ = ("code", "pc", "layout", "resume", "functions")

    def __init__(self, code: CodeType, pc: int, layout: Layout) -> None:
        self.code, self.pc, self.layout = code, pc, layout
        self.resume: CodeType | None = None
        self.functions: dict[int, FunctionType] = {}  # by id of the globals, which the function keeps alive

    def make(self) -> CodeType:
        return _make_resume(self.code, self.pc, self.layout)

    def tail(self, namespace: dict[str, Any], closure: tuple[Any, ...] | None, *values: Any) -> Tail:
        function = self.functions.get(id(namespace)) if closure is None else None
        if function is None:
            self.resume = self.resume or self.make()
            function = FunctionType(self.resume, namespace, closure=closure)
            if closure is None:
                self.functions[id(namespace)] = function
        return Tail(function, values)


class CallPoint(Point):
    """Where E of an outer frame leaves to, with the answer of the inner frame's E as the last of the values.

    If the inner frame goes on in a function of its own, both rests become one function, C (`composed_code`), so
    that they are captured together. Otherwise the answer is the result of the call, and R goes on behind it.
    """

    __slots__ = ("next_pc", "keep", "rests")

    def __init__(self, code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> None:
        super().__init__(code, pc, layout)
        self.next_pc, self.keep = next_pc, keep
        self.rests: dict[CodeType, ComposedPoint] = {}

    def tail(self, namespace: dict[str, Any], closure: tuple[Any, ...] | None, *values: Any) -> Tail:
        *state, answer = values
        if type(answer) is Tail:
            inner = answer.function.__code__
            rest = self.rests.get(inner)
            if rest is None:
                rest = self.rests[inner] = ComposedPoint(self)
            return rest.tail(namespace, closure, *state, (answer.function, *answer.take()))
        following = Layout(self.layout.slots + (VALUE,) * self.keep, self.layout.names)
        return _point(self.code, self.next_pc, following).tail(namespace, closure, *(values if self.keep else state))


class ComposedPoint(Point):
    """Makes C. Each rest of an inner function has a C of its own, with entries of its own."""

    __slots__ = ("call",)

    def __init__(self, call: CallPoint) -> None:
        super().__init__(call.code, call.pc, call.layout)
        self.call = call

    def make(self) -> CodeType:
        return _passing(_make_composed(self.code, self.pc, self.call.next_pc, self.layout, self.call.keep).replace())


@dataclass(eq=False)
class Origin:
    """The last constant of R and C: of which code it is the rest, from where. Of C, `pc` is that of the call."""

    code: CodeType
    pc: int
    layout: Layout
    next_pc: int | None = None      # of C, and whether the result of the call is pushed
    keep: bool = True
    places: list[int] = field(default_factory=list)  # for each instruction of R, the one it is a copy of


def origin(code: CodeType) -> Origin | None:
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, Origin) else None


def source(code: CodeType, pc: int) -> tuple[CodeType, int]:
    """The place in the user's code, for one in R."""
    known = origin(code)
    if known is None:
        return code, pc
    if not known.places:
        known.places = _places(decode(known.code).instrs, decode(code).instrs)
    return known.code, known.places[pc]


def place_of_call(code: CodeType, pc: int, next_pc: int, keep: bool) -> tuple[CodeType, int, int, bool]:
    """The place of a call in the user's code, where the next instruction is, and whether the result is pushed. The call
    that C begins with stands for the one that the user's code was in."""
    known = origin(code)
    if known is None:
        return code, pc, next_pc, keep
    if known.next_pc is not None and pc < len(decode(code).instrs) - len(decode(known.code).instrs) + _head(known.code):
        return known.code, known.pc, known.next_pc, known.keep
    return known.code, source(code, pc)[1], source(code, next_pc)[1], keep


def _places(original: list[Instr], copy: list[Instr]) -> list[int]:
    """The two end the same, but that before 3.13 a FORMAT_SIMPLE comes to each CONVERT_VALUE that R starts behind."""
    places, at = [], len(original) - 1
    for instr in reversed(copy):
        places.append(at)
        at -= instr.op == original[at].op
    return places[::-1]


def per_place(function: F) -> F:
    """Cache a function of (code, pc, ...), by the identity of the user's code: equal code may be of other files."""
    cache: dict[Any, Any] = {}

    @functools.wraps(function)
    def at(code: CodeType, pc: int, *args: Any) -> Any:
        code, pc = source(code, pc)
        key = id(code), pc, *args
        if key not in cache:
            result = function(code, pc, *args)
            if len(cache) >= CACHE_SIZE:
                cache.clear()
            cache[key] = code, result  # holds `code`, so the id is still its own
        return cache[key][1]

    return at  # type: ignore[return-value]


_point = per_place(Point)
_call_point = per_place(CallPoint)


def _cells(code: CodeType) -> tuple[str, ...]:
    return code.co_cellvars + code.co_freevars


def _head(code: CodeType) -> int:
    """Where the body starts. What is before sets up cells and the generator."""
    return next(n for n, instr in enumerate(decode(code).instrs) if instr.op == "RESUME") + 1


def live_names(code: CodeType, pc: int) -> frozenset[str]:
    """The local variables (no cells) whose values may be used from `pc` on."""
    code, pc = source(code, pc)
    return _live_names(code, 0)[pc]


def read_cells(code: CodeType, pc: int) -> frozenset[str]:
    """The variables that inner functions share which the code itself may read from `pc` on before it sets them. Without
    a value that is an UnboundLocalError, but in E and R, where they are free variables, another error."""
    code, pc = source(code, pc)
    return _liveness(code, 0, frozenset(code.co_cellvars))[pc]


@per_place
def _live_names(code: CodeType, _: int) -> list[frozenset[str]]:
    names = frozenset(code.co_varnames) - {*_cells(code)}
    sees_all = not SHOWS_FRAMES.isdisjoint(code.co_names) or any(
        i.op in ("LOAD_GLOBAL", "LOAD_NAME") and i.arg in SEES_ALL_LOCALS for i in decode(code).instrs)
    return _liveness(code, 0, names, names if sees_all else names & {_super_argument(code)})


@per_place
def _liveness(code: CodeType, _: int, names: frozenset[str], always: frozenset[str] = frozenset()
              ) -> list[frozenset[str]]:
    """For each instruction, those of the names that may be read. Backward data flow, along jumps and into handlers."""
    decoded = decode(code)
    instrs = decoded.instrs
    live = [always] * (len(instrs) + 1)
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(len(instrs))):
            instr = instrs[pc]
            before = always if instr.op in NO_FALL_THROUGH else live[pc + 1]
            if instr.target is not None:
                before |= live[instr.target]
            if instr.op in ("STORE_FAST", "STORE_DEREF"):
                before -= {instr.arg}
            elif instr.op in ("LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "LOAD_DEREF", "DELETE_DEREF"):
                before |= names & {instr.arg}
            if instr.handler >= 0:
                before |= live[decoded.handlers[instr.handler].target]
            before |= always
            changed |= before != live[pc]
            live[pc] = before
    return live


def _super_argument(code: CodeType) -> str | None:
    """The argument that `super()` finds by itself: the first local variable of the frame."""
    implicit = "__class__" in code.co_freevars and "super" in code.co_names and code.co_argcount
    return code.co_varnames[0] if implicit else None


def argument_order(code: CodeType, layout: Layout) -> list[tuple[str, Any]]:
    """The parameters of E and R: ("name", name of a local) in the order of co_varnames, which keeps the first
    argument first, for `super()`; then ("slot", index) for the slots that are not NULL, bottom first. The
    argument for a SAVED slot is the exception that is being handled since it was pushed."""
    known = origin(code)
    order = (known.code if known else code).co_varnames
    slots = [("slot", index) for index, kind in enumerate(layout.slots) if kind != NULL]
    return [*(("name", name) for name in sorted(layout.names, key=order.index)), *slots]


def _parameters(code: CodeType, layout: Layout) -> tuple[str, ...]:
    return tuple(what if kind == "name" else _slot(what) for kind, what in argument_order(code, layout))


def can_resume(code: CodeType, pc: int, layout: Layout, *, generator: bool = False) -> str | None:
    """Why a frame cannot be left at `pc`, if so. `generator` tells that it is for `generator_code`."""
    code, pc = source(code, pc)
    instrs, cells, argument = decode(code).instrs, _cells(code), _super_argument(code)
    if code.co_flags & GENERATORS != inspect.CO_GENERATOR * generator:
        return "not a generator" if generator else "a generator cannot be left in the middle"
    if pc < _head(code):
        return "the frame has not started"
    if generator and "YIELD_VALUE" not in (instrs[pc - 1].op, instrs[pc - 2].op):
        return "the generator is not suspended there"
    if argument in cells:
        return "super() without arguments, and the first argument is a variable of an inner function too"
    if argument is not None and argument not in layout.names:
        return "super() without arguments, and the first argument has been deleted"
    for instr, following in zip(instrs, instrs[1:], strict=False):
        if instr.op == "LOAD_FAST_AND_CLEAR" and instr.arg in cells:
            if following.op != "MAKE_CELL" or instr is instrs[pc]:
                return f"{instr.arg} is a cell, and for a while a plain variable of a comprehension"
    return None


NET = {op: net for net, ops in {
    1: """PUSH_NULL LOAD_CONST LOAD_FAST LOAD_GLOBAL LOAD_NAME LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF LOAD_LOCALS
          LOAD_FAST_AND_CLEAR LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS IMPORT_FROM GET_LEN
          MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS BEFORE_WITH WITH_EXCEPT_START FOR_ITER""",
    -1: """POP_TOP STORE_FAST STORE_DEREF STORE_GLOBAL STORE_NAME DELETE_ATTR POP_EXCEPT END_SEND CLEANUP_THROW
           BINARY_OP BINARY_SUBSCR COMPARE_OP IS_OP CONTAINS_OP IMPORT_NAME CALL_INTRINSIC_2 FORMAT_WITH_SPEC
           LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE SET_FUNCTION_ATTRIBUTE
           POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
           JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP""",
    -2: "STORE_ATTR DELETE_SUBSCR BINARY_SLICE MAP_ADD MATCH_CLASS LOAD_SUPER_ATTR",
    -3: "STORE_SUBSCR",
    -4: "STORE_SLICE",
}.items() for op in ops.split()}  # all else pushes as much as it pops

NET_OF: dict[str, Callable[[Any], int]] = {
    **dict.fromkeys(["BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"], lambda count: 1 - count),
    "BUILD_MAP": lambda count: 1 - 2 * count,
    "BUILD_CONST_KEY_MAP": lambda count: -count,
    "UNPACK_SEQUENCE": lambda count: count - 1,
    "UNPACK_EX": sum,
    "MAKE_FUNCTION": lambda flags: -(flags & 15).bit_count(),
    "CALL": lambda arg: -arg[0] - 1,
    "CALL_FUNCTION_EX": lambda has_keywords: -2 - has_keywords,
}

NET_OF_JUMP = {"FOR_ITER": -1, "JUMP_IF_TRUE_OR_POP": 0, "JUMP_IF_FALSE_OR_POP": 0}


def slots_after(instr: Instr, layout: Layout, jump: bool) -> list[str]:
    """The kinds of the slots, where execution goes on at the next instruction or at the target of the jump."""
    slots, op, arg = [*layout.slots], instr.op, instr.arg
    net = NET_OF[op](arg) if op in NET_OF else NET.get(op, 0)
    net = NET_OF_JUMP.get(op, net) if jump else net
    slots = slots[:net] if net < 0 else slots + [VALUE] * net
    if op == "COPY":
        slots.append(slots[-arg])
        if slots[-1] == SAVED:
            slots[-1 - arg] = VALUE
    elif op == "SWAP":
        slots[-1], slots[-arg] = slots[-arg], slots[-1]
    elif op == "PUSH_EXC_INFO":
        slots.insert(-1, SAVED)
    elif op == "PUSH_NULL" or op == "LOAD_FAST_AND_CLEAR" and arg not in layout.names:
        slots[-1] = NULL
    elif op in ("CALL", "CALL_FUNCTION_EX"):
        slots[-1] = VALUE
    elif op == "LOAD_METHOD" or op == "LOAD_SUPER_ATTR" and arg[1]:  # see _lowered
        slots.insert(len(slots) - NULL_FIRST, NULL)
    return slots


def names_after(instr: Instr, layout: Layout) -> set[str]:
    """The variables with a value. A NULL that is stored takes the value away."""
    if instr.op == "STORE_FAST" and layout.slots[-1] != NULL:
        return {*layout.names, instr.arg}
    return {*layout.names} - {instr.arg if instr.op in ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR") else None}


def kept_names(code: CodeType, pc: int, layout: Layout) -> Set[str]:
    """The variables that are there though nothing reads them from ``pc`` on (see ``values/lifetimes.py``)."""
    return {*layout.names} - live_names(code, pc)


def place_with(code: CodeType, pc: int, slots: Iterable[str], names: Set[str], kept: Set[str]) -> Place:
    """Of the variables with a value, those that are live and those of ``kept`` go on."""
    needed = names & (live_names(code, pc) | kept)
    return pc, Layout(tuple(slots), tuple(name for name in code.co_varnames if name in needed))


@per_place
def step_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """E: run the instruction at `pc`, and leave for wherever it goes."""
    instrs = decode(code).instrs
    instr, names, kept = instrs[pc], names_after(instrs[pc], layout), kept_names(code, pc, layout)
    following = jump = None
    landing: list[Instr] = []
    if instr.op not in NO_FALL_THROUGH:
        following = place_with(code, pc + 1, slots_after(instr, layout, False), names, kept)
    if (target := instr.target) is not None:
        slots = slots_after(instr, layout, True)
        if instr.op in ("FOR_ITER", "SEND") and instrs[target].op in ("END_FOR", "END_SEND"):
            landing = [Instr(instrs[target].op, pos=instr.pos)]  # CPython wants one where it goes
            slots, target = slots[: NET.get(instrs[target].op)], target + 1
        jump = place_with(code, target, slots, names, kept)
    return _leaving(code, pc, layout, _lowered(instr), following, jump, landing)


def call_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    """E around the call that the instruction at `pc` has made: its operands are gone, its handler is in force. The
    last parameter is what is called, the inner frame's E; the result is pushed, or dropped if not `keep`."""
    code, pc, next_pc, keep = place_of_call(code, pc, next_pc, keep)
    return _call_code(code, pc, next_pc, layout, keep)


@per_place
def _call_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    emit = functools.partial(Instr, pos=decode(code).instrs[pc].pos)
    thunk = [emit("LOAD_FAST", "__thunk"), emit("PUSH_NULL")]
    body = [*(thunk[::-1] if NULL_FIRST else thunk), emit("DELETE_FAST", "__thunk"), emit("CALL", (0, ()))]
    names = tuple(name for name in code.co_varnames if name in layout.names)
    point = _call_point(code, pc, next_pc, Layout(layout.slots, names), keep)
    answered = Layout((*layout.slots, VALUE), names)
    return _leaving(code, pc, layout, body, (next_pc, answered), extra=("__thunk",), point=point)


def _leaving(code: CodeType, pc: int, layout: Layout, body: list[Instr], following: Place | None,
             jump: Place | None = None, landing: Iterable[Instr] = (), extra: tuple[str, ...] = (),
             point: Point | None = None) -> CodeType:
    """E: restore, do `body` under the handler of `pc`, and leave by each way out of it."""
    decoded = decode(code)
    at = decoded.instrs[pc]
    emit = functools.partial(Instr, pos=at.pos)
    body = [emit("NOP"), *body]  # since 3.13 looks for the handler of a call one code unit too early
    instrs, handlers = [emit("RESUME", 0), *restoring(emit, layout), *body], []
    if following is not None:
        instrs += leave_for(emit, code, following, point)
    if jump is not None:
        stub = [*landing, *leave_for(emit, code, jump)]
        body[-1].target = stub[0]
        instrs += stub
    if at.handler >= 0 and (handler := decoded.handlers[at.handler]).depth <= len(layout.slots):
        slots = layout.slots[: handler.depth] + (VALUE,) * (1 + handler.lasti)
        kept = kept_names(code, pc, layout)
        stub = leave_for(emit, code, place_with(code, handler.target, slots, {*layout.names}, kept))
        handlers.append(Handler(stub[0], handler.depth, handler.lasti))
        instrs += stub
        for instr in body:
            instr.handler = 0
    return encode_as(code, layout, instrs, handlers, GENERATORS, extra)


def encode_as(code: CodeType, layout: Layout, instrs: list[Instr], handlers: list[Handler],
            drop: int, extra: tuple[str, ...] = ()) -> CodeType:
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | drop)
    argnames = *_parameters(code, layout), *extra     # for super() without arguments looks at the first
    return encode(instrs, handlers, like=code, argnames=argnames, freevars=_cells(code), flags=flags)


def _lowered(instr: Instr) -> list[Instr]:
    """The instruction, made such that the kinds of the slots it leaves are known, and that it takes any operand the
    interpreter may have left: on 3.13 a condition is a bool already, thanks to a TO_BOOL before."""
    emit = functools.partial(Instr, pos=instr.pos)
    null = [emit("PUSH_NULL"), emit("SWAP", 2)] if NULL_FIRST else [emit("PUSH_NULL")]
    if instr.op == "LOAD_METHOD":
        return [emit("LOAD_ATTR", instr.arg), *null]
    if instr.op == "LOAD_SUPER_ATTR" and instr.arg[1]:
        return [emit("LOAD_SUPER_ATTR", (instr.arg[0], False, instr.arg[2])), *null]
    same = emit(instr.op, instr.arg)
    wants_bool = instr.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT") and "TO_BOOL" in dis.opmap
    return [emit("TO_BOOL"), same] if wants_bool else [same]


def _callable(emit: Emit, function: Callable[..., Any]) -> list[Instr]:
    pair = [emit("LOAD_CONST", function), emit("PUSH_NULL")]
    return pair[::-1] if NULL_FIRST else pair


def restoring(emit: Emit, layout: Layout) -> list[Instr]:
    """Parameters to the stack. They are deleted, so that `locals()` does not have them and they keep nothing alive."""
    instrs = []
    for index, kind in enumerate(layout.slots):
        if kind == NULL:
            instrs.append(emit("PUSH_NULL"))
            continue
        instrs += [emit("LOAD_FAST", _slot(index)), emit("DELETE_FAST", _slot(index))]
        if kind == SAVED:
            instrs += [emit("PUSH_EXC_INFO"), emit("POP_TOP")]
    return instrs


def leave_for(emit: Emit, code: CodeType, place: Place, point: Point | None = None) -> list[Instr]:
    """Return the Tail: empty the stack into variables (a NULL too, which STORE_FAST can), undoing PUSH_EXC_INFO on
    the way, and pass them on after the globals, the cells and the locals. The traceback of an exception among them has
    this frame: it lets go of them, or they would keep each other alive."""
    instrs: list[Instr] = []
    pc, layout = place
    for index, kind in reversed([*enumerate(layout.slots)]):
        saved = kind == SAVED
        instrs += [*_callable(emit, sys.exception), emit("CALL", (0, ()))] * saved
        instrs += [emit("STORE_FAST", _slot(index)), *[emit("POP_EXCEPT")] * saved]
    tail = (point or _point(code, pc, layout)).tail
    instrs += [*_callable(emit, tail), *_callable(emit, globals), emit("CALL", (0, ()))]
    if cells := _cells(code):
        instrs += [*(emit("LOAD_CLOSURE", name) for name in cells), emit("BUILD_TUPLE", len(cells))]
    else:
        instrs.append(emit("LOAD_CONST", None))
    parameters = _parameters(code, layout)
    for name in parameters:
        instrs += [emit("LOAD_FAST", name), emit("DELETE_FAST", name)]
    return [*instrs, emit("CALL", (2 + len(parameters), ())), emit("RETURN_VALUE")]


@per_place
def resume_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """R: the user's function from `pc` on, an ordinary function."""
    instrs, handlers = with_targets(decode(code))
    target = instrs[pc]
    emit = functools.partial(Instr, pos=target.pos)
    prologue = [emit("RESUME", 0), *restoring(emit, layout), emit("JUMP", None, target, handler=target.handler)]
    return _rest(code, pc, layout, prologue + instrs[_head(code):], handlers, GENERATORS)


@per_place
def composed_code(code: CodeType, pc: int, next_pc: int, layout: Layout, keep: bool) -> CodeType:
    """C: the user's function from the call at `pc` on, where what is called is the rest of the inner function. It is
    the last parameter, with its arguments."""
    instrs, handlers = with_targets(decode(code))
    emit = functools.partial(Instr, pos=instrs[pc].pos, handler=instrs[pc].handler)
    target = instrs[next_pc]
    plain = functools.partial(Instr, pos=instrs[pc].pos)
    prologue = [plain("RESUME", 0), *restoring(plain, layout),
                emit("NOP"), *_callable(emit, run), emit("LOAD_FAST", CALL), emit("DELETE_FAST", CALL),
                emit("CALL_FUNCTION_EX", False), *[emit("POP_TOP")] * (not keep),
                Instr("JUMP", None, target, target.pos, target.handler)]
    rest = encode_as(code, layout, prologue + instrs[_head(code):], handlers, GENERATORS, (CALL,))
    return _with_origin(rest, Origin(code, pc, layout, next_pc, keep))


@per_place
def generator_code(code: CodeType, pc: int, layout: Layout) -> CodeType:
    """A generator function for the rest of a generator which a yield right before `pc` has suspended. After one
    `next()` its generator is suspended likewise: what is sent to it is pushed on `layout.slots`, and `pc` is next."""
    decoded = decode(code)
    instrs, handlers = with_targets(decoded)
    start, at = _head(code), pc - 1 if instrs[pc - 1].op == "YIELD_VALUE" else pc - 2
    emit = functools.partial(Instr, pos=instrs[at].pos, handler=instrs[start - 1].handler)  # which covers all of it
    suspend, go_on = (emit(i.op, i.arg, handler=i.handler) for i in instrs[at : at + 2])  # args tell whether in a try
    before, behind = [], [emit("JUMP", None, instrs[at + 2], handler=instrs[at + 2].handler)]
    if instrs[at - 1].op == "SEND":  # by which, right before the yield, throw() of 3.11 finds the end of a yield from
        behind += [emit("END_SEND"), emit("JUMP", None, instrs[decoded.instrs[at - 1].target + 1])]
        before = [emit("JUMP", None, suspend), emit("SEND", None, behind[1])]
    prologue = [emit("RETURN_GENERATOR", handler=-1), emit("POP_TOP"), emit("RESUME", 0), *restoring(emit, layout),
                emit("LOAD_CONST", None), *before, suspend, go_on, *behind]
    return _rest(code, pc, layout, prologue + instrs[start:], handlers, 0)


def _rest(code: CodeType, pc: int, layout: Layout, instrs: list[Instr], handlers: list[Handler], drop: int) -> CodeType:
    return _with_origin(encode_as(code, layout, instrs, handlers, drop), Origin(code, pc, layout))


def _with_origin(rest: CodeType, of: Origin) -> CodeType:
    return _passing(rest.replace(co_consts=(*rest.co_consts, of)))


def _passing(rest: CodeType) -> CodeType:
    _hook.pass_tails(rest)
    return rest


# All of this runs in the middle of the user's call, where the hook is on.
_make_resume, _make_composed = _hook.plain(resume_code), _hook.plain(composed_code)
for _function in (Point.tail, Point.make, CallPoint.tail, ComposedPoint.__init__, ComposedPoint.make, _passing):
    _hook.skip(_function.__code__)
