"""Flags of torch: what reads them is guarded, and what sets them is part of a graph that runs as it is."""
from __future__ import annotations

import warnings

import pytest
import torch
from harness import Programs, check, check_by, outcome, same

import sot

program = Programs()


@pytest.fixture(autouse=True)
def flags_may_be_set(monkeypatch):
    """torch.testing._internal, which other tests import, forbids it for the process. Afterwards the flags are as they
    were: a program leaves some set where an exception leaves torch's own context, and some have no default to set.
    """
    names = torch.backends.flags_frozen.__globals__     # torch.backends itself is another module object
    monkeypatch.setitem(names, "__allow_nonbracketed_mutation_flag", True)
    uses_onednn = torch.backends.mkldnn.enabled
    precisions = {place: PRECISION_OF(*place) for place in PLACES}
    yield
    torch._C._set_mkldnn_enabled(uses_onednn)
    for place, precision in precisions.items():
        torch._C._set_fp32_precision_setter(*place, precision)


PRECISION_OF = getattr(torch._C, "_get_fp32_precision_getter", None)      # since torch 2.9
PLACES = [(owner, kind) for owner in ("mkldnn", "cuda") for kind in ("all", "conv", "rnn", "matmul")] if (
    PRECISION_OF) else []


@program
def what_is_read(x):
    return (x + torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
            torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision(), torch.is_warn_always_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory, torch.get_deterministic_debug_mode())


@program
def set_by_an_attribute(x):
    torch.backends.cudnn.benchmark = True
    y = x + torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    return y, torch.backends.cudnn.benchmark


@program
def set_and_set_back(x):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    y = x @ x.T
    torch.backends.cuda.matmul.allow_tf32 = before
    return y


@program
def precision(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    y = x @ x.T, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    return y


@program
def a_property_of_a_module(x):
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = not before
    y = x + torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = before
    return y


@program
def debug_mode(x):
    torch.set_deterministic_debug_mode("warn")
    y = x + torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    return y


@program
def a_context(x):
    with torch.backends.cudnn.flags(enabled=False):
        y = x + torch.backends.cudnn.enabled
    return y, torch.backends.cudnn.enabled


@program.each
def test_one_graph(fn):
    check(fn, torch.randn(4, 3), graphs=1, breaks=0)


@program.each
def test_the_same_with_a_backend_that_compiles(fn):
    x = torch.randn(4, 3)
    translated = sot.to_static(fn, backend="aot_eager")
    for _ in range(2):
        assert same(translated(x), fn(x)) is None


# A flag below torch.backends, and two values of it.
KEPT = [("mkldnn.enabled", False, True), ("mkldnn.deterministic", True, False), ("cudnn.enabled", False, True),
        ("cudnn.benchmark", True, False), ("cudnn.deterministic", True, False), ("cudnn.benchmark_limit", 5, 10),
        ("opt_einsum.enabled", False, True), ("opt_einsum.strategy", "greedy", "auto"),
        ("quantized.engine", *torch.backends.quantized.supported_engines[-2:])]


@pytest.mark.parametrize(("path", "value", "other"), KEPT, ids=lambda part: str(part))
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_flag_that_the_program_has_set_outside_is_read_again(path, value, other, backend):
    owner, name = path.split(".")
    module = getattr(torch.backends, owner)
    namespace = {"torch": torch}
    exec(f"def f(x): return x + 1, torch.backends.{path}", namespace)
    captured, before = sot.to_static(namespace["f"], backend=backend), getattr(module, name)
    try:
        for now in (value, other, value):
            setattr(module, name, now)
            assert captured(torch.ones(2))[1] == getattr(module, name)
        assert not captured.explain().breaks
    finally:
        setattr(module, name, before)


@pytest.mark.parametrize("always", [False, True])
def test_a_flag_that_has_changed_is_read_again(always):
    def read(x):
        return x + 1, torch.is_warn_always_enabled(), torch.backends.cudnn.benchmark
    translated = sot.to_static(read)
    try:
        for value in (False, always, False):
            torch.set_warn_always(value)
            torch.backends.cudnn.benchmark = value
            assert translated(torch.ones(2))[1:] == (value, value)
    finally:
        torch.set_warn_always(False)
        torch.backends.cudnn.benchmark = False


def without_onednn(x):
    with torch.backends.mkldnn.flags(enabled=False):
        return torch.nn.functional.linear(x, x), torch.backends.mkldnn.enabled


def sets_what_this_build_lacks(x):
    torch._C._set_onednn_allow_tf32(False)
    y = x + 1
    return y, torch._C._get_onednn_allow_tf32()


def sets_it_twice(x):
    torch._C._set_onednn_allow_tf32(False)
    y = x + 1
    torch._C._set_onednn_allow_tf32(True)
    return y


ONCE = [without_onednn, sets_what_this_build_lacks]
LACKING = pytest.mark.parametrize("fn", [*ONCE, sets_it_twice], ids=lambda fn: fn.__name__)


@LACKING
@pytest.mark.filterwarnings("ignore:TF32")
def test_flags_of_which_one_has_no_value(fn):
    check_by("eager", fn, torch.ones(3, 3), breaks=0 if fn in ONCE else None)
    check(fn, torch.ones(3, 3))
    check_by("aot_eager", fn, torch.ones(3, 3))


@LACKING
def test_a_flag_that_has_no_value_warns_as_torch_does(fn):
    def shown(fn):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            fn(torch.ones(3, 3))
        return [(str(each.message), each.category, each.filename, each.lineno) for each in log]
    translated = sot.to_static(fn, backend="eager")
    for _ in range(3):
        assert shown(translated) == shown(fn)


@LACKING
def test_a_flag_that_has_no_value_where_warnings_are_errors(fn):
    translated = sot.to_static(fn, backend="eager")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            want, got = (outcome(f, (torch.ones(3, 3),), {}) for f in (fn, translated))
        assert same(repr(got.raised), repr(want.raised)) is None
