"""The Python language reference, chapter by chapter: expressions, statements and functions are captured exactly."""
from __future__ import annotations

import functools

import pytest
import torch
from harness import check

X = torch.arange(1.0, 5.0)
PROGRAMS: list = []
WITH_BREAKS: list = []


def program(fn):
    """A function of a tensor that is captured as one graph."""
    PROGRAMS.append(fn)
    return fn


def with_breaks(fn):
    """A function of a tensor that is captured in pieces."""
    WITH_BREAKS.append(fn)
    return fn


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", WITH_BREAKS, ids=lambda f: f.__name__)
def test_is_right_with_breaks(fn):
    check(fn, X)


def caught(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e).__name__, str(e)


class Truth:
    """Says what it is asked, and answers by its flag."""

    def __init__(self, log, flag):
        self.log, self.flag = log, flag

    def __bool__(self):
        self.log.append(("bool", self.flag))
        return self.flag


class Length:
    def __init__(self, log, n):
        self.log, self.n = log, n

    def __len__(self):
        self.log.append(("len", self.n))
        return self.n


class Answers:
    """Its comparisons answer with objects that are not bools."""

    def __init__(self, log, flag):
        self.log, self.flag = log, flag

    def __lt__(self, other):
        return Truth(self.log, self.flag)

    def __contains__(self, item):
        return Length(self.log, int(self.flag))


# ---- expressions: truth ---------------------------------------------------------------------------------------------
@program
def chained_comparisons(x):
    log = []

    def say(v):
        log.append(v)
        return v
    a = say(1) < say(2) < say(3)
    b = say(3) < say(2) < say(1)
    c = say(1) == say(1) != say(2) is not say(None)
    d = say(1) in [say(1)] in [[1]]
    return a, b, c, d, log, x + 1


@program
def chained_comparisons_of_objects(x):
    log = []
    yes, no = Answers(log, True), Answers(log, False)
    a = (yes < no < yes) is not None
    b = no < yes < no
    return a, b.flag, log, x + 1


@program
def and_or_not(x):
    log = []

    def say(v):
        log.append(v)
        return v
    return (say(0) and say(1), say(1) and say(2), say(0) or say([]), say(3) or say(4), not say([]), not say([0]),
            say(1) and say(0) or say(5), (say(None) or say("")) and say(6), log, x * 2)


@program
def and_or_of_objects(x):
    log = []
    yes, no = Truth(log, True), Truth(log, False)
    full, empty = Length(log, 2), Length(log, 0)
    return ((yes and 1), (no and 1) is no, (yes or 1) is yes, (no or 1), (full and 2), (empty and 2) is empty,
            (full or 2) is full, (empty or 2), (yes and no and 3) is no, (no or empty or 4), not yes, not empty,
            [1 if full else 2, 1 if empty else 2], log, x + 1)


@program
def and_or_keep_what_is_below(x):
    log = []
    no, yes = Truth(log, False), Truth(log, True)
    return [1, (no or yes) is yes, {"k": (yes and no) is no, "l": (no and yes) is no}], f"{(no or 5) + 1}", log, x + 1


@program
def truth_in_statements(x):
    log = []
    n = 0
    left = [Truth(log, True), Length(log, 1), Length(log, 0), Truth(log, True)]
    while left.pop(0):
        n += 1
    if not Truth(log, False):
        n += 10
    if Length(log, 0):
        n += 100
    elif Truth(log, True) and not Length(log, 0):
        n += 1000
    assert Truth(log, True), "unused"
    kept = [v for v in range(4) if Truth(log, v % 2 == 0)]
    return n, kept, log, x + 1


@program
def bad_truth(x):
    class_ = BadTruth()
    return (caught(lambda: bool(class_)), caught(lambda: 1 if class_ else 2), caught(lambda: class_ and 1),
            caught(lambda: not class_), caught(lambda: bool(Length([], -1))), x + 1)


class BadTruth:
    def __bool__(self):
        return 1


@program
def membership_answers_with_a_bool(x):
    log = []
    return 1 in Answers(log, True), 1 in Answers(log, False), 1 not in Answers(log, True), log, x + 1


# ---- expressions: the rest ------------------------------------------------------------------------------------------
@program
def conditional_walrus_lambda(x):
    y = (n := 3) + n
    found = [m for v in range(5) if (m := v * v) > 3]
    f = lambda a, /, b=n, *c, d=4, **e: (a, b, c, d, e)  # noqa: E731
    g = (lambda: (yield 1))
    return (y, found, m, f(1), f(1, 2, 3, d=5, z=6), (lambda: lambda v: v + n)()(2), list(g()),
            "a" if n > 2 else "b", ("p" if n < 2 else "q") if y else "r", x * n)


@program
def star_expressions(x):
    a, t, d = [1, 2], (3,), {"k": 4}
    return ([*a, *t, *"xy"], (*a, 0, *t), {*a, *t}, {**d, "k": 5, **{"m": 6}}, [*range(3), *{}.values()],
            {**{"a": 1}, **{"a": 2}}, [*(v * 2 for v in a)], (*x.shape, *[]), [*{"p": 1, "q": 2}.items()], x + 1)


@program
def slices(x):
    a = list(range(10))
    s = slice(1, None, 3)
    a[2:4] = "xyz"
    a[::5] = [0, 0, 0]
    b = a[:]
    del b[1:3], b[-1]
    return (a, b, a[-3:], a[::-2], a[s], a[s.start:s.stop], x[1:3], x[::2], x[..., 1:], x[None, :2], "hello"[1:-1],
            (1, 2, 3)[::-1], Keyed()[1:2, ..., ::3], Keyed()[()], Keyed()[1,], Keyed()[None:])


class Keyed:
    def __getitem__(self, key):
        return key


@program
def f_strings(x):
    v, w, width, name = 3.14159, "text", 10, "n"
    return (f"{v:.2f}", f"{v:{width}.{1 + 1}f}|", f"{w!r:>{width}}", f"{w=}", f"{v=:.1f}", f"{w!s}{w!a}", f"{{}}{1}",
            f"{'nested ' + f'{v:{width}}'}", f"{v = !r}", f"{x.shape[0]:03d}", f"{[n for n in range(3)]}",
            f"{name:*^{width}}", f"{1 if w else 2}", f"{(lambda: 5)()}", f"{1_000_000:,}", f"{Formatted():spec}",
            f"{Formatted()}", f"{Formatted()!r}", x + 1)


class Formatted:
    def __format__(self, spec):
        return f"<{spec}>"

    def __repr__(self):
        return "repr"


@program
def comprehensions(x):
    table = {"a": [1, 2], "b": [3]}
    n = 10
    return ([v + n for vs in table.values() for v in vs if v != 2], {k: {v: [v] * v for v in vs} for k, vs in
            table.items()}, {v % 2 for v in range(5)}, [[i * j for j in range(i)] for i in range(4) if i if i != 2],
            [(i, j) for i in range(3) for j in range(i, 3)], [n for n in range(2)], n, [f(1) for f in
            [lambda v, k=k: v + k for k in range(3)]], [f() for f in [lambda: k for k in range(3)]],
            sum(v for v in range(4) if v), {**{k: v for k, v in zip("ab", range(2))}}, [x + k for k in range(2)])


@program
def comprehensions_shadow(x):
    v, w = "outer", "free"
    a = [v for v in range(3)]
    b = [(lambda: v)() for v in range(2)]
    c = {v: w for v in "p"}
    c = [[v for v in range(v)] for v in range(3)]
    del w
    d = [w for w in range(2)]
    return v, a, b, c, d, caught(lambda: w), x + 1  # noqa: F821


@program
def comprehension_in_a_condition(x):
    if any(v > 2 for v in [1, 2, 3]) and not all([v for v in (0, 1)]):
        x = x + 1
    return x, [y for y in (x, x * 2)][1], max((v for v in [3, 1]), default=0)


@program
def operators_on_numbers(x):
    a, b = 7, 3
    a1, a2, a3, a4 = a // b, a % -b, -a ** 2, divmod(-a, b)
    return (a1, a2, a3, a4, a / b, a << b, a >> 1, a & b, a | 8, a ^ b, ~a, +a, -a, a @ Matrix(2), Matrix(3) @ a,
            2 ** -1, 10 ** 20, 1e3, 1j * 1j, 0x1F, True + True, "a" * 3, [0] * 2, x @ x)


class Matrix:
    def __init__(self, n):
        self.n = n

    def __matmul__(self, other):
        return ("matmul", self.n, other)

    def __rmatmul__(self, other):
        return ("rmatmul", self.n, other)


@program
def order_of_evaluation(x):
    log = []

    def say(v, result=None):
        log.append(v)
        return result if result is not None else v
    table = {}
    say(1, table)[say(2)] = say(3)
    a = [say(4), say(5)][say(6, 1)] + say(7) * say(8)
    say(9, max)(say(10), *[say(11)], key=say(12, abs), **{"default": 1} if False else {})
    b = {say(13): say(14), say(15): say(16)}
    c = say(17, 0) if say(18, 1) else say(19)
    table[say(20)], table[say(21)] = say(22), say(23)
    return log, table, a, b, c, x + 1


# ---- simple statements ----------------------------------------------------------------------------------------------
@program
def assignment_targets(x):
    a = b = [1]
    (c, d), [e, *f] = (2, 3), "xyz"
    g, = [4]
    *h, i = range(3)
    j, (k, *m), n = 1, (2, 3, 4), 5
    box = Box()
    box.v, box.table = 6, {}
    box.table["k"], (box.w, box.z) = 7, (8, 9)
    items = [0, 0]
    at = 0
    at, items[at] = 1, "moved"
    c, d = d, c
    return a is b, c, d, e, f, g, h, i, j, k, m, n, vars(box), items, at, x + 1


class Box:
    pass


@program
def wrong_unpacking(x):
    def two(v):
        a, b = v
        return a, b

    def more(v):
        a, *b, c = v
        return a, b, c
    return (caught(two, [1]), caught(two, (1, 2, 3)), caught(two, 5), caught(more, [1]), caught(more, None),
            caught(two, {1: 2, 3: 4}), caught(two, "ab"), caught(more, range(4)), caught(two, (v for v in (1, 2))),
            caught(two, iter([1, 2, 3])), caught(two, Unpacks(2)), caught(two, Unpacks(3)), caught(more, Unpacks(4)),
            x + 1)


class Unpacks:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from range(self.n)


class OtherList(list):
    def __iter__(self):
        return iter(["list", "override"])


class OtherTuple(tuple):
    def __iter__(self):
        return iter(("tuple", "override"))


class OtherDict(dict):
    def __iter__(self):
        return iter(["dict", "override"])

    def keys(self):
        return ["p"]

    def __getitem__(self, key):
        return "value of " + key


@program
def overridden_iter_is_asked(x):
    def collect(*args, **kwargs):
        return args, kwargs
    results = []
    for v in OtherList([1, 2, 3]), OtherTuple((1, 2, 3)), OtherDict(k=1, m=2, n=3):
        a, b = v
        c, *d = v
        e = [0, *v]
        f = {*v} == set(v)
        results += [a, b, c, d, e, f, collect(*v), collect(1, *v, 2), (*v,), [w for w in v], list(v), tuple(v)]
    return results, x + 1


@program
def an_unpacked_iterator_keeps_its_rest(x):
    it = iter([1, 2, 3, 4, 5])
    try:
        a, b = it
    except ValueError:
        rest = list(it)
    gen = (v for v in range(5))
    try:
        a, b = gen
    except ValueError:
        more = list(gen)
    return rest, more, x + 1


@program
def augmented_assignment(x):
    box, table, log = Box(), {"a": [1]}, []
    box.n, box.items = 1, [1]
    alias = box.items
    box.n += 2
    box.items += [2]
    table["a"] += (3,)
    table["b"] = 1
    table["b"] <<= 3

    def index():
        log.append("index")
        return 0
    items = [1, 2]
    items[index()] *= 5
    i = InPlace()
    kept = i
    i += 1
    i -= 1
    t = (1,)
    t += (2,)
    s = {1}
    s |= {2}
    x = x + 0
    y = x
    y += 1
    y **= 2
    return box.n, alias, table, items, log, i, kept.log, t, s, y, x


class InPlace:
    def __init__(self):
        self.log = []

    def __iadd__(self, other):
        self.log.append(("iadd", other))
        return self

    def __sub__(self, other):
        return "sub"


@program
def del_statements(x):
    box, table, items = Box(), {"a": 1, "b": 2}, [1, 2, 3, 4]
    box.a = box.b = 1
    a, b = 1, 2
    del a, (b)
    del box.a, table["a"], items[0], items[1:]
    found = []
    for read in (lambda: box.a, lambda: table["a"], lambda: a):  # noqa: F821
        found.append(caught(read))
    return found, vars(box), table, items, x + 1


GLOBAL = 0
TABLE = {"n": 0}


def test_globals_are_written():
    def f(x):
        global GLOBAL, MADE
        GLOBAL += 1
        MADE = [GLOBAL, x.shape[0]]
        TABLE["n"] += 1
        y = x + GLOBAL
        del MADE
        return y, caught(lambda: MADE), GLOBAL, dict(TABLE)  # noqa: F821

    def reset(fn):
        @functools.wraps(fn)
        def run(x):
            global GLOBAL
            GLOBAL, TABLE["n"] = 0, 0
            return fn(x), GLOBAL, TABLE["n"]
        return run
    check(reset(f), X, graphs=1, breaks=0)


def test_module_attributes_are_written():
    import types
    module = types.ModuleType("made_up")
    module.n = 0

    def f(x):
        module.n += 1
        module.other = x * 2
        return module.n, x + 1
    want, got = [], []
    import sot
    translated = sot.to_static(f, backend="eager")
    for fn, results in (f, want), (translated, got):
        module.n = 0
        for _ in range(3):
            n, y = fn(X)
            results.append((n, module.n, y.tolist(), module.other.tolist()))
    assert got == want


@program
def nonlocal_and_global(x):
    n = 0

    def bump():
        nonlocal n
        n += 1

        def deeper():
            nonlocal n
            n *= 10
            return n
        return deeper
    deeper = bump()
    deeper()
    bump()

    def drop():
        nonlocal n
        del n
    seen = n
    drop()
    return seen, caught(lambda: n), caught(deeper), x + 1


@program
def assertions(x):
    def f(v):
        assert v, f"no {v}"
        assert v > 1
        return v
    return caught(f, 0), caught(f, 1), f(2), x + 1


@program
def annotations(x):
    n: int = 1
    m: undefined  # noqa: F821, F842
    box = Box()
    box.v: int = 2
    return n, box.v, x + 1


# ---- compound statements --------------------------------------------------------------------------------------------
@program
def for_else_and_while_else(x):
    log = []
    for i in range(3):
        if i == 5:
            break
    else:
        log.append("for ended")
    for i in range(3):
        if i == 1:
            break
    else:
        log.append("never")
    n = 0
    while n < 3:
        n += 1
        if n == 2:
            continue
        log.append(n)
    else:
        log.append("while ended")
    while True:
        n -= 1
        if not n:
            break
    else:
        log.append("never")
    for i in []:
        pass
    else:
        log.append(i)
    return log, i, n, x + 1


@program
def loop_targets(x):
    log, box, table = [], Box(), {}
    for box.v in range(2):
        log.append(box.v)
    for table["k"] in "ab":
        log.append(table["k"])
    for a, (b, *c) in [(1, (2, 3, 4)), (5, (6,))]:
        log.append((a, b, c))
    for log[0] in "z":
        pass
    return log, vars(box), table, x + 1


@program
def nested_loops(x):
    log = []
    for i in range(4):
        for j in range(4):
            if j > i:
                break
            if (i + j) % 2:
                continue
            log.append((i, j))
        else:
            log.append("full")
            continue
        if i == 2:
            break
    return log, x + i


@program
def mutation_while_iterating(x):
    a = [1, 2, 3, 4]
    seen = []
    for v in a:
        seen.append(v)
        if v < 3:
            a.append(v + 10)
        if v == 2:
            a.remove(1)
    d = {"a": 1, "b": 2}
    for k in d:
        d[k] += 1

    def grow():
        for k in d:
            d[k + "x"] = 0

    def shrink():
        for k, _ in d.items():
            del d[k]
    b = [1, 2, 3]
    it = iter(b)
    next(it)
    b.clear()
    return a, seen, dict(d), caught(grow), caught(shrink), d, list(it), x + 1


def matched(v):  # noqa: PLR0911
    match v:
        case 0 | 1 | None:
            return "literal", v
        case -1 | 2.5 | "text" | b"bytes" | 1j:
            return "other literal", v
        case True:
            return "never"
        case [] | ():
            return "empty"
        case [1, (2 | 3) as second, *rest] if len(rest) < 3:
            return "sequence", second, rest
        case [first, *_, last]:
            return "ends", first, last
        case {"kind": "a", "value": value, **others}:
            return "mapping", value, others
        case {"kind": str(kind)}:
            return "kind", kind
        case Pair(1, y=y):
            return "one and", y
        case Pair(x=Pair(a, b), y=[*_]):
            return "nested", a, b
        case Pair():
            return "pair"
        case int(n) | float(n) if n > 10:
            return "big", n
        case str() as s:
            return "string", s
        case Colour.RED | Colour.GREEN:
            return "value", v
        case (only,):
            return "one", only
        case x:
            return "any", x


class Pair:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Colour:
    RED, GREEN = ("red",), ("green",)


@program
def match_statement(x):
    return ([matched(v) for v in (0, 1, None, -1, 2.5, "text", b"bytes", 1j, True, [], (), [1, 2], (1, 3, 4, 5),
             [1, 2, 3, 4, 5, 6], [7, 8], {"kind": "a", "value": 1, "z": 2}, {"kind": "b"}, {"kind": 3}, Pair(1, 2),
             Pair(Pair(3, 4), [5]), Pair(0, 0), 11, 12.5, "other", [9], {1}, range(3), {})],
            x + 1)


@program
def match_errors_and_fallthrough(x):
    def wrong(v):
        match v:
            case Pair(1, 2, 3):
                return "three"
        return "none"

    def no_args(v):
        match v:
            case Box(1):
                return "one"

    def missing(v):
        match v:
            case Box(q=1):
                return "one"
            case {"a": _, "b": 2}:
                return "keys"
    return (caught(wrong, Pair(1, 2)), wrong(3), caught(no_args, Box()), missing(Box()), missing({"a": 1}),
            missing({"a": 1, "b": 2}), x + 1)


# ---- the same across breaks -----------------------------------------------------------------------------------------
@with_breaks
def expressions_break(x):
    def f(*a, **k):
        return a, k
    y = 5
    z = [[y + float(x.sum()) for y in range(2)] for _ in range(2)]
    w = {k: float(x[k]) for k in range(2)}, {float(x[k]) for k in range(2)}
    u = [(lambda q=q: q)() for q in range(2) if x.sum() > q]
    return (y, z, w, u, (n := float(x.sum())), n + 1, x.sum() > n - 1 and n, 0 < float(x[0]) < float(x[1]) < n,
            f(*[n], *(1, float(x[0])), k=float(x[1]), **{"l": float(x[2])}), [*x.tolist(), *range(2)])


@with_breaks
def statements_break(x):
    d, box, items = {"a": [1]}, Box(), [1, 2]
    box.v = 1
    d["a"] += [float(x.sum())]
    box.v += float(x.sum())
    items[int(x[0])] *= float(x.sum())
    items[0:1] = x.tolist()
    match {"k": float(x.sum()), "l": [1, 2, 3]}:
        case {"k": float(n), "l": [a, *rest], **kw} if x.sum() > n - 1:
            del items[int(n) % 2]
    return d, vars(box), items, n, a, rest, kw, x + 1
