"""Edited bytecode does what it says: instructions replaced and added, functions cut in two, positions kept."""
import gc
import inspect
import sys
import traceback
import types
import weakref

import pytest
from test_null_transform import owning

from sot.bytecode import (
    Handler,
    Instr,
    decode,
    encode,
    with_targets,
)
from sot.bytecode.null_transform import null_transform

SELF = sys.version_info >= (3, 14)      # the exit method of a `with` has a second slot

# ---------------------------------------------------------------------------------------------------
# Editing


def remade(fn, instrs, handlers, **changes):
    code = encode(instrs, handlers, like=fn.__code__, **changes)
    closure = changes.get("closure", fn.__closure__)
    return types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)


def sample_try(xs):
    total = 0
    for x in xs:
        try:
            total += 10 // x
        except ZeroDivisionError as e:
            total += len(str(e))
        finally:
            total += 1
    else:
        total *= 2
    return total


def test_nops_everywhere():
    code = decode(sample_try.__code__)
    instrs, handlers = with_targets(code)
    padded = []
    for instr in instrs:
        padded += [Instr("NOP", pos=instr.pos, handler=instr.handler), instr]
    fn = remade(sample_try, padded, handlers)
    assert fn([1, 0, 3]) == sample_try([1, 0, 3])


def test_int_targets_and_references_give_the_same_code():
    code = decode(sample_try.__code__)
    by_reference = encode(*with_targets(code), like=code.code)
    assert by_reference == encode(code.instrs, code.handlers, like=code.code)
    assert owning(by_reference) == owning(code.code)
    assert by_reference.co_exceptiontable == code.code.co_exceptiontable
    assert [*by_reference.co_positions()] == [*code.code.co_positions()]


def test_encode_leaves_its_input_alone():
    code = decode(sample_try.__code__)
    before = str(code)
    encode(code.instrs, code.handlers, like=code.code)
    assert str(code) == before


def test_replaced_and_appended_instructions():
    def f(a):
        if a > 1:
            return "big"
        return "small"

    instrs, handlers = with_targets(decode(f.__code__))
    big = next(i for i in instrs if i.arg == "big")
    tail = [Instr("LOAD_CONST", "tail", pos=big.pos), Instr("RETURN_VALUE", pos=big.pos)]
    big.op, big.arg, big.target = "JUMP", None, tail[0]
    fn = remade(f, instrs + tail, handlers)
    assert (fn(2), fn(0)) == ("tail", "small")


@pytest.mark.parametrize("op, value, other", [
    ("POP_JUMP_IF_TRUE", True, False), ("POP_JUMP_IF_FALSE", False, True),
    ("POP_JUMP_IF_NONE", None, 1), ("POP_JUMP_IF_NOT_NONE", 1, None),
])
def test_conditional_jumps_backward(op, value, other):
    def f(a):
        return a

    result = Instr("LOAD_FAST", "a")
    start = Instr("RESUME", 0)
    end = Instr("LOAD_CONST", "not taken")
    check = Instr("LOAD_FAST", "a")
    instrs = [
        start, Instr("JUMP", target=check), result, Instr("RETURN_VALUE"),
        check, Instr(op, target=result), end, Instr("RETURN_VALUE"),
    ]
    fn = remade(f, instrs, [])
    assert fn(value) is value
    assert fn(other) == "not taken"


def test_instructions_that_only_some_versions_have():
    def f(a, b, c):
        return a

    def run(*body, args):
        return remade(f, [Instr("RESUME", 0), *body, Instr("RETURN_VALUE")], [])(*args)

    load = [Instr("LOAD_FAST", name) for name in "abc"]
    assert run(load[0], Instr("TO_BOOL"), args=([], 0, 0)) is False
    assert run(*load, Instr("BINARY_SLICE"), args=("abcdef", 1, 3)) == "bc"
    assert run(load[0], Instr("CONVERT_VALUE", 2), args=("x", 0, 0)) == "'x'"
    assert run(load[0], Instr("CALL_INTRINSIC_1", "LIST_TO_TUPLE"), args=([1], 0, 0)) == (1,)
    assert run(load[0], load[1], Instr("END_SEND"), args=(1, 2, 0)) == 2
    assert run(load[0], Instr("END_FOR"), args=(1, 2, 0)) == 1
    data = [0, 1, 2, 3]
    store = [Instr("LOAD_CONST", (9,)), load[0], load[1], load[2], Instr("STORE_SLICE")]
    assert run(*store, load[0], args=(data, 1, 3)) == [0, 9, 3]


def test_unknown_instructions_are_refused():
    def f():
        pass

    with pytest.raises(ValueError, match="NO_SUCH_OP"):
        encode([Instr("NO_SUCH_OP")], [], like=f.__code__)


def test_unbound_variables_raise():
    def f(a):
        if a:
            b = 1
        return b

    fn = null_transform(f)
    assert fn(1) == 1
    with pytest.raises(UnboundLocalError, match="'b'"):
        fn(0)
    instrs, handlers = with_targets(decode(f.__code__))
    for instr in instrs:
        if instr.op == "STORE_FAST":
            instr.op, instr.arg = "POP_TOP", None
    with pytest.raises(UnboundLocalError, match="'b'"):
        remade(f, instrs, handlers)(1)


def test_variables_unbound_in_a_comprehension_only():
    def f(a):
        c = [x for x in a]
        if len(c) > 1:
            x = 1
        return x

    fn = null_transform(f)
    assert fn([1, 2]) == 1
    with pytest.raises(UnboundLocalError, match="'x'"):
        fn([1])


# ---------------------------------------------------------------------------------------------------
# Breaks: run up to `mark`, hand out stack and locals, go on in another function

mark = None


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(kind and kind.__name__)
        return kind is KeyError


def straight(a):
    b = a + 1
    mark
    return a * b


def in_for(a):
    total = 0
    for x in range(a):
        total += x
        if x == 2:
            mark
        total += 100
    return total


def in_nested_for(a):
    total = []
    for x in range(a):
        for y in "abc":
            if x == 1 and y == "b":
                mark
            total.append((x, y))
    return total


def in_try(a):
    for x in range(a):
        try:
            mark
            1 // x
        except ZeroDivisionError as e:
            return str(e), x
        finally:
            a += 1000
    return a


def in_with(a):
    log = []
    with Manager(log):
        mark
        a = {}[a]
    with Manager(log):
        pass
    return log, a


def in_with_for(a):
    log = []
    for x in range(a):
        with Manager(log) as m:
            try:
                mark
                raise KeyError(x)
            finally:
                log.append(m is not None)
    return log


def with_cells(a):
    b = 10

    def add():
        nonlocal b
        b += a

    for x in range(3):
        add()
        mark
        add()
    return b, x


# What is there at the mark: the depth of the stack, and the locals that are bound
AT_MARK = {
    straight: (0, "ab"),
    in_for: (1, ("a", "x", "total")),
    in_nested_for: (2, ("a", "x", "y", "total")),
    in_try: (1, "ax"),
    in_with: (1 + SELF, ("a", "log")),
    in_with_for: (2 + SELF, ("a", "x", "m", "log")),
    with_cells: (1, ("x", "add")),
}


def break_at_mark(fn, depth, names):
    """(first, second): at the mark, `first` returns (values of the stack, of the locals, cells);
    `second` takes them and finishes."""
    code = decode(fn.__code__)
    cells, free = code.code.co_cellvars, code.code.co_freevars
    stack = [f"stack{n}" for n in range(depth)]

    instrs, handlers = with_targets(code)
    at = next(n for n, i in enumerate(instrs) if i.arg == "mark")
    pos = instrs[at].pos
    tail = [Instr("BUILD_TUPLE", depth, pos=pos)]
    tail += [Instr("LOAD_FAST", name, pos=pos) for name in names]
    tail += [Instr("BUILD_TUPLE", len(names), pos=pos)]
    tail += [Instr("LOAD_CLOSURE", name, pos=pos) for name in cells]
    tail += [Instr("BUILD_TUPLE", len(cells)), Instr("BUILD_TUPLE", 3), Instr("RETURN_VALUE")]
    instrs[at].op, instrs[at].arg, instrs[at].target = "JUMP", None, tail[0]
    first = remade(fn, instrs + tail, handlers, name="first")

    instrs, handlers = with_targets(code)
    prologue = [Instr("RESUME", 0), *(Instr("LOAD_FAST", name) for name in stack)]
    prologue.append(Instr("JUMP", target=instrs[at]))
    resumed = encode(prologue + instrs, handlers, like=fn.__code__, name="second",
                     argnames=(*stack, *names), freevars=(*cells, *free))

    def second(stack_values, values, cell_values):
        closure = (*cell_values, *(fn.__closure__ or ()))
        return types.FunctionType(resumed, fn.__globals__, closure=closure)(*stack_values, *values)

    return first, second


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("fn", AT_MARK, ids=lambda fn: fn.__name__)
def test_resume(fn):
    first, second = break_at_mark(fn, *AT_MARK[fn])
    broke = 0
    for a in range(6):
        state = outcome(first, a)
        if isinstance(state, tuple) and len(state) == 3:
            broke += 1
            state = outcome(second, *state)
        assert state == outcome(fn, a)
    assert broke


def test_resume_in_an_except_block():
    def f(a):
        try:
            1 // 0
        except ZeroDivisionError:
            mark
            raise

    instrs, handlers = with_targets(decode(f.__code__))
    at = next(i for i in instrs if i.arg == "mark")
    prologue = [
        Instr("RESUME", 0),
        Instr("LOAD_FAST", "exception"),
        Instr("PUSH_EXC_INFO", handler=at.handler),
        Instr("JUMP", target=at, handler=at.handler),
    ]
    code = encode(prologue + instrs, handlers, like=f.__code__, argnames=("exception", "a"))
    fn = types.FunctionType(code, f.__globals__)
    error = OSError("given")
    with pytest.raises(OSError, match="given") as caught:
        fn(error, 1)
    assert caught.value is error
    assert sys.exc_info()[1] is None


def test_a_cell_variable_given_from_outside():
    def f(a):
        def inner():
            return a
        a += 1
        return inner

    code = decode(f.__code__)
    free = encode(code.instrs, code.handlers, like=f.__code__, argnames=(), freevars=("a",))
    assert (free.co_cellvars, free.co_freevars, free.co_argcount) == ((), ("a",), 0)
    cell = types.CellType(5)
    inner = types.FunctionType(free, globals(), closure=(cell,))()
    assert inner() == 6
    assert inner.__closure__[0] is cell
    with pytest.raises(ValueError, match="both an argument and a free variable"):
        encode(code.instrs, code.handlers, like=f.__code__, argnames=("a",), freevars=("a",))


def test_extra_locals_and_names():
    def f(a, *b, c=1, **d):
        return a

    code = decode(f.__code__)
    new = encode(code.instrs, code.handlers, like=f.__code__, name="n", qualname="q.n",
                 argnames=("z", "a"), extra_locals=("t",))
    assert (new.co_name, new.co_qualname, new.co_argcount) == ("n", "q.n", 2)
    assert (new.co_kwonlyargcount, new.co_posonlyargcount) == (0, 0)
    assert new.co_varnames == ("z", "a", "c", "b", "d", "t")
    assert not new.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    assert types.FunctionType(new, {})(1, 2) == 2


def test_constants_of_any_kind_keep_their_identity():
    def f():
        return 1

    thing = object()
    body = [Instr("RESUME", 0), Instr("LOAD_CONST", thing), Instr("LOAD_CONST", [1]),
            Instr("LOAD_CONST", 1.0), Instr("LOAD_CONST", True), Instr("LOAD_CONST", -0.0),
            Instr("BUILD_TUPLE", 5), Instr("RETURN_VALUE")]
    fn = remade(f, body, [])
    result = fn()
    assert result[0] is thing
    assert repr(result[1:]) == "([1], 1.0, True, -0.0)"
    reference = weakref.ref(fn)
    del fn
    gc.collect()
    assert reference() is None


# ---------------------------------------------------------------------------------------------------
# Positions survive


def failing(a):
    b = {"x": a}
    return [n for n in range(3)], (b["x"]
                                   + b["missing"]
                                   + 1)


def _frames(fn, *args):
    try:
        fn(*args)
    except Exception as e:
        tb = traceback.TracebackException(type(e), e, e.__traceback__.tb_next)
        return "".join(tb.format())
    raise AssertionError("did not raise")


def test_tracebacks_name_file_line_and_column():
    text = _frames(null_transform(failing), 1)
    assert text == _frames(failing, 1)
    line = failing.__code__.co_firstlineno + 3
    assert f'{__file__}", line {line}, in failing' in text
    assert '~^^^^^^^^^^^' in text


def test_a_prologue_does_not_move_the_lines():
    instrs, handlers = with_targets(decode(failing.__code__))
    prologue = [Instr("RESUME", 0), Instr("JUMP", target=instrs[1])]
    fn = remade(failing, prologue + instrs, handlers)
    assert _frames(fn, 1) == _frames(failing, 1)


@pytest.mark.parametrize("pos", [
    (None, None, None, None), (5, None, None, None), (5, 7, None, None), (5, 7, 3, 1),
    (5, 5, 9, 2), (5, 3, 0, 1), (0, 1, 0, 0), (5, 5, 3, None), (70000, 70001, 500, 900),
])
def test_positions_of_all_kinds(pos):
    def f():
        pass

    instrs = [Instr("RESUME", 0, pos=pos), Instr("LOAD_CONST", 1, pos=pos),
              Instr("RETURN_VALUE", pos=(5, 6, 7, 8))]
    code = encode(instrs, [], like=f.__code__)
    made = decode(code)
    assert types.FunctionType(code, {})() == 1
    assert made.instrs[1].pos[0] == pos[0]
    assert made.instrs[-1].pos == (5, 6, 7, 8)


def test_lines_for_tracing():
    def events(fn):
        seen = []

        def trace(frame, event, arg):
            if frame.f_code is fn.__code__:
                seen.append((event, frame.f_lineno - fn.__code__.co_firstlineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            fn([1, 0, 3])
        finally:
            sys.settrace(before)
        return seen

    assert events(null_transform(sample_try)) == events(sample_try)


def test_handlers_are_kept():
    code = decode(sample_try.__code__)
    again = decode(encode(code.instrs, code.handlers, like=code.code))
    assert [(h.target, h.depth, h.lasti) for h in again.handlers] == [
        (h.target, h.depth, h.lasti) for h in code.handlers
    ]
    assert isinstance(code.handlers[0], Handler)
