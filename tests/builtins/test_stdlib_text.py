"""operator, math, string, re, and the methods of text and numbers, of constants."""

from __future__ import annotations

import binascii
import cmath
import functools
import math
import operator
import re
import string
import struct
import zlib

import pytest
import torch
from harness import caught, check

X = torch.arange(1.0, 4.0)


def operator_(x):
    return (
        operator.itemgetter(0, 2)([x, 1, 2]),
        operator.attrgetter("shape")(x),
        operator.methodcaller("sum", 0)(x),
        operator.mul(x, 2),
        operator.not_(0),
        operator.contains([1], 1),
        operator.index(3),
        operator.length_hint([1, 2]),
        operator.concat([1], [2]),
        operator.iadd([1], [2]),
    )


def math_(x):
    return (
        x * math.pi,
        math.gcd(12, 18),
        math.prod([1, 2, 3]),
        math.isclose(0.1 + 0.2, 0.3),
        math.ceil(1.2),
        math.fsum([0.1] * 10),
        math.comb(5, 2),
        math.hypot(3, 4),
        math.log2(8),
        math.inf,
        math.isnan(math.nan),
        math.sqrt(x.shape[0]),
        math.floor(-1.5),
        math.dist((0, 0), (3, 4)),
    )


def string_(x):
    return (
        string.ascii_letters[:3],
        string.Template("$a b").substitute(a=1),
        "a,b".split(","),
        " a ".strip(),
        "abc".translate(str.maketrans("a", "z")),
        "x".zfill(3),
        "ab".center(6, "*"),
        "Ab".swapcase(),
        "a-b".partition("-"),
        "abc".removeprefix("a"),
        b"ab".hex(),
        bytes([1, 2]),
        x + 1,
    )


def re_(x):
    m = re.match(r"(?P<n>\w+)\.(\d+)", "layer.12")
    return (
        x * int(m.group(2)),
        m["n"],
        m.groups(),
        m.span(),
        m.groupdict(),
        re.sub("a", lambda m: m.group().upper(), "banana"),
        re.findall(r"\d", "1a2"),
        [m.start() for m in re.finditer("a", "banana")],
        re.split("[,;]", "a,b;c"),
        re.compile("x").fullmatch("x") is not None,
    )


class Upper:
    def __call__(self, match):
        return match[0].upper()


def functions_for_matches(x):
    spans, either = [], re.compile(r"(\d)|y?")

    def noted(match):
        spans.append(match.span())
        return str(int(match[0]) + 1)
    return (
        x + 1, spans, re.sub(r"\d", noted, "a1b2c3"), re.sub(r"\d", noted, "a1b2", count=1),
        re.sub("a", noted, "banana", count=-1), either.subn(lambda match: f"<{match[0]}>", "1ay2y"),
        re.sub("a", lambda match: None, "banana"), re.sub("q", noted, "banana"), re.sub("[a-c]", Upper(), "banana"),
        re.sub("n", functools.partial(lambda before, match: before + match[0], "-"), "banana"),
        caught(re.sub, "a", lambda match: 3, "banana"), caught(re.sub, b"a", noted, "banana"),
    )


def str_methods(x):
    return (
        x + 1,
        "a%sb" % 1,
        "{:>5}|{:<5}|{:^5}".format(1, 2, 3),
        "abc"[::-1],
        "a,b".rsplit(",", 1),
        "AbC".casefold(),
        "a\tb".expandtabs(4),
        "x=1".partition("="),
        "abc".find("c"),
        "aaa".count("a"),
        " x".lstrip(),
        "12".isdigit(),
        "a b".title(),
        "é".encode(),
        b"x".decode(),
        "ab" * 2,
        "b" in "abc",
        ",".join(map(str, [1, 2])),
        "a\nb".splitlines(),
        chr(97),
        ord("a"),
        ascii("é"),
        "%05.1f" % 3.14159,
        "abc".endswith(("c", "d")),
        "a".ljust(3, "."),
        f"{3.14159:.2f}",
        f"{1000:,}",
        f"{5:b}",
        f"{'a'!r:>5}",
    )


def int_float(x):
    return (
        x + 1,
        (5).bit_length(),
        (3.5).is_integer(),
        float.fromhex("0x1p-1"),
        (2.5).as_integer_ratio(),
        int("ff", 16),
        int.from_bytes(b"\x01\x02", "big"),
        (258).to_bytes(2, "big"),
        7 // -2,
        -7 % 3,
        divmod(-7, 2),
        2**-1,
        1e300 * 1e10,
        round(2.5),
        round(-1.567, 2),
        abs(-3),
        complex(1, 2).conjugate(),
        bool([]),
        (5).__add__(2),
        0.1 + 0.2,
        3j**2,
        int(3.9),
        float("nan") != float("nan"),
    )


def list_methods(x):
    l = [3, 1, 2]
    l.sort(reverse=True)
    l.insert(1, 9)
    l.extend("ab")
    l.pop(0)
    l.remove("a")
    l[1:2] = [7, 7]
    l.reverse()
    m = l.copy()
    m.clear()
    return x * len(l), l, l.index(9), l.count(7), m, l * 2, [1] < [2], sorted([3, 1], key=lambda v: -v), l[-1], l[::2]


def dict_methods(x):
    d = dict(a=1, b=2)
    d.update(c=3)
    d.setdefault("d", 4)
    v = d.pop("a")
    k = d.popitem()
    e = d | {"z": 1}
    d |= {"y": 2}
    return (
        x * v,
        d,
        k,
        e,
        list(d.items()),
        d.get("q", 0),
        dict.fromkeys("ab", 0),
        list(reversed(d)),
        d.keys() & {"b"},
        "b" in d,
        d == {"b": 2, "c": 3, "y": 2},
        len(d),
        {**d},
        dict(zip("ab", [1, 2])),
    )


def set_methods(x):
    s = {1, 2}
    s.add(3)
    s.discard(1)
    s |= {5}
    t = s & {2, 5}
    return (
        x * len(s),
        s,
        t,
        s - t,
        s ^ {2},
        s >= t,
        frozenset(s),
        s.isdisjoint({9}),
        s.union([7]),
        sorted(s),
        {1, 2} == {2, 1},
        s.copy(),
    )


def bytes_(x):
    b = bytearray(b"ab")
    b.append(99)
    b[0] = 120
    return x + 1, bytes(b), b.decode(), memoryview(b)[1], b.find(b"c"), b"a" + b"b", b"abc"[1:], list(b"ab")


def packed_bytes(x):
    data = struct.pack("<if", 3, 0.5)
    number, part = struct.unpack("<if", data)
    return (x * number + part, struct.calcsize("<if"), struct.unpack_from("<f", data, 4), binascii.hexlify(data),
            binascii.unhexlify("616263"), binascii.b2a_base64(b"abc"), zlib.crc32(data), cmath.phase(1j),
            caught(struct.pack, "b", 300), caught(struct.unpack, "i", b"a"))


@pytest.mark.parametrize(
    "fn", [math_, packed_bytes, functions_for_matches, str_methods, int_float, list_methods, dict_methods, set_methods],
    ids=lambda fn: fn.__name__
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [operator_, string_, re_, bytes_], ids=lambda fn: fn.__name__)
def test_with_breaks(fn):
    check(fn, X, again=False)
