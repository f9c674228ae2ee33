"""Numbers read off tensors: after the graph where that is soon enough, else with a break, and always Python's own."""
from __future__ import annotations

import collections
import dataclasses
import logging
import math

import numpy as np
import pytest
import torch
from harness import Calls, Counter, Programs, caught, check, outcome, same

import sot

one_graph, needed = Calls(), Programs()
X = torch.arange(12.).reshape(3, 4) - 3
WEIGHT = torch.ones(4, requires_grad=True)
NAN = torch.tensor(float("nan"))


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Meter:
    total: float = 0.0
    count: int = 0
    seen: list = dataclasses.field(default_factory=list)
    last: dict = dataclasses.field(default_factory=dict)

    def update(self, value, n):
        self.total += value * n
        self.count += n
        self.seen.append(value)
        self.last["value"] = value

    @property
    def mean(self):
        return self.total / self.count


@one_graph(X)
def returned(x):
    return x * 2, x.sum().item(), (x > 0).sum().item(), x.isnan().any().item()


@one_graph(X, WEIGHT)
def of_a_loss(x, w):
    loss = (x * w).pow(2).mean()
    return loss, loss.item(), {"loss": loss.item()}


@one_graph(X)
def before_a_change_in_place(x):
    total = x.sum()
    before = total.item()
    total.add_(1)
    return before, total.item(), total


@one_graph(X)
def of_an_input_that_is_changed(x):
    first = x[0, 0].item()
    x.mul_(2)
    return first, x[0, 0].item()


@one_graph(X, Meter())
def stored(x, meter):
    y = x * 2
    meter.update(y.mean().item(), x.shape[0])
    return y + 1


@one_graph(X)
def reckoned_with(x):
    a, n = x.mean().item(), (x > 0).sum().item()
    return (a + n, n - 2, n * 3 + 1, a * a, n / 12, 100 * n // 7, n % 5, -a, +n, abs(a), round(a, 2), round(n, 1),
            float(n), int(n), float(a), a - 1e30, n * a, (x > 0).any().item() + 1, 2 - a, a / x.shape[1])


@one_graph(X)
def printed(x):
    loss = x.mean().item()
    print("loss", loss, [loss, 1], {"a": loss})
    print(f"{loss:.3f} {loss} {loss!r} {x.max().item():08.2f}", "%.2f %5s" % (loss, loss), "%d" % (x > 0).sum().item())
    print("{:.1f} {}".format(loss, 3), str(loss) + "!", format(loss, ".2e"))
    x += 1
    print(x.mean().item())
    return x


@one_graph(X)
def as_a_list(x):
    rows = (x * 2).tolist()
    rows.append((x > 0)[0].tolist())
    return rows, rows[0], len(rows), [v for row in rows for v in row], x.sum().tolist()


@one_graph(X)
def in_containers(x):
    a = x.sum().item()
    pair = Pair(a, 1)
    kept = collections.deque([a], maxlen=2)
    kept.append(x.max().item())
    by_name = collections.defaultdict(list)
    by_name["a"].append(a)
    return pair, kept, by_name, {"x": a}.get("x"), a is a, a is None, isinstance(a, float), type(a), sum([a, a, 1.5])


@one_graph(X)
def in_a_short_loop(x):
    total = 0.0
    for row in x:
        total += row.sum().item()
    return total, total / len(x)


@one_graph(X)
def in_a_loop_that_does_little(x):
    return {f"{i}/{name}": f(x[i]).item() for i in range(3) for name, f in (("mean", torch.mean), ("sum", torch.sum))}


@one_graph(X.long(), X.bool())
def of_integers(x, mask):
    y = x.double()
    return int(y.round().long()[0, 0]), float(y.sum()), y.sum().long().item(), mask.sum().item()


@one_graph(X, [])
def as_arrays(x, kept):
    y = (x * 2).detach().cpu()
    kept.append(y.numpy())
    y.add_(1)
    x.mul_(2)
    return y, {"x": x.numpy()}, [row.bool().numpy() for row in x], kept[0] is kept[-1], isinstance(kept[0], np.ndarray)


@one_graph.each
def test_one_graph(fn, args):
    check(fn, *args, graphs=1, breaks=0)


@needed
def in_a_branch(x):
    total = x.sum().item()
    return (x + 1, total) if total > 3 else (x - 1, total)


@needed
def in_an_operation(x):
    return x * x.max().item(), torch.full((2,), x.min().item()), x + (x.mean().item() + 1)


@needed
def as_an_index(x):
    i = int(x.sum(1).argmax())
    return x[i], ["a", "b", "c"][i], x[:i], list("abc")[:i], {0: "a", 1: "b", 2: "c"}[i], i in (1, 2)


@needed
def as_a_count(x):
    n = int((x > 5).sum())
    return torch.zeros(n), [0] * n, "ab" * n, list(range(n)), divmod(n, 2), n ** 2, 1 << n


@needed
def compared(x):
    found = [row.sum().item() for row in x]
    return max(found), sorted(found, reverse=True), found == [1.0], found.index(found[1]), 3.0 in found, {found[0]: 1}


@needed
def beside_numbers_that_vary(x):
    a, b = x.mean().item(), (x > 2).sum().item()
    found = abs(a) + b ** 2
    return max(a, 3), max([a, b]), min((x.sum().item(), a)), math.prod([a, b, x.sum().item()]), found


@needed
def that_may_raise(x):
    return int(x.sum().item()), x.max().item() ** 0.5, 1 / x.sum().item(), round(x.sum().item()), x.sum().item().hex()


@needed
def in_text_of_other_kinds(x):
    n = (x > 0).sum().item()
    return f"{n:c}", "%c" % n, ascii(n), f"{n!r:>10}", f"{x.sum().item():{n}.2f}"


@needed
def arrays_that_are_looked_at(x):
    a, b = (x * 2).numpy(), x.numpy()
    print(a, b)
    b += 1
    x.add_(2)
    return -a, abs(a), f"{a}", a.sum(), a[0, 0], [float(v) for v in b[0]], torch.from_numpy(a) + x, a == b, round(a, 1)


@needed
def arrays_that_there_are_none_of(x):
    return caught(lambda: (x * WEIGHT).numpy()), caught(lambda: x.bfloat16().numpy()), caught(lambda: x.numpy(1))


@needed
def in_a_long_loop(x):
    total = 0.0
    for i in range(70):
        x = x * 1.01 + i
        total += x.sum().item()
    return x, total


def a_sum_of_what_fits_no_float(x, counts):
    counts[0] += (x > 0).sum().item()
    return counts[0], counts[0] / 2, x.sum().item() * counts[1]


@needed
def identical(x):
    a, b = x.sum().item(), x.sum().item()
    return a is b, a == b, not a, bool(b)


@needed.each
def test_needed_at_once(fn):
    check(fn, X)


@pytest.mark.parametrize("counts", [[3, 4], [1 << 2000, 5], [3, 1 << 2000]], ids=["small", "large", "huge"])
def test_ints_that_fit_no_float(counts):
    check(a_sum_of_what_fits_no_float, X, counts)


def test_readings_do_not_stretch_a_loop():
    translation = check(in_a_long_loop, X)
    assert max(c.graph.operations for c in translation.captures if c.graph) < 10


@pytest.mark.parametrize("x", [X, torch.zeros(0)], ids=["many", "none"])
def test_item_of_another_number_of_elements_raises_where_it_stands(x):
    def f(x, log):
        log.append(1)
        n = (x * 2).item()
        log.append(n)
        return n
    check(f, x, [])


def test_no_number():
    def f(x):
        n = (x * 2).item()
        return n, round(n, 2), n + 1, f"{n:.2f}", -n, n // 2, n % 3, abs(n)
    for value in ("nan", "inf", "-inf", "-0.0"):
        check(f, torch.tensor(float(value)), graphs=1, breaks=0)


def test_a_sum_that_grows_is_a_number_that_varies():
    meters = Meter(), Meter()
    backend = Counter()
    step = sot.to_static(stored, backend=backend)
    for i in range(6):
        want, got = outcome(stored, (X + i, meters[0]), {}), outcome(step, (X + i, meters[1]), {})
        assert not same(got.result, want.result) and meters[0] == meters[1]
    assert len(backend.graphs) == 1
    assert meters[0].mean == meters[1].mean


def test_what_is_logged(caplog):
    def f(x):
        logging.getLogger("later").warning("loss %.3f of %s", x.mean().item(), "x")
        return x + 1
    backend = Counter()
    translated = sot.to_static(f, backend=backend)
    translated(X)
    translated(X + 1)
    assert [r.getMessage() for r in caplog.records] == ["loss 2.500 of x", "loss 3.500 of x"]
    assert len(backend.graphs) == 1


def test_a_whole_graph_with_a_number_and_a_branch():
    def f(x):
        n = x.sum().item()
        y = x + 1 if (x > 0).all() else x - 1
        return y, n
    check(f, X)
    assert sot.to_static(f, full_graph=True)(X)[1] == X.sum().item()


def test_after_a_break():
    def f(x):
        n = x.sum().item()
        sot.graph_break()
        return x * n, n
    check(f, X, breaks=1)


def test_gradients_do_not_pass_through_what_is_read():
    w = torch.tensor([0.0, 2.0], requires_grad=True)

    def f(w):
        return (w * 3).sum(), w.sqrt().sum().item()     # the gradient of sqrt is infinite at 0
    check(f, w, graphs=1, breaks=0)


# ---- positions --------------------------------------------------------------------------------------------------
at_positions = Calls()
G = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()


@at_positions(G)
def an_element(x):
    y = x * 2
    i = y.sum(0).argmin()
    return y[:, i], y[0, i], y[i], y[..., i], y[None, i], y[[0, 2], i], y[i].stride()


@at_positions(X)
def a_view_that_is_changed(x):
    y = x[x.sum(1).argmax()]
    y.add_(1)
    return y, x


@at_positions(X, WEIGHT)
def written_to(x, w):
    i = x.sum(0).argmax()
    x[:, i] = 7.
    x[0, i] += 1
    y = x.clone()
    y[i - 3] = w
    return y


@at_positions(X)
def as_a_number(x):
    i, j = int(x.sum(0).argmax()), x.argmin().item()
    x[:, i] = 5.
    return x[:, i], x.flatten()[j], x[0, i], (i, j)


@at_positions.each
def test_positions_in_tensors(fn, args):
    check(fn, *args, graphs=1, breaks=0)


def negative(x):
    return x[-x.abs().argmax() // 4]


def out_of_range(x):
    return x[x.abs().argmax()]


def changed_since(x):
    i = x.abs().sum(0).argmax()
    n = int(i)
    i.zero_()
    return x[:, n], x[:, i], n


def where_it_lies(x):
    return x[x.sum(1).argmax()].storage_offset(), x[:, x.sum(0).argmax()].data_ptr() != x.data_ptr()


def out_of_range_after_a_change(x):
    x += 1
    try:
        return x[x.abs().argmax()]
    except IndexError as e:
        return str(e), x


@pytest.mark.parametrize("fn", [negative, out_of_range, changed_since, where_it_lies, out_of_range_after_a_change])
def test_positions_that_are_unusual(fn):
    check(fn, X + 0.5)


def test_a_backend_that_compiles_gets_what_is_around_a_position():
    def f(x):
        y = x * 2
        return y[:, y.sum(0).argmax()] + 1
    compiled = sot.to_static(f, backend=lambda gm, inputs: torch.compile(gm, backend="aot_eager"))
    for x in (X, -X):
        torch.testing.assert_close(compiled(x), f(x))
    assert [c.graph.operations for c in sot.translation_of(compiled).captures if c.graph] == [5]
