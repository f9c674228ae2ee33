"""What text and numbers do is captured exactly, without a break."""
from __future__ import annotations

import collections
import importlib
import math
import re
import types
import typing

import numpy as np
import torch
from harness import Programs, check
from test_builtins_objects import Box
from torch import nn

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


# ---- text and numbers ---------------------------------------------------------------------------------------------
@program
def text(x):
    s = "Hello, World"
    return (s.upper(), s.split(", "), s.replace("l", "L"), s.find("W"), s[1:4], s[::-1], s * 2, "a" in s,
            s.startswith("He"),
            "-".join(["a", "b"]), "{} {k}".format(1, k=2), "%s %d %.2f" % ("a", 1, 2.5), f"{1.5:>8.2f}|{s!r}",
            s.partition(","),
            str(x.dtype), repr(x.shape), f"{tuple(x.shape)}", str([1, "a"]), repr({"a": (1,)}), str(None), ord("a"),
            chr(98),
            "abc".isalpha(), "1,2".split(","), " x ".strip(), "a\nb".splitlines(), b"ab".decode(), "ab".encode(),
            hex(255),
            re.sub(r"\d", "#", "a1b2"), re.match(r"(\w)(\d)", "a1").groups(), bool(re.search("z", "a")), str(x.device),
            str(Box(1)), f"{Box(2)}", [Box(3)].__repr__(), "%s" % Box(4), int("12"), float("1.5"), "x".join(map(str,
            [1, 2])),
            x + 1, str(1) + "a", "a" < "b", sorted("cab"), "a".zfill(3), format(3.14159, ".2f"), len(s), str(True))


@program
def arithmetic(x):
    return (7 // 2, -7 % 3, 2 ** 10, 7 / 2, 1 << 3, 5 & 3, 5 | 3, 5 ^ 3, ~5, -5, +5, 1 + 2j, math.sqrt(2),
            math.ceil(1.2),
            math.inf > 1, round(3.5), int(3.9), float(3), bool(0), complex(1, 2), (3).bit_length(), (2.5).is_integer(),
            math.gcd(4, 6), math.log2(8), max(1, 2.5), abs(-2.5), 3 == 3.0, True + 1, math.isclose(0.1 + 0.2, 0.3),
            1 < 2 < 3, x.shape[0] // 2, int(x.size(0) * 1.5), -x.dim(), x.numel() ** 2, divmod(-7, 3), x * 2,
            math.floor(-1.5), math.isnan(math.nan), int.from_bytes(b"\x01", "big"), 0.1 .hex(), slice(1, 5).indices(3))


@program
def torch_values(x):
    return (torch.finfo(x.dtype).max, torch.finfo(torch.float16).eps, torch.iinfo(torch.int8).min, torch.device("cpu"),
            x.device == torch.device("cpu"), x.dtype is torch.float32, x.dtype.is_floating_point, torch.Size([1,
            2]).numel(),
            torch.promote_types(torch.int8, x.dtype), len(x), x.size(), x.stride(), x.ndim, x.dtype.itemsize,
            torch.is_tensor(x), torch.is_floating_point(x), x.is_contiguous(), x.element_size(), x.new_zeros(2), x[0],
            x[-1:],
            x[None], x[..., 0], x[torch.tensor([0, 1])], x[[0, 2]], list(x), [*x], x.shape == (4,),
            x.shape == torch.Size([4]))


@program
def tensor_operators(x):
    y = x.clone()
    y += 1
    y *= 2
    y[0] = 5
    y[1:3] = x[:2]
    return (y, 1 - x, 2 / x, x ** 2, 2 ** x, x // 2, x % 2, x @ x, -x, abs(x), x > 2, (x > 1) & (x < 3), ~(x > 2),
            x == x,
            x != 1, 1 < x, pow(x, 2), x.T, x == None, x is None)  # noqa: E711


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.params = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.register_buffer("buf", torch.ones(4))
        self.config = types.SimpleNamespace(n=2)

    def forward(self, x):
        for layer in self.items[1:]:
            x = layer(x)
        for name, layer in self.table.items():
            x = layer(x) if name in self.table and name != "z" else x
        x = self.seq(x) + self.params[0] + self.buf * self.config.n
        x = self.items[-1](x) + self.seq[0](x)
        names = [n for n, _ in self.named_children()]
        return (x, len(self.items), len(self.seq), names, [n for n, _ in self.named_parameters()][:2],
                sum(p.numel() for p in self.parameters()), next(self.parameters()).dtype, self.training,
                [type(m).__name__ for m in self.modules()][:3], hasattr(self, "buf"), getattr(self, "nope", None))


def test_module_containers():
    torch.manual_seed(0)
    check(lambda m, x: m(x), Holder(), X, graphs=1, breaks=0)


@program
def namespaces(x):
    n = types.SimpleNamespace(a=1, b=x)
    n.c = n.a + 1
    c = collections.ChainMap({"a": 1}, {"b": 2})
    return n.c, n.b, vars(n), c["b"], list(c), len(c), "a" in c, x + 1


@program
def classes_hold_things(x):
    return Registry.table["k"], Registry.find("k"), Registry.names, len(Registry.table), x + 1


class Registry:
    table = {"k": 5}
    names = ("a", "b")

    @classmethod
    def find(cls, k):
        return cls.table.get(k)


class Cache:
    def __init__(self):
        self.key_cache, self.seen = [], 0

    def update(self, k, layer):
        if layer >= len(self.key_cache):
            self.key_cache.append(k)
        else:
            self.key_cache[layer] = torch.cat([self.key_cache[layer], k])
        self.seen += k.shape[0] if layer == 0 else 0
        return self.key_cache[layer]

    def __getitem__(self, i):
        return self.key_cache[i] if i < len(self.key_cache) else None

    def __iter__(self):
        for k in self.key_cache:
            yield k, "v"

    def __len__(self):
        return len(self.key_cache)


@program
def caches(x):
    c = Cache()
    for layer in range(2):
        c.update(x, layer)
        c.update(x + 1, layer)
    return c[0], c[5], len(c), list(c), c.seen, [k.shape for k, _ in c], bool(c)


class Typed(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, v):
        self.v = v


@program
def typing_things(x):
    return Typed[int](x).v, list[int], typing.cast(int, 1), typing.get_origin(list[int]), dict[str, int], isinstance(
        Typed(1), Typed), typing.Optional[int], x + 1


# ---- classes that libraries derive from them ----------------------------------------------------------------------
MOST = importlib.import_module("re._constants").MAXREPEAT       # of a class derived from int


@program
def a_number_of_the_library(x, most=MOST):
    return x + (most == 0), {most: 1}[MOST], most + 1, most > 5, f"{most:d}", "ab"[:most], torch.__version__ >= "2.0"


def test_text_of_numpy_that_is_given_is_no_guard():
    translated = sot.to_static(lambda x, name: (x * 2, str(name) + "!"), backend="eager")
    for _ in range(4):
        name = np.array(["a"])[0]
        assert translated(X, name)[1] == "a!"
    before = len(translated.captures)
    translated(X, np.array(["a"])[0])
    assert len(translated.captures) == before


@program
def products_of_iterators(x):
    sizes, tensors = {"a": 2, "b": x.shape[0]}, [x, x + 1]
    return (math.prod(sizes[name] for name in "abc" if name in sizes), math.prod((v for v in (2, 3)), start=0.5),
            math.prod(iter([])), math.prod(t for t in tensors), math.fsum(k / 10 for k in range(10)) + x.sum())


def test_the_product_of_numbers_that_vary():
    def split(x, **sizes):
        return x.reshape(math.prod(sizes[name] for name in ("a", "b") if name in sizes), -1)

    translated = sot.to_static(split, backend="eager")
    for a in (2, 4, 8):
        assert torch.equal(translated(torch.arange(16.0), a=a, b=2), split(torch.arange(16.0), a=a, b=2))
    assert [c.stopped for c in translated.captures] == [None, None]
