"""Parameters, modules and leaves made inside of captured code; regions; tensors made of tensors."""
from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F
from harness import check, every_call, same
from torch import nn
from torch.autograd import Variable

import sot

torch.manual_seed(0)
X = torch.arange(12.0).reshape(3, 4) / 6
G = (torch.arange(12.0).reshape(3, 4) / 6).requires_grad_()
CRITIC = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

WHOLE: dict = {}


def whole(fn):
    WHOLE[fn.__name__] = fn
    return fn


@whole
def parameters(x):
    p, frozen = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4), requires_grad=False)
    return x * p, isinstance(p, nn.Parameter), p.requires_grad, p.is_leaf, frozen * 2, nn.Parameter(x.detach()).shape


@whole
def parameters_and_numbers_of_arrays(x):
    p = nn.Parameter(torch.ones(4) * 2)
    return x * p, x.detach().numpy().sum() > 1, bool((x.detach().numpy() > 5).any())


@whole
def buffers(x):
    b = nn.Buffer(torch.ones(4), persistent=False)
    return x * b, isinstance(b, nn.Buffer), b.persistent, type(b)


class Scaled(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(4, size)
        self.register_buffer("scale", torch.full((size,), 2.0))

    def forward(self, x):
        return self.linear(x) * self.scale


@whole
def modules(x):
    net = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5), nn.LayerNorm(2))
    return net(x), Scaled(3)(x), nn.CrossEntropyLoss()(x, torch.tensor([0, 1, 2])), len(list(net.parameters()))


@whole
def leaves(x):
    v = x.detach().requires_grad_()
    w = torch.ones(3, 4, requires_grad=True)
    (v.sin() * w).sum().backward()
    u = x.detach().clone()
    u.requires_grad = True
    return v.grad, w.grad, v.is_leaf, (u * 2).requires_grad, u.grad is None


@whole
def a_gradient_penalty(x):
    v = x.detach().requires_grad_(True)
    out = CRITIC(v)
    (g,) = torch.autograd.grad(out, v, grad_outputs=torch.ones_like(out), create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


@whole
def questions_about_history(x):
    y = x * 2
    return y.grad_fn is not None, bool(y.grad_fn), x.grad_fn is None, type((y + 1).grad_fn) is type(None)


@torch.inference_mode()
def inferred(x):
    return x * 2


@whole
def inference(x):
    with torch.inference_mode():
        y = x * 2
        z = F.relu(y).add_(1)
        with torch.inference_mode(False):
            n = torch.is_inference_mode_enabled()
    return y.is_inference(), y, z, n, inferred(x), torch.is_inference_mode_enabled()


@whole
def named_regions(x):
    with torch.profiler.record_function("first"), torch.autograd.profiler.record_function("second"):
        y = x * 2
    with torch._C.DisableTorchFunctionSubclass():
        return y + 1


@whole
def tensors_of_tensors(x):
    s = x.detach()
    return (torch.tensor([s.sum(), s.mean()]), torch.tensor([1, s[0, 0], 2.5]), torch.as_tensor([s[0, 1], s[1, 1]]),
            torch.tensor([[s[0, 0], 1], [2, s[0, 1]]]), torch.tensor([s[0, 0].long(), 2]),
            torch.tensor([s.sum(), 1], dtype=torch.float64))


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("x", [X, G], ids=["plain", "grad"])
def test_is_one_graph(fn, x):
    check(fn, x, graphs=1, breaks=0)


def freezes(x):
    x.requires_grad_(False)
    return x * 2, x.requires_grad


def thaws(x):
    y = x * 2
    x.requires_grad_()
    return y, x * 3


@pytest.mark.parametrize("fn, x", [(freezes, G), (thaws, X)], ids=["freezes", "thaws"])
def test_an_argument_changes_whether_it_requires_grad(fn, x):
    check(fn, x)


@pytest.mark.parametrize("fn", [parameters, leaves, a_gradient_penalty, modules], ids=lambda f: f.__name__)
def test_a_compiling_backend_loses_no_leaf(fn):
    translated = sot.to_static(fn, backend=every_call("aot_eager"))
    for _ in range(2):
        torch.manual_seed(0)
        want = fn(X)
        torch.manual_seed(0)
        assert same(translated(X), want) is None


def breaks_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        n = y.sum().item()
        z = y * n
    return z.is_inference(), z, x * n


def fails_in_inference_mode(x, i):
    with torch.inference_mode():
        return x[i] * 2


def breaks_in_a_named_region(x):
    with torch.profiler.record_function("first"):
        y = x * 2
        sot.graph_break()
        with torch.profiler.record_function("second"):
            sot.graph_break()
            z = y + 1
    return z * 2


def converts_by_value(x):
    return torch.tensor([x.detach()[1, 1], 3], dtype=torch.int64), torch.tensor([x[0].detach(), x[1].detach()].pop())


@pytest.mark.parametrize("fn, args", [(breaks_in_inference_mode, (X,)), (breaks_in_inference_mode, (G,)),
                                      (fails_in_inference_mode, (X, torch.tensor([0, 9]))), (converts_by_value, (X,)),
                                      (breaks_in_a_named_region, (X,))],
                         ids=["break", "break with grad", "error", "conversion", "named region"])
def test_what_leaves_a_region_by_another_way(fn, args):
    check(fn, *args)
    assert not torch.is_inference_mode_enabled()


def clips(model, x):
    model(x).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    return norm, [p.grad for p in model.parameters()]


def constructs_in_the_old_way(x):
    return torch.FloatTensor([1, 2.5]), torch.LongTensor([1, 2]), torch.IntTensor([3]), isinstance(x, torch.FloatTensor)


def old_variables(x):
    v = Variable(x)
    return isinstance(x, Variable), isinstance(3, Variable), v is x, v * 2


@pytest.mark.parametrize("fn, args", [(clips, (CRITIC, X)), (constructs_in_the_old_way, (X,)), (old_variables, (X,))],
                         ids=["clipping", "old constructors", "old variables"])
def test_helpers_are_one_graph(fn, args):
    check(fn, *args, graphs=1, breaks=0)


class Tagged(nn.Parameter):
    def doubled(self):
        return self * 2


class Overriding(nn.Parameter):
    def __mul__(self, other):
        return torch.full_like(self, 7.0)


def test_a_class_of_parameters_that_overrides_nothing_is_captured():
    def ask(p, x):
        return p * x, type(p + 1), isinstance(p, Tagged), p.requires_grad
    check(ask, Tagged(X.clone()), X, graphs=1, breaks=0)


def test_a_class_of_parameters_is_what_it_says():
    check(lambda p, x: (p.doubled(), x * 2), Tagged(X.clone()), X, graphs=1, breaks=0)
    check(lambda p, x: (p * x, x * 2), Overriding(X.clone()), X)


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [a.inner if isinstance(a, Wrapper) else a for a in args]
        return Wrapper(func(*args, **(kwargs or {})))


def test_subclasses_with_torch_dispatch_are_left_to_python_and_named():
    def fn(a, x):
        y = x * 2 + 1
        return a + y, a.shape[0] + y, type(a * 2)
    translated = sot.to_static(fn)
    for _ in range(2):
        (got, shape, kind), want = translated(Wrapper(X), X), fn(Wrapper(X), X)
        assert same((got.inner, shape, kind), (want[0].inner, *want[1:])) is None
    stops = [c.stopped for c in sot.translation_of(translated).captures if c.stopped]
    assert {s.reason.name for s in stops} == {"OTHER_TENSOR"}, list(map(str, stops))
    assert Wrapper.__qualname__ in str(stops[0])


@pytest.mark.slow
def test_an_operation_that_checks_values_is_in_the_graph():
    window = torch.hann_window(16)

    def fn(x):
        y = torch.istft(torch.stft(x, 16, window=window, return_complex=True), 16, window=window)
        return y, y.shape, y.stride(), y.is_contiguous()
    check(fn, torch.randn(2, 64), graphs=1, breaks=0)

    def fails(s):
        with contextlib.suppress(RuntimeError):
            torch.istft(s, 16, window=torch.zeros(16))
        return s.abs()
    check(fails, torch.randn(2, 9, 5, dtype=torch.complex64))


def test_an_empty_tensor_has_no_parts():
    def fn(x):
        return x + 1, [*x[:0]], x[:0].unbind(), (0, *torch.tensor([3]).cumsum(0)[:-1]), [v * 2 for v in x]
    check(fn, X, graphs=1, breaks=0)
    check(lambda x: (fn(x), fn(x[:0])), X, graphs=1, breaks=0)
    translated = sot.to_static(fn, backend="eager", full_graph=True)
    for n in (3, 4, 0, 5):
        x = torch.arange(2.0 * n).reshape(n, 2)
        assert same(translated(x), fn(x)) is None


def test_a_size_given_to_new_is_no_data():
    def fn(x):
        return x.new(x.shape).fill_(1), x.new(2, 3).zero_(), x.new([1.0, 2.0]), x.new((2, 3)), x + 1
    check(fn, X, graphs=1, breaks=0)
    check(lambda x: torch.distributions.Exponential(x.abs() + 1).rsample(), X, graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_view_whose_history_autograd_refuses_to_return_is_changed(backend):
    """Reading ``is_leaf`` of such a tensor raises."""
    def fn(view):
        with torch.no_grad():
            view.relu_()
        return view.detach() * 2

    translated = sot.to_static(fn, backend=backend, dynamic=True)
    for call in (fn, translated, translated):
        view = torch.arange(-2.0, 2, requires_grad=True).split(2)[0]
        with torch.no_grad():
            view[0] = -5
        assert call(view).tolist() == [0, 0]
        assert view.detach().tolist() == [0, 0]
    assert not any("capture failed" in str(capture.stopped) for capture in translated.translator.captures)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_of_several_views_is_changed_without_gradients(backend):
    """Autograd does not return its history from then on, neither that of its fake."""
    def fn(view):
        double = view * 2
        view += True
        return double

    translated = sot.to_static(fn, backend=backend)
    for call in (fn, translated, translated):
        base = torch.arange(4.0, requires_grad=True) * 1
        with torch.no_grad():
            assert call(base.split(2)[1]).tolist() == [4, 6]
        assert base.tolist() == [0, 1, 3, 4]
    assert not any("capture failed" in str(capture.stopped) for capture in translated.captures)


def read_by_a_line(x, y):
    doubled = x * 2
    return doubled, x.grad


def read_after_a_change(x, y):
    x.copy_(y)
    return x.grad, x * 2


def read_by_zero_grad(x, y):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2), requires_grad=False)], lr=0.1)
    weight, = optimizer.param_groups[0]["params"]
    weight.copy_(y)
    optimizer.zero_grad()
    return weight * 2


@pytest.mark.parametrize("program", [read_by_a_line, read_after_a_change, read_by_zero_grad])
def test_the_warning_of_a_gradient_that_is_not_kept_names_the_line_that_reads_it(program):
    def warned(call):
        y = torch.ones(2, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(y * 3 if program is read_by_a_line else torch.ones(2), y)
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    captured = sot.to_static(program)
    assert len(plain := warned(program)) == 1
    for _ in range(3):
        assert warned(captured) == plain
