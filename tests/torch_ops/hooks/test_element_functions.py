"""``apply_`` and ``map_``, which call a function of the program for each element."""
import torch
from harness import Programs, check_by

captured, left = Programs(), Programs()


@captured
def on_copies(x):
    return x.clone().apply_(lambda v: v * 2 + 1), x.clone().map_(x, lambda a, b: a + b)


@captured
def seen_by_views_and_output(x):
    y = x * 2
    print(y)
    view, factor = y.view(-1), 3
    y.apply_(lambda v: v * factor)
    return y, view, y._version


@left
def with_an_effect(x):
    seen = []
    return x.clone().apply_(lambda v: seen.append(v) or 1), seen


@left
def on_an_argument(x):
    return x.apply_(lambda v: v + 1)


@left
def that_raises(x):
    y, k = x * 0, 3
    try:
        y.apply_(lambda v: k / v)
    except ZeroDivisionError as e:
        return str(e), y


@left
def that_raises_after_a_change(x):
    x.add_(1)
    try:
        return (x * 0).apply_(lambda v: 1 / v)
    except ZeroDivisionError as e:
        return str(e)


def x():
    return torch.arange(6.0).reshape(2, 3)


@captured.each
def test_quiet_functions_are_called_by_the_graph(fn):
    check_by("eager", fn, x(), breaks=0)
    check_by("aot_eager", fn, x())


@left.each
def test_others_are_called_by_python(fn):
    check_by("eager", fn, x())
