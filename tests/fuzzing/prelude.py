# ruff: noqa: F401
"""What every program of the fuzzer finds in its module: executed once for the plain and once for the translated one."""
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import io
import itertools
import logging
import math
import operator
import random
import sys
import time
import types
import warnings
import weakref
from typing import NamedTuple, TypedDict

import numpy
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.utils.checkpoint import checkpoint as run_checkpoint

import sot

LIMIT = 3
COUNT = 0
CACHE = {"k": 1}
STACK = [1, 2]
WEAK = weakref.WeakValueDictionary()
logger = logging.getLogger("fuzz")


class Custom(Exception):
    def __init__(self, number=0):
        super().__init__(number)
        self.number = number


class Kind(enum.Enum):
    A = 1
    B = 2


class Number(int):
    def __add__(self, other):
        return int(self) + other + 1


class Word(str):
    def loud(self):
        return self.upper() + "!"


class Items(list):
    def append(self, value):
        super().append(value)
        super().append(value)


class Level(enum.IntEnum):
    NONE = 0
    LOW = 1
    HIGH = 2


class Options(TypedDict, total=False):
    k: int
    m: int


class Described:
    def __get__(self, owner, kind=None):
        return len(vars(owner)) if owner is not None else 0


class Parted:
    part = Described()


described = Parted()


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        if function != torch.Tensor._backward_hooks.__set__:     # torch asks this when the object is freed
            COUNTS.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, kinds, args, kwargs or {})


COUNTS = []


class Point(NamedTuple):
    a: int
    b: object = None


@dataclasses.dataclass
class Pair:
    first: int
    second: list = dataclasses.field(default_factory=list)


class Base:
    made_count = 0

    def __init__(self, n):
        self.n = n
        self.items = [n]
        self.x = torch.ones(2)

    @classmethod
    def made(cls, n):
        cls.made_count += 1
        return cls(n)

    @staticmethod
    def keep(n):
        return n

    def total(self, n):
        return self.n + sum(self.items) + n

    def push(self, n):
        self.items.append(n)
        return self

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, n):
        self.items[i] = n

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        yield from self.items

    def __contains__(self, n):
        return n in self.items

    def __call__(self, n):
        return n + self.n

    def __eq__(self, other):
        return isinstance(other, Base) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __iadd__(self, n):
        self.n += n
        return self

    def __bool__(self):
        return self.n > 0

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"


class Loader:
    def __init__(self, items):
        self.items, self.at, self.epochs = items, 0, 0

    def over(self, items):
        self.items = items
        return self

    def __iter__(self):
        self.epochs += 1
        self.at = 0
        return self

    def __next__(self):
        if self.at >= min(len(self.items), 6):
            raise StopIteration
        self.at += 1
        return self.items[self.at - 1]


class Cursor:
    def __init__(self, items):
        self.items = [*items][:6]

    def __next__(self):
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


class Cursors:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        print("started")
        return Cursor(self.items)

    def __length_hint__(self):
        print("asked")
        return 2


class Odd:
    def __init__(self, answer):
        self.answer = answer

    def __answer(self, *others):
        return self.answer

    __len__ = __hash__ = __index__ = __int__ = __float__ = __complex__ = __str__ = __repr__ = __format__ = __answer
    __bool__ = __contains__ = __eq__ = __lt__ = __abs__ = __round__ = __answer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.seen += 1
        return torch.tanh(x * self.scale)

    def shifted(self, x):
        self.seen.add_(0.5)
        return x + self.seen


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 3 * x * grad


loader = Loader([1, 2, 3])
net = Net()
model = torch.nn.Sequential(torch.nn.Softplus(), net, torch.nn.Identity())
opt = torch.optim.SGD([net.scale], lr=0.1, momentum=0.5)
square = Square.apply


def segment(x):
    return torch.sin(x) * net.scale


def untagged(x):
    with torch._C.DisableTorchFunctionSubclass():
        return x + 1


def keyworded(n, *, extra=2):
    return n + extra


def defaulted(n, m=3):
    return n - m


def peek(name):
    """A variable of the caller, which must read it again: README allows that others are missing after a break."""
    return sys._getframe(1).f_locals.get(name)


def lineno():
    return sys._getframe(1).f_lineno


def checkpoint(x):
    return x * 2


def bump():
    global COUNT
    COUNT += 1
    return COUNT


def gen(n, start):
    for i in range(n):
        start = (yield start + i) or start


SPAN, CUT, MARKS = range(0, 3, 2), slice(0, 1), {1, 2}
PICK, CALLER, RECENT = operator.itemgetter(0), operator.methodcaller("upper"), collections.deque([1, 2], 3)
Kind.A.weight = 2
KEPT, kept_log = [], logging.Logger("kept")


class Keep(logging.Handler):
    def emit(self, record):
        KEPT.append(record.getMessage())


def gen_sum(values):
    return sum(v for v in values)


@functools.lru_cache(maxsize=4)
def cached(n):
    return n + 1


def packed(values):
    made = bytearray(b"a")
    for value in values:
        made.append(value)
    made[0] += 1
    return made


def logged(*parts):
    stream = io.StringIO("+", newline=None)
    stream.seek(0, 2)
    print(*parts, sep="|", file=stream)
    return stream.getvalue()


@contextlib.contextmanager
def manager(log, n):
    log.append("in")
    try:
        yield n
    except TypeError:
        log.append("swallowed")
    finally:
        log.append("out")


@types.coroutine
def paused(value):
    return (yield value)


async def paused_twice(x):
    x = x + len(str(await paused(1)))
    await paused(x)
    return x * 2


async def counted(n):
    for i in range(n):
        await paused(i)
        yield i


class Patient:
    def __init__(self, log):
        self.log = log

    async def __aenter__(self):
        self.log.append(await paused("enter"))
        return self

    async def __aexit__(self, kind, value, trace):
        self.log.append(await paused(kind and kind.__name__))


@sot.not_to_static
def opaque(value):
    return value


@sot.not_to_static
def append_to(items, n):
    items.append(n)


@sot.not_to_static
def poke(box):
    box.n += 1
    box.items.append(box.n)


@sot.not_to_static
def scale(x):
    with torch.no_grad():
        x.mul_(2)
