"""Anomaly mode inside of captured functions."""
import warnings

import pytest
import torch
from harness import Programs, check_by, outcome, same
from torch.autograd import detect_anomaly, set_detect_anomaly

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()
pytestmark = pytest.mark.filterwarnings("ignore:Anomaly")


@whole
def around_a_pass(x):
    with detect_anomaly(check_nan=False):
        (x.sqrt() * 2).sum().backward()
    return torch.is_anomaly_enabled(), x.grad[1]


@whole
def looks_for_nan(x):
    with detect_anomaly():
        y = ((x + 1).sqrt() * 2).sum()
        inside = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        y.backward()
    return inside, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(), x.grad, y.detach()


@whole
def switches(x):
    set_detect_anomaly(True, check_nan=False)
    first = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with set_detect_anomaly(False):
        second = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        y = x.detach() * 2
    third = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    set_detect_anomaly(False)
    return first, second, third, torch.is_anomaly_check_nan_enabled(), y


@whole
def leaves_it_on(x):
    set_detect_anomaly(True)
    return x.detach() + 1, torch.is_anomaly_enabled()


@parts
def finds_nan(x):
    with detect_anomaly():
        (x.sqrt() * 0).sum().backward()
    return x.grad


@parts
def catches_nan(x):
    try:
        with detect_anomaly():
            (x.sqrt() * 0).sum().backward()
    except RuntimeError as e:
        return str(e), torch.is_anomaly_enabled(), x.grad


@parts
def a_history_from_inside(x):
    with detect_anomaly():
        y = x.sqrt()
    return y * 2, torch.is_anomaly_enabled()


@parts
def breaks_inside(x):
    with detect_anomaly(check_nan=False):
        y = x.sqrt().sum()
        sot.graph_break()
        y.backward()
    return x.grad, torch.is_anomaly_enabled()


@parts
def raises_inside(x):
    with detect_anomaly():
        y = (x.detach() + 1)[torch.tensor(7)]
    return y


@pytest.fixture(autouse=True)
def off_again():
    yield
    assert not torch.is_anomaly_enabled()


def restoring(fn):
    def run(x):
        try:
            return fn(x)
        finally:
            torch.set_anomaly_enabled(False)
    return run


def compare(fn, backend, breaks=None):
    translated = sot.to_static(fn, backend=backend)
    for call in range(3):
        said = []
        results = []
        for each in (fn, translated):
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                results.append(outcome(restoring(each), (X.clone().requires_grad_(),), {}))
            said.append([(str(w.message).partition("/")[0], w.filename, w.lineno) for w in log])
        want, got = results
        for name in ("raised", "result", "args", "grads"):
            assert same(getattr(got, name), getattr(want, name), name) is None, name
        assert said[0] == said[1]
        stops = [str(c.stopped) for c in sot.translation_of(translated).captures if c.stopped is not None]
        assert call or breaks is None or len(stops) == breaks, stops


@whole.each
def test_is_one_graph(fn):
    compare(fn, "eager", breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    compare(fn, "eager")


NAMING_NODES = finds_nan, catches_nan       # a compiled graph is one node


@pytest.mark.parametrize("fn", [*whole.all, *(fn for fn in parts.all if fn not in NAMING_NODES)],
                         ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    compare(fn, "aot_eager")


def test_it_was_on_before():
    def asks(x):
        with detect_anomaly(check_nan=False):
            y = x.detach() * 2
        return y, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    translated = sot.to_static(asks, backend="eager")
    for state in ((False, True), (True, True), (True, False), (False, True)):
        torch.set_anomaly_enabled(*state)
        try:
            assert same(translated(X), asks(X)) is None
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == state
        finally:
            torch.set_anomaly_enabled(False)
    check_by("eager", asks, X)
