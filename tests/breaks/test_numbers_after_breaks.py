"""Floats that a statement computes before it breaks (a loss, a time) differ from call to call, and nothing is captured
again for that."""
import json
import math
import time

import pytest
import torch
from harness import Counter, same

import sot
from sot.support.errors import Reason


def graphs_of_calls(fn, *calls, **settings):
    """How many graphs there are after each call; the results are those of plain Python."""
    backend = Counter()
    translated = sot.to_static(fn, backend=backend, **settings)
    counts = []
    for args in calls:
        want, got = fn(*args), translated(*args)
        assert not same(got, want)
        counts.append(len(backend.graphs))
    return counts


def inputs(n):
    return [(torch.arange(4.0) + i,) for i in range(n)]


def test_a_loss_as_a_number():
    def fn(x):
        loss = (x * 2).sum().item()
        return x + loss, loss
    assert graphs_of_calls(fn, *inputs(4)) == [1, 1, 1, 1]
    assert graphs_of_calls(fn, *inputs(4), data_sizes="break") == [2, 2, 2, 2]


def test_a_number_that_is_kept_over_the_next_break():
    def fn(x):
        loss = (x * 2).sum().item()
        y = x + loss
        mean = y.mean().item()
        return y * mean, loss + mean, loss
    assert graphs_of_calls(fn, *inputs(4)) == [1, 1, 1, 1]
    assert graphs_of_calls(fn, *inputs(4), data_sizes="break") == [3, 3, 3, 3]


def test_a_time():
    def fn(x):
        start = time.perf_counter()
        y = x * 2
        took = time.perf_counter() - start
        return y + 1, took >= 0
    assert graphs_of_calls(fn, *inputs(4)) == [2, 2, 2, 2]


def test_a_sum_over_a_loop():
    def fn(x):
        total = 0.0
        for i in range(5):
            total += (x * i).sum().item()
        return x + total, total / 5
    counts = graphs_of_calls(fn, *inputs(4))
    assert counts[1:] == counts[:1] * 3


def test_a_branch_on_it_is_guarded_as_a_comparison():
    def fn(x):
        loss = x.sum().item()
        if loss > 10:
            return x + loss
        return x - loss
    assert graphs_of_calls(fn, *inputs(6))[-1] == 3     # the sum, and one a way


def test_what_needs_a_constant_gets_one():
    def fn(x):
        p = min(abs(x.sum().item()), 0.5)
        return torch.nn.functional.dropout(x, p, training=False) * p, {p: 1}[p], f"{p:.1f}"
    assert graphs_of_calls(fn, *inputs(3))[-1] <= 2


EXPRESSIONS = """
math.isfinite(loss)
math.isnan(loss) or math.isinf(loss)
f"{loss:.4f} {loss}"
"%.3f %s %d" % (loss, loss, loss)
"%5.1f" % loss
"{:.2f} {n}".format(loss, n=loss)
round(loss, 3), round(loss)
int(loss), math.floor(loss), loss // 2, loss % 2, divmod(loss, 2)
abs(loss) ** 2, -loss, 1 / (1 + loss * loss)
math.exp(-abs(loss)), math.log(abs(loss) + 1), math.sqrt(loss * loss), math.tanh(loss)
min(loss, 3.0), max(loss, 1.0), sum([loss, 2.0])
loss < 100, loss != loss, loss == 3.0, isinstance(loss, float)
torch.full((2,), loss), torch.pow(x, loss), x.clamp(max=loss), x > loss, x * loss
""".strip().splitlines()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_computed_from_it_is_computed_again(expression):
    scope = {"math": math, "torch": torch}
    exec(f"def fn(x):\n    loss = (x * 2).sum().item()\n    return x + 1, {expression}", scope)
    calls = [(torch.full((4,), value),) for value in (1.5, 2.25, 3.0, 1.125)]
    counts = graphs_of_calls(scope["fn"], *calls)
    assert counts[1:] == counts[:1] * 3


@pytest.mark.parametrize(("expression", "bad"), [
    ("1 / loss", 0.0), ("loss % loss", 0.0), ("math.sqrt(loss)", -1.0), ("math.log(loss)", 0.0),
    ("int(loss)", math.nan), ("round(loss)", math.inf), ("math.exp(loss)", 1e5), ("math.sin(loss)", math.inf),
    ("'%d' % loss", math.nan)])
def test_an_exception_that_only_another_number_raises(expression, bad):
    scope = {"math": math}
    exec(f"def fn(x, done):\n    loss = x.sum().item()\n    done.append(1)\n    return x + 1, {expression}", scope)
    translated = sot.to_static(scope["fn"], backend="eager")
    for value in (1.0, 2.0, bad):
        mine, theirs = [], []
        x = torch.tensor([value])
        try:
            want = scope["fn"](x, theirs)
        except (ArithmeticError, ValueError) as e:
            with pytest.raises(type(e)) as caught:
                translated(x, mine)
            assert caught.value.args == e.args
        else:
            assert not same(translated(x, mine), want)
        assert mine == theirs == [1]


def test_what_needs_the_value_breaks_once_it_has_differed():
    def fn(x):
        loss = x.sum().item()
        sot.graph_break()
        text = json.dumps({"loss": loss})
        return x + 1, text
    translated = sot.to_static(fn, backend="eager")
    for value in range(12):
        x = torch.full((2,), value + 0.5)
        assert not same(translated(x), fn(x))
    captures = sot.translation_of(translated).captures
    assert any(c.stopped is not None and c.stopped.reason is Reason.VARYING_NUMBER for c in captures)
    assert not any(c.fallback for c in captures) and len(captures) < 12
