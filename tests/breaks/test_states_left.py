"""Breaks inside regions that set torch's state: whichever backend ran the graphs, it ends as plain Python leaves it."""
import pytest
import torch
from harness import same

import sot
from sot.torch_compat.global_state import autocast_nesting
from sot.torch_compat.hooks import has_saved_tensors_hooks


def no_grad(x):
    with torch.no_grad():
        y = x * 2
        sot.graph_break()
        y = y + x
    z = x.sin()
    seen = torch.is_grad_enabled()
    sot.graph_break()
    return y + z.cos(), seen


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        sot.graph_break()
        seen = [torch.is_autocast_enabled("cpu")]
        z = x @ x
    w = x @ x
    seen.append(torch.is_autocast_enabled("cpu"))
    sot.graph_break()
    return y.float() + z.float() + w.cos(), w.dtype, seen


def left_by_an_exception(x):
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            sot.graph_break()
            raise ValueError
    except ValueError:
        z = x @ x
        sot.graph_break()
    return y.float() * z, z.dtype, torch.is_grad_enabled()


def left_set(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y.sin(), x * 3


def inference_mode(x):
    with torch.inference_mode():
        y = x @ x
        sot.graph_break()
        seen = [torch.is_inference_mode_enabled()]
        with torch.inference_mode(False):
            z = x * 2
            sot.graph_break()
            seen.append(torch.is_inference_mode_enabled())
        w = y @ x
        sot.graph_break()
    return w + 1, z, seen, torch.is_inference_mode_enabled()


def gradients_and_autocast_in_inference_mode(x):
    seen = []
    with torch.autocast("cpu", torch.bfloat16):
        with torch.inference_mode(), torch.enable_grad():
            y = x @ x
            sot.graph_break()
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), y.is_inference()))
        z = x @ x
        sot.graph_break()
    return y, z, seen


def autocast_in_inference_mode(x):
    with torch.inference_mode():
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            sot.graph_break()
            z = x @ x
        sot.graph_break()
    return y, z, x @ x


def after_inference_mode(x):
    with torch.inference_mode():
        torch.set_grad_enabled(True)
        y = x + 1
    with torch.no_grad():
        z = x * 2
        sot.graph_break()
        z = z + x
    return y, z


def left_in_inference_mode(x):
    mode = torch.inference_mode()
    mode.__enter__()
    torch.set_grad_enabled(True)
    try:
        y = x @ x
        sot.graph_break()
        return y, torch.is_grad_enabled()
    finally:
        mode.__exit__(None, None, None)


def layer_in_inference_mode(x):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    with torch.inference_mode():
        y = model(x)
    return y + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [no_grad, autocast, left_by_an_exception, left_set, inference_mode,
                                gradients_and_autocast_in_inference_mode, autocast_in_inference_mode,
                                after_inference_mode, left_in_inference_mode, layer_in_inference_mode],
                         ids=lambda f: f.__name__)
def test_the_state_after_each_call(fn, backend):
    def states():
        found = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
                 torch.is_autocast_cache_enabled(), autocast_nesting())
        torch.set_grad_enabled(True)
        return found
    x = torch.randn(2, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    translated = sot.to_static(fn, backend=backend)
    want = fn(x), states()
    for _ in range(3):
        assert not same((translated(x), states()), want)


def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2) + 1, torch.arange(3) / 2, x * torch.tensor(2.0), torch.get_default_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_operations_have_the_default_dtype_that_the_function_sets(backend):
    x = torch.ones(2)
    translated = sot.to_static(default_dtype, backend=backend)
    for _ in range(2):
        assert same(translated(x), default_dtype(x)) is None
        assert torch.get_default_dtype() is torch.float32


def inside_and_outside(x):
    with torch.inference_mode():
        y = x * 2
        z = y.view(-1)
        with torch.inference_mode(False):
            w = x * 4
    return y, z, x.view(-1), x * 3, w


@torch.inference_mode()
def inside_of_a_region(x):
    with torch.inference_mode(False):
        y = x * 2
    with torch.inference_mode():
        z = x.view(-1)
    return y, z, x * 3


@torch.inference_mode()
def inside_of_two(x):
    with torch.inference_mode():
        y = x * 2
    return y, x.view(-1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [inside_and_outside, inside_of_a_region, inside_of_two])
@pytest.mark.parametrize("grad", [False, True])
def test_what_inference_mode_makes_is_a_tensor_of_it(fn, grad, backend):
    def kinds(results):
        return [(t.is_inference(), t.requires_grad) for t in results]
    translated = sot.to_static(fn, backend=backend)
    x = torch.ones(2, 2, requires_grad=grad)
    for _ in range(2):
        got, want = translated(x), fn(x)
        assert kinds(got) == kinds(want)
        assert not same(got, want)
        with pytest.raises(RuntimeError, match="inference tensor outside InferenceMode"):
            (got[0] if got[0].is_inference() else got[2]).requires_grad_().mul_(2)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_an_error_in_inference_mode_leaves_torch_as_it_was(backend):
    model = torch.nn.Linear(3, 3)

    def step(x):
        with torch.inference_mode():
            loss = model(x).sum()
            loss.backward()
    translated = sot.to_static(step, backend=backend)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not require grad"):
            translated(torch.ones(2, 3))
        assert not torch.is_inference_mode_enabled()
        assert (torch.ones(2) + 1).tolist() == [2, 2]


def changes_in_regions(x):
    y = x * 2
    with torch.autograd.graph.save_on_cpu():
        with torch.autocast("cpu", torch.bfloat16):
            y = y @ y
        x.mul_(2)
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_leaf_that_is_refused_leaves_the_regions(backend):
    translated = sot.to_static(changes_in_regions, backend=backend)
    for _ in range(2):
        leaf = torch.rand(3, 3, requires_grad=True)
        assert not same(translated(leaf * 1), changes_in_regions(leaf * 1))
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            translated(leaf)
        assert autocast_nesting() == 0 and not has_saved_tensors_hooks()


def one_of_several(values):
    return torch.cat([values, values]).requires_grad_().split(values.shape[0])[1]


def made_without_gradients(values):
    with torch.no_grad():
        return (values.requires_grad_() * 1)[:]


REFUSED = {"one of several views": one_of_several, "a view of a leaf": lambda values: values.requires_grad_()[:],
           "a view made without gradients": made_without_gradients}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_printed_before_a_refused_change_stays(kind, backend, capsys):
    def program(x, w):
        y = w * 2
        print("before")
        x[1:] = y.sum()
        return y

    def run(fn):
        got = []
        for make in (lambda values: values, lambda values: values.requires_grad_() * 1, REFUSED[kind]):
            try:
                got.append(fn(make(torch.arange(4.0)), torch.ones(2, requires_grad=True)).tolist())
            except RuntimeError as e:
                got.append(str(e).partition(".")[0])
        return got, capsys.readouterr()
    assert run(sot.to_static(program, backend=backend)) == run(program)


@pytest.mark.parametrize("show", [str, "{}".format])
def test_text_of_a_tensor_names_its_dtype_by_the_default_of_that_moment(show):
    def before(x):
        shown = show(x)
        torch.set_default_dtype(torch.float64)
        return x + 1, shown

    def after(x):
        torch.set_default_dtype(torch.float64)
        shown = show(x)
        y = x + 1
        torch.set_default_dtype(torch.float32)
        return y, shown

    for function in (before, after):
        found = []
        for run in (function, sot.to_static(function)):
            try:
                found.append(run(torch.ones(2))[1])
            finally:
                torch.set_default_dtype(torch.float32)
        assert found[0] == found[1]
