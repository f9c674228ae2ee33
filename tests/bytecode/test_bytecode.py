"""Canonical bytecode: what decode gives, what encode takes, and that no opcode is forgotten."""
import dis
import inspect
import sys
import traceback

import pytest

from sot.bytecode import (
    CANONICAL,
    NULL_FIRST,
    REFUSED,
    decode,
)
from sot.bytecode.decode import READERS, VERSION, Decoder, parse_exception_table
from sot.bytecode.encode import WRITERS
from sot.bytecode.null_transform import null_transform

# ---------------------------------------------------------------------------------------------------
# Completeness


READ_WITH_OTHERS = {"LOAD_SPECIAL"}        # for the CALL that ends the beginning of a `with`


def _sample():
    def inner(a, b, c, d):
        return a.x, b.y, c.z, d.w, "const", a, 1000, (b,), 2.5

    return inner.__code__


@pytest.mark.parametrize("opname", sorted(set(dis.opmap) - {"CACHE", "EXTENDED_ARG"}))
def test_every_opcode_is_decoded_or_explained(opname):
    if opname in VERSION.NEVER:
        assert VERSION.NEVER[opname]
        return
    decoder = Decoder(_sample())
    decoder.keywords = ()
    decoder.emit("LOAD_CONST", ())  # for CALL_KW
    decoder.next = 10
    READERS[dis.opmap[opname]](decoder, 1)
    assert {i.op for i in decoder.out} <= CANONICAL | READ_WITH_OTHERS
    assert len(decoder.out) > 1 or opname in {*VERSION.REMOVED, "KW_NAMES", "CALL_KW", "CALL_FUNCTION_EX"}


def test_never_names_real_opcodes():
    assert set(VERSION.NEVER) <= set(dis.opmap)
    assert set(VERSION.REMOVED) <= set(dis.opmap)


def test_what_decode_gives_encode_takes():
    for opname in set(dis.opmap) - set(VERSION.NEVER) - set(VERSION.REMOVED):
        if opname in {"CACHE", "EXTENDED_ARG", "KW_NAMES", *READ_WITH_OTHERS}:
            continue
        decoder = Decoder(_sample())
        decoder.emit("LOAD_CONST", ())
        decoder.next = 10
        READERS[dis.opmap[opname]](decoder, 1)
        assert {i.op for i in decoder.out} <= set(WRITERS)


def test_tables_name_canonical_ops():
    assert set(WRITERS) <= CANONICAL
    assert set(REFUSED) <= CANONICAL


# ---------------------------------------------------------------------------------------------------
# Listings


def ops(fn):
    return [str(instr) for instr in decode(fn.__code__).instrs]


def test_call():
    def f(a):
        return g(a, k=1)  # noqa: F821

    name = ["PUSH_NULL", "LOAD_GLOBAL 'g'"] if NULL_FIRST else ["LOAD_GLOBAL 'g'", "PUSH_NULL"]
    assert ops(f) == [
        "RESUME 0", *name, "LOAD_FAST 'a'", "LOAD_CONST 1", "CALL (2, ('k',))", "RETURN_VALUE",
    ]


def test_method():
    def f(a, b):
        a.m(b)
        a.x = b.y

    assert ops(f)[1:-2] == [
        "LOAD_FAST 'a'", "LOAD_METHOD 'm'", "LOAD_FAST 'b'", "CALL (1, ())", "POP_TOP",
        "LOAD_FAST 'b'", "LOAD_ATTR 'y'", "LOAD_FAST 'a'", "STORE_ATTR 'x'",
    ]
    assert ops(f)[-2:] == ["LOAD_CONST None", "RETURN_VALUE"]


def test_for():
    def f(a):
        for x in a:
            a += x

    listing = ops(f)
    assert listing[:4] == ["RESUME 0", "LOAD_FAST 'a'", "GET_ITER", listing[3]]
    target = int(listing[3].removeprefix("FOR_ITER -> "))
    assert listing[4:9] == [
        "STORE_FAST 'x'", "LOAD_FAST 'a'", "LOAD_FAST 'x'", "BINARY_OP '+='", "STORE_FAST 'a'",
    ]
    assert listing[9] == "JUMP -> 3"
    assert target == 10
    assert [o for o in listing[10:] if o != "END_FOR"] == ["LOAD_CONST None", "RETURN_VALUE"]


def test_format():
    def f(a, b):
        return f"{a!r:5}{a!s}{a}{b:5}"

    convert = ["CONVERT_VALUE 2", "LOAD_CONST '5'"]
    if sys.version_info < (3, 13):
        convert = ["LOAD_CONST '5'", "SWAP 2", "CONVERT_VALUE 2", "SWAP 2"]
    assert ops(f)[1:-1] == [
        "LOAD_FAST 'a'", *convert, "FORMAT_WITH_SPEC",
        "LOAD_FAST 'a'", "CONVERT_VALUE 1", "FORMAT_SIMPLE",
        "LOAD_FAST 'a'", "FORMAT_SIMPLE",
        "LOAD_FAST 'b'", "LOAD_CONST '5'", "FORMAT_WITH_SPEC",
        "BUILD_STRING 4",
    ]


def test_operators():
    def f(a, b):
        a @= b
        return a < b, a is not b, a not in b, ~a, not a, +a, a[b], a ** b

    listing = ops(f)
    for op in ("BINARY_OP '@='", "COMPARE_OP '<'", "IS_OP True", "CONTAINS_OP True", "UNARY_INVERT",
               "UNARY_NOT", "CALL_INTRINSIC_1 'UNARY_POSITIVE'", "BINARY_SUBSCR", "BINARY_OP '**'"):
        assert op in listing


def test_closures():
    def f(a):
        b = 1
        return lambda: a + b

    listing = ops(f)
    assert listing[:3] == ["MAKE_CELL 'a'", "MAKE_CELL 'b'", "RESUME 0"]
    closure = listing.index("BUILD_TUPLE 2")
    assert sorted(listing[closure - 2 : closure]) == ["LOAD_CLOSURE 'a'", "LOAD_CLOSURE 'b'"]
    assert ops(f(1))[:2] == ["COPY_FREE_VARS 2", "RESUME 0"]
    assert "LOAD_DEREF 'a'" in ops(f(1))


def test_a_comprehension_variable_that_is_a_cell_outside():
    def f(y):
        x = 3
        return [(x,) for x in y], lambda: x

    loads = [i.op for i in decode(f.__code__).instrs if i.arg == "x" and i.op.startswith("LOAD_")]
    if sys.version_info >= (3, 12):
        assert loads == ["LOAD_FAST_AND_CLEAR", "LOAD_FAST", "LOAD_CLOSURE"]
    assert null_transform(f)([1, 2])[0] == [(1,), (2,)]
    assert null_transform(f)([1, 2])[1]() == 3


def test_send_keeps_the_receiver_for_end_send():
    def f(a):
        return (yield from a)

    listing = ops(f)
    target = int(next(o for o in listing if o.startswith("SEND")).removeprefix("SEND -> "))
    assert listing[target] == "END_SEND"
    assert sum(o == "END_SEND" for o in listing) == 1


def test_handlers():
    def f(a):
        try:
            a()
        except ValueError:
            return 1

    code = decode(f.__code__)
    call = next(i for i in code.instrs if i.op == "CALL")
    handler = code.handlers[call.handler]
    assert code.instrs[handler.target].op == "PUSH_EXC_INFO"
    assert (handler.depth, handler.lasti) == (0, False)
    assert code.instrs[0].handler == -1


def test_exception_table_is_that_of_dis():
    code = inspect.getmodule.__code__
    mine = [(s * 2, e * 2, t * 2, d, i)
            for s, e, t, d, i in parse_exception_table(code.co_exceptiontable)]
    theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
    assert mine == theirs
    assert mine


def test_jumps_are_those_of_dis():
    code = inspect.signature.__code__
    for fn in (inspect._signature_from_callable, inspect.getcallargs, traceback.walk_tb):
        code = fn.__code__
        lines = [code.instrs[i.target].pos for code in [decode(code)] for i in code.instrs
                 if i.target is not None]
        by_offset = {i.offset: i.positions for i in dis.get_instructions(code, show_caches=True)}
        jumps = [i for i in dis.get_instructions(code) if i.opcode in dis.hasjrel]
        assert lines == [tuple(by_offset[i.argval]) for i in jumps]


def test_positions():
    def f(a):
        return a.first(a.second + a.third)

    line = f.__code__.co_firstlineno + 1
    third = next(i for i in decode(f.__code__).instrs if i.arg == "third")
    source = "        return a.first(a.second + a.third)"
    start = source.index("a.third")
    assert third.pos == (line, line, start, start + len("a.third"))


def test_printing():
    def f(a):
        while a:
            a = None

    text = str(decode(f.__code__))
    assert "LOAD_CONST None" in text
    assert "-> " in text


def test_the_cache_goes_by_identity():
    source = "def f(a):\n    return a + 1\n"
    one, two = (compile(source, name, "exec").co_consts[0] for name in ("one", "two"))
    assert one == two or sys.version_info >= (3, 12)
    assert decode(one) is decode(one)
    assert decode(one).code is one
    assert decode(two).code is two


def test_the_cache_is_bounded(monkeypatch):
    module = sys.modules["sot.bytecode.decode"]
    monkeypatch.setattr(module, "CACHE_SIZE", 3)
    monkeypatch.setattr(module, "_cache", {})
    for n in range(10):
        decode(compile(f"x = {n}", "f", "exec"))
    assert len(module._cache) <= 3


@pytest.mark.slow
def test_many_constants_and_long_jumps():
    body = "\n".join(f"        x = x + {1000 + i} * y{i % 300}" for i in range(3000))
    names = ", ".join(f"y{i}=1" for i in range(300))
    source = f"def f(n, {names}):\n    x = 0\n    for _ in range(n):\n{body}\n    return x\n"
    space = {}
    exec(source, space)
    f = space["f"]
    g = null_transform(f)
    assert g(2) == f(2)
    assert len(g.__code__.co_code) == len(f.__code__.co_code)
