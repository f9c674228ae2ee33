"""contextlib, dataclasses, enum, copy, types, typing, inspect and abc."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import enum
import inspect
import types
import typing
import weakref
from dataclasses import dataclass, field

import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 4.0)


@contextlib.contextmanager
def cm(log, v):
    log.append("in")
    try:
        yield v * 2
    except ValueError as e:
        log.append(str(e))
    finally:
        log.append("out")


def contextmanager_(x):
    log = []
    with cm(log, x) as y:
        z = y + 1
    with cm(log, x):
        raise ValueError("boo")
    return z, log


def exitstack(x):
    log = []
    with contextlib.ExitStack() as s:
        a = s.enter_context(cm(log, x))
        s.callback(log.append, "cb")
        s.push(lambda *e: log.append(e[0]))
    return a, log


def suppress_(x):
    with contextlib.suppress(KeyError):
        {}["a"]
    with contextlib.nullcontext(5) as n:
        x = x + n
    return x


class Cl:
    def __init__(s, l):
        s.l = l

    def close(s):
        s.l.append("c")


def closing_(x):
    l = []
    with contextlib.closing(Cl(l)) as c:
        l.append("w")
    return x + len(l), l


class CD(contextlib.ContextDecorator):
    def __init__(s, l):
        s.l = l

    def __enter__(s):
        s.l.append(1)
        return s

    def __exit__(s, *e):
        s.l.append(2)
        return False


LOG = []


@CD(LOG)
def cdec(x):
    return x * 2


def contextdecorator(x):
    r = cdec(x)
    n = len(LOG) % 2
    return r, n


@dataclass
class DC:
    x: torch.Tensor
    n: int = 2
    l: list = field(default_factory=list)

    def __post_init__(s):
        s.l.append(s.n)


@dataclass(frozen=True, order=True, slots=True)
class DF:
    a: int
    b: str = "z"


@dataclass(kw_only=True)
class DK(DC):
    extra: float = 0.5
    iv: dataclasses.InitVar[int] = 3

    def __post_init__(s, iv):
        s.z = iv


def dataclass_(x):
    d = DC(x, 3)
    e = dataclasses.replace(d, n=4)
    return d.x * e.n, d.l, [f.name for f in dataclasses.fields(d)], dataclasses.is_dataclass(d)


def dataclass_frozen(x):
    a = DF(1)
    b = DF(2)
    try:
        a.a = 3
    except dataclasses.FrozenInstanceError as e:
        m = str(e)
    return x + b.a, a < b, hash(a) == hash(DF(1)), a == DF(1), repr(b), m, {a: 1}[DF(1)]


def dataclass_asdict(x):
    return dataclasses.asdict(DF(1)), dataclasses.astuple(DF(2, "q")), x + 1


def dataclass_asdict_tensor(x):
    return dataclasses.asdict(DC(x))


def dataclass_kw(x):
    d = DK(x=x, extra=1.5)
    return d.x * d.extra + d.z


def dataclass_local(x):
    @dataclass
    class L:
        v: int
        w: int = 2

    l = L(3)
    return x * l.v * l.w, repr(l)[-12:], l == L(3)


class Col(enum.Enum):
    R = 1
    G = 2

    @property
    def low(s):
        return s.name.lower()

    @classmethod
    def first(c):
        return list(c)[0]


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = A | B


class IE(enum.IntEnum):
    X = 3


class SE(str, enum.Enum):
    P = "p"


def enum_(x):
    return (
        x * Col.G.value,
        Col["R"] is Col.R,
        Col(2).name,
        Col.R.low,
        [c.name for c in Col],
        Col.first(),
        len(Col),
        Col.R in Col,
        x * IE.X,
        IE.X + 1,
        SE.P == "p",
        f"{SE.P.value}",
        {Col.R: 1}[Col.R],
    )


def flag_(x):
    f = Fl.A | Fl.B
    return x + 1, f is Fl.C, Fl.A in f, bool(f & Fl.B), (~Fl.A).name, f.value


def enum_error(x):
    try:
        Col(9)
    except ValueError as e:
        return x + 1, str(e)


def copy_(x):
    d = {"a": [x, 1], "b": (2, [3])}
    e = copy.copy(d)
    f = copy.deepcopy(d)
    f["a"][1] = 9
    e["a"].append(5)
    return d, e, f, f["a"][0] is d["a"][0]


class Cp:
    def __init__(s):
        s.v = [1]

    def __copy__(s):
        r = Cp()
        r.v = "copied"
        return r

    def __deepcopy__(s, memo):
        r = Cp()
        r.v = "deep"
        return r


def copy_hooks(x):
    c = Cp()
    return copy.copy(c).v, copy.deepcopy([c])[0].v, x + 1


class Ab(abc.ABC):
    @abc.abstractmethod
    def f(s): ...
    @property
    @abc.abstractmethod
    def g(s): ...


class Im(Ab):
    def f(s):
        return 1

    g = 2


def abc_(x):
    try:
        Ab()
    except TypeError as e:
        m = str(e)
    return x + Im().f(), isinstance(Im(), Ab), m, Im().g


class Proto(typing.Protocol):
    def f(self): ...


T = typing.TypeVar("T")


class Gen(typing.Generic[T]):
    def __init__(s, v: T):
        s.v = v


def typing_(x):
    g = Gen[int](3)
    o: typing.Optional[int] = None
    return x * g.v, typing.cast(int, 5), isinstance([], typing.Sequence), typing.get_args(typing.Union[int, str])


def inspect_(x):
    def f(a, b=2, *c, d, **e):
        pass

    s = inspect.signature(f)
    b = s.bind(1, d=3)
    b.apply_defaults()
    return (
        x + len(s.parameters),
        list(s.parameters),
        b.arguments,
        s.parameters["b"].default,
        inspect.isfunction(f),
        inspect.getfullargspec(f).args,
        callable(f),
    )


def inspect_what_has_no_signature(x):
    try:
        return x, inspect.signature(dict)
    except ValueError as e:
        return x + 1, str(e)


def types_(x):
    ns = types.SimpleNamespace(a=x, b=2)
    ns.c = 3
    mp = types.MappingProxyType({"a": 1})
    md = types.MethodType(lambda s, v: v * 2, 5)
    return ns.a * ns.b, vars(ns)["c"], mp["a"], md(3), isinstance(md, types.MethodType), types.new_class("Z").__name__


def dynamic_type(x):
    C = type("C", (object,), {"v": 3, "f": lambda s, y: y * s.v})
    return C().f(x), C.__name__


@pytest.mark.parametrize(
    "fn",
    [
        contextmanager_,
        exitstack,
        suppress_,
        closing_,
        dataclass_,
        dataclass_frozen,
        dataclass_asdict,
        dataclass_asdict_tensor,
        dataclass_kw,
        enum_,
        flag_,
        enum_error,
        copy_,
        abc_,
        typing_,
        inspect_what_has_no_signature,
    ],
    ids=lambda fn: fn.__name__,
)
def test_in_one_graph(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize(
    "fn", [contextdecorator, dataclass_local, copy_hooks, inspect_, types_, dynamic_type], ids=lambda fn: fn.__name__
)
def test_with_breaks(fn):
    check(fn, X, again=False)


# ---- weak keys
class Named:
    def __init__(self, factor) -> None:
        self.factor = factor


FIRST, SECOND = Named(2.0), Named(3.0)
FACTORS = weakref.WeakKeyDictionary({FIRST: 5.0, SECOND: 7.0})


def weak_keys(x):
    total = sum(named.factor * factor for named, factor in FACTORS.items())
    return (x * FACTORS[FIRST] + FACTORS.get(SECOND, 0) + total, len(FACTORS), FIRST in FACTORS,
            [named.factor for named in FACTORS])


def test_weak_keys_are_read_in_the_graph():
    check(weak_keys, torch.ones(2), graphs=1, breaks=0)


def test_entries_do_not_keep_a_weak_key_alive():
    held = [Named(1.0)]
    counts = weakref.WeakKeyDictionary()

    def count(x):
        counts[held[0]] = counts.get(held[0], 0) + 1
        return x * counts[held[0]]
    translated = sot.to_static(count, backend="eager")
    for wanted in (1, 2, 3):
        assert torch.equal(translated(torch.ones(2)), torch.ones(2) * wanted)
    held[0] = Named(2.0)
    assert len(counts) == 0
    assert torch.equal(translated(torch.ones(2)), torch.ones(2))
