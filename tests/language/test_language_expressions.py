"""The Python language reference, chapter 6: expressions are captured exactly."""
from __future__ import annotations

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
