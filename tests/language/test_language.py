"""The Python language reference, chapters 7 and 8: simple and compound statements are captured exactly."""
from __future__ import annotations

import functools

import torch
from harness import Programs, caught, check

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


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
