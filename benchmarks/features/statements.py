"""Statements, pattern matching, imports and expressions of Python's language reference."""
from __future__ import annotations

import importlib
import math
import operator
import sys
from typing import NamedTuple

import torch

from .program import Group

# ---- statements ----
statements = Group("statements")


@statements
def for_and_else(x):
    for i in range(5):
        if i == 7:
            break
        if i % 2:
            continue
        x = x + i
    else:
        x = x * 2
    return x, i


@statements
def while_and_else(x):
    n = 3
    while n:
        x, n = x + n, n - 1
    else:
        x = -x
    return x


@statements
def unpacked_assignments(x):
    a, (b, *c), d = 1, [2, 3, 4], {"k": 5}
    first, *_, last = x
    a, b = b, a
    x[0, 1], n = 9.0, a
    return x * n, c, d, first + last


@statements
def assertions(x):
    assert x.ndim == 2, "a matrix"
    assert isinstance(x, torch.Tensor)
    return x * 2


@statements
def a_failing_assertion(x):
    try:
        assert x.shape[0] == 4, f"rows: {x.shape[0]}"
    except AssertionError as e:
        return x + 1, e.args


COUNT = 0


@statements
def globals_written(x):
    global COUNT
    COUNT += 1
    n = COUNT
    COUNT = 0
    return x * n, COUNT


@statements
def deletions(x):
    d, items = {"a": x, "b": 2}, [1, 2, 3, 4]
    y = d["a"] * 2
    del d["a"], items[1:3], x
    try:
        return y, d, items, x
    except UnboundLocalError as e:
        return y, d, items, type(e).__name__


@statements
def nested_loops_over_tensors(x):
    out = []
    for i, row in enumerate(x):
        for j, value in enumerate(row):
            if (i + j) % 2:
                out.append(value * i)
    return torch.stack(out)


@statements
def annotated_assignments(x):
    n: int = 2
    y: torch.Tensor
    y = x * n
    return y


@statements
def chained_assignments(x):
    a = b = x + 1
    a += 1
    return a, b, a is b


@statements
def a_try_with_finally(x):
    log = []
    for i in range(3):
        try:
            if i == 1:
                continue
            if i == 2:
                break
            log.append(i)
        finally:
            log.append(("done", i))
    return x * len(log), log


@statements
def executed_text(x):
    scope = {"x": x, "torch": torch}
    exec("y = torch.sin(x) * 2", scope)
    return scope["y"], eval("a + 1", {"a": 2})


@statements
def locals_read(x):
    n = 3
    names = sorted(locals())
    return x * n, names, "COUNT" in globals()


# ---- pattern matching ----
matching = Group("pattern matching")


class Point(NamedTuple):
    x: float
    y: float


class Shape:
    __match_args__ = ("kind", "size")

    def __init__(self, kind, size):
        self.kind, self.size = kind, size


@matching
def literals(x):
    match x.ndim:
        case 1:
            return x
        case 2 | 3:
            return x * 2
        case _:
            return -x


@matching
def sequences(x):
    match x.shape:
        case [n, 4] if n > 2:
            return x * n
        case (_, *rest):
            return x, rest


@matching
def mappings(x):
    match {"op": "scale", "by": 3, "more": 1}:
        case {"op": "shift", "by": k}:
            return x + k
        case {"op": "scale", "by": int(k), **rest}:
            return x * k, rest


@matching
def classes_matched(x):
    results = []
    for thing in (Shape("a", 2), Point(1.0, 2.0), 3, "text", [1, [2, 3]], None):
        match thing:
            case Shape("a", size=s):
                results.append(x * s)
            case Point(x=p, y=q):
                results.append(x + p + q)
            case int() | float() as n:
                results.append(n)
            case str(t):
                results.append(t.upper())
            case [a, [b, *_]]:
                results.append(a + b)
            case None:
                results.append("none")
    return results


@matching
def tensors_matched(x):
    match x:
        case torch.Tensor(ndim=2, dtype=torch.float32):
            return x.T
    return x


@matching
def values_of_names(x):
    match x.dtype:
        case torch.float64:
            return 1
        case torch.float32:
            return x * 32


@matching
def commands(x):
    out = []
    for command in ("go north", "drop a b", "quit"):
        match command.split():
            case ["go", direction]:
                out.append(direction)
            case ["drop", *things]:
                out.append(tuple(things))
            case [other]:
                out.append(other)
    return x * len(out), out


@matching
def nothing_matched(x):
    match x.shape[0]:
        case 5:
            x = x * 5
    return x + 1


# ---- imports ----
imports = Group("imports")


@imports
def imported_inside(x):
    import math as m
    from collections import deque

    import torch.nn.functional as F
    return F.relu(x) * m.pi, deque([1, 2], maxlen=1)


@imports
def imported_by_name(x):
    module = importlib.import_module("torch.nn.functional")
    return module.gelu(x), module.__name__


@imports
def imports_that_may_fail(x):
    try:
        import a_package_that_is_missing as fast
    except ImportError as e:
        fast = None
        name = e.name
    return x * 2 if fast is None else x, name


@imports
def modules_known(x):
    return x + 1, "torch" in sys.modules, sys.modules["math"].floor(2.5), "missing" in sys.modules


@imports
def imports_by_the_builtin(x):
    return __import__("torch").sin(x), __import__("os.path").__name__


@imports
def attributes_of_modules(x):
    return getattr(torch, "cos")(x), hasattr(math, "tau"), math.__name__, torch.nn.__package__


@imports
def names_from_modules(x):
    from torch.nn.functional import relu as activation
    from torch.nn.functional import softmax
    return softmax(activation(x), -1)


@imports
def specifications_found(x):
    have = importlib.util.find_spec("numpy") is not None
    return x * (2 if have else 3)


# ---- expressions ----
expressions = Group("expressions")


@expressions
def boolean_operators(x):
    a = None
    return (a or x) * 2, (x.ndim == 2 and x + 1), not a, x.shape[0] > 2 > 1, 1 if a else 0


@expressions
def named_expressions(x):
    if (n := x.shape[0]) > 2:
        x = x * n
    return x, [m := n + 1, m * 2], any((k := v) > 2 for v in (1, 2, 3)), k


@expressions
def formatted_strings(x):
    name, width = "x", 8
    return f"{name}={x.shape!s:>{width}} {x.ndim=} {3.14159:.2f} {name!r:^5} {1000:,}", x * 2


@expressions
def slices(x):
    part = slice(0, None, 2)
    items = list(range(6))
    return x[:, part], items[part], items[::-1], part.indices(5), x[1:2, ...], "text"[-2:]


@expressions
def arithmetic(x):
    return (
        x * (7 // 2 + 7 % 3 - 2 ** 3 + (-7 // 2)), 5 / 2, divmod(7, 2), 6 & 3 | 8 ^ 1, ~5, 1 << 4, round(2.567, 2), 1e3)


@expressions
def calls_of_all_kinds(x):
    def f(a, /, b, *rest, c=3, **more):
        return a + b, rest, c, more
    args, kwargs = (1, 2), {"c": 4, "z": 5}
    return f(x, 1), f(x, *args, **kwargs), f(x, *[2], *(3,), z=1, **{"y": 2})


@expressions
def wrong_calls(x):
    def f(a, b):
        return a
    try:
        f(x)
    except TypeError as e:
        return x * 2, str(e)


@expressions
def conditional_expressions(x):
    return (x if x.is_floating_point() else x.float()) * (2 if x.shape[0] > x.shape[1] else 3)


@expressions
def displays(x):
    d = {"a": x, **{"b": 2}, 3: [4]}
    return [*x, 1], {1, 2} | {3}, d, (*d,), {**d, "a": 0}


@expressions
def comparisons(x):
    return (
        x > 1, [1, 2] < [1, 3], "a" in "abc", 2 not in (1, 3), x is not None, {1} <= {1, 2}, x.shape == (3, 4),
        (1, "a") == (1, "a"))


@expressions
def matrix_operators(x):
    y = x @ x.T
    y @= y
    return y, operator.matmul(x, x.T), operator.itemgetter(1)(x), operator.attrgetter("T.shape")(x)


@expressions
def numbers_of_all_kinds(x):
    return (
        x * 0x10, 1_000, 3 + 4j, abs(3 + 4j), (2.5).is_integer(), (255).to_bytes(2, "big"), int("ff", 16), 0.1 + 0.2,
        hash(1.0))


@expressions
def text(x):
    words = "the quick fox".split()
    return (
        x * len(words), " ".join(w.title() for w in words), "a,b".partition(","), "%05.1f" % 2.25, "x".center(5, "-"),
        b"ab" + b"c", "été".encode().decode("utf-8"))
