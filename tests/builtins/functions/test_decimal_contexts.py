"""``decimal.localcontext``: numbers, text and flags are those of Python."""
import decimal
from decimal import Decimal as D

import pytest
import torch
from harness import Programs, check_by

import sot

captured, left = Programs(), Programs()


@captured
def a_precision(x):
    with decimal.localcontext() as context:
        context.prec = 4
        d = D(1) / D(3)
    return x * float(d), str(d)


@captured
def nested(x):
    with decimal.localcontext() as outer:
        outer.prec = 6
        u = D("1.5") * 3 + D(2) ** 3 - 1
        with decimal.localcontext() as inner:
            inner.prec, inner.rounding = 2, decimal.ROUND_UP
            v = u / 7
            same = decimal.getcontext() is inner
        r = u / 7
    return x + float(r), u, v, r, same, outer.prec, inner.rounding


@captured
def operations(x):
    with decimal.localcontext() as context:
        context.prec = 5
        r, v = D(10) / 7, D("NaN")
        found = (r == v, r in [1, r], f"{r:.2f} {r}", round(r, 1), int(r), sorted([r, D(0)]), max(r, D(1)), -r,
                 r.quantize(D("0.01")), D.from_float(0.5), D(2) == 2, hash(D(2)), {D(1): 2}[1], D(2).sqrt())
    return x + 1, found


@captured
def without_a_context(x):
    return x + 1, D(1) + D("2.50"), str(D("1e5")), D(7) // 2


@left
def a_break_inside(x):
    with decimal.localcontext() as context:
        context.prec = 3
        a = D(1) / 3
        sot.graph_break()
        b = D(2) / 3
    return x + 1, a, b


@left
def flags_of_the_thread(x):
    return x + 1, D(1) / D(3)


@left
def errors(x):
    found = []
    try:
        with decimal.localcontext():
            D(1) / D(0)
    except decimal.DivisionByZero as e:
        found.append(str(e))
    try:
        with decimal.localcontext() as context:
            context.prec = -1
    except ValueError as e:
        found.append(str(e))
    try:
        with decimal.localcontext():
            D("abc")
    except decimal.InvalidOperation as e:
        found.append(str(e))
    return x + 1, found


@left
def output_with_small_letters(x):
    with decimal.localcontext() as context:
        context.capitals = 0
        print(D("1e9"), D("1e9") + 1)
    return x + 1


def x():
    return torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def flags_as_before():
    before = decimal.getcontext().copy()
    yield
    decimal.setcontext(before)


@captured.each
def test_decimals_of_a_local_context_are_computed_at_capture(fn):
    check_by("eager", fn, x(), breaks=0)
    check_by("aot_eager", fn, x(), breaks=0)


@left.each
def test_what_the_thread_would_see_is_left_to_python(fn):
    check_by("eager", fn, x())


@pytest.mark.parametrize("fn", [*captured.all, *left.all], ids=lambda fn: fn.__name__)
def test_the_context_of_the_thread_is_as_python_leaves_it(fn):
    translated, states = sot.to_static(fn, backend="eager"), []
    for _ in range(3):
        for call in (fn, translated):
            decimal.getcontext().clear_flags()
            call(x())
            states.append(str(decimal.getcontext()))
    assert len(set(states)) == 1


def test_another_context_of_the_thread_is_another_capture():
    def third(x):
        with decimal.localcontext():
            return x + 1, D(1) / 3
    translated = sot.to_static(third, backend="eager")
    for precision in (4, 7, 4):
        decimal.getcontext().prec = precision
        assert translated(x())[1] == third(x())[1]
