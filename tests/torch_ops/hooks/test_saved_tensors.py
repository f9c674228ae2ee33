"""``saved_tensors_hooks``: hooks that nothing outside can notice are in the graph of ``eager``."""
import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import sot

LOG = []


def half(t):
    return t.half()


def full(t):
    return t.float()


def by_name(x):
    with saved_tensors_hooks(half, full):
        return x.sin() * x


def made_inside(x):
    factor = 2.0
    with saved_tensors_hooks(lambda t: (t.dtype, t * factor), lambda p: p[1].to(p[0])):
        return x.exp() * x


def on_the_cpu(x):
    with save_on_cpu():
        return x.exp() * x


def annotated(x):
    def packed(tensor: "torch.Tensor") -> torch.Tensor:
        return tensor.half()

    with saved_tensors_hooks(packed, lambda t: t.float()):
        return x.exp() * x


def nested(x):
    with saved_tensors_hooks(half, full):
        with saved_tensors_hooks(lambda t: t.double(), lambda t: t.float() + 1):
            y = x.exp()
        return y * x


def the_same_before(x):
    outside = x.exp()
    with saved_tensors_hooks(half, full):
        inside = x.exp()
    (outside * inside).sum().backward()
    return x.grad.clone()


def that_log(x):
    with saved_tensors_hooks(lambda t: LOG.append(t.dim()) or t.detach(), lambda p: p):
        return x.exp() * x


def that_log_what_is_read_inside(x):
    seen = []
    with saved_tensors_hooks(lambda t: seen.append(t.dim()) or t, lambda p: p):
        y = x.exp() * x
        return y, len(seen)


def that_count_on_an_object(x):
    counter = Counter()
    with saved_tensors_hooks(counter.pack, lambda p: p):
        y = x.exp() * x
        return y, counter.packed


def that_set_a_global(x):
    with saved_tensors_hooks(note_packed, lambda p: p):
        y = x.exp() * x
        return y, packed


class Counter:
    packed = 0

    def pack(self, t):
        self.packed += 1
        return t


packed = 0


def note_packed(t):
    global packed
    packed = t.dim() + 5
    return t


def with_a_value_of_the_call(x):
    w = x * 3
    with saved_tensors_hooks(lambda t: t * w, lambda t: t):
        return x.exp() * x


def with_a_break_inside(x):
    with saved_tensors_hooks(half, full):
        y = x.exp()
        if y.sum() > 3:
            y = y * 2
        return y * x


def that_fail(x):
    try:
        with saved_tensors_hooks(lambda t: t.nothing, full):
            return x.exp()
    except AttributeError as e:
        return str(e), x * 2


def that_are_disabled(x):
    with disable_saved_tensors_hooks("not here"):
        try:
            with saved_tensors_hooks(half, full):
                return x.exp()
        except RuntimeError as e:
            return str(e), x * 2


IN_GRAPHS = [by_name, made_inside, on_the_cpu, annotated, nested, the_same_before]
OTHERS = [that_log, that_log_what_is_read_inside, that_count_on_an_object, that_set_a_global,
          with_a_value_of_the_call, with_a_break_inside, that_fail, that_are_disabled]


def outcome(fn):
    """The result, the gradient, and what the hooks have noted."""
    global packed
    packed = 0
    LOG.clear()
    x = torch.tensor([0.1, 1.2345678, 2.1]).requires_grad_()
    result = fn(x)
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, torch.Tensor) and part.requires_grad:
            part.sum().backward()
    shown = [p.tolist() if isinstance(p, torch.Tensor) else p for p in (result if type(result) is tuple else [result])]
    return shown, x.grad.tolist(), list(LOG)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [*IN_GRAPHS, *OTHERS])
def test_gradients_come_from_what_the_hooks_return(fn, backend):
    translated, want = sot.to_static(fn, backend=backend), outcome(fn)
    for _ in range(3):
        assert outcome(translated) == want
    if backend == "eager" and fn in IN_GRAPHS:
        assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def in_a_checkpoint(f, x):
    return checkpoint(f, f(x), use_reentrant=False)


def in_hooks_that_count(f, x):
    y = f(x)
    with saved_tensors_hooks(count, lambda tensor: tensor):
        return f(y)


def count(tensor):
    LOG.append(tuple(tensor.shape))
    return tensor


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [in_a_checkpoint, in_hooks_that_count])
def test_hooks_see_the_same_tensors_where_the_graph_was_captured_without_them(fn, backend, twice):
    def run(translate):
        LOG.clear()
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
        torch.nn.init.eye_(model[0].weight)
        torch.nn.init.ones_(model[2].weight)
        f, found = translate(lambda v: model(v).sin()), []
        for n in (2, 2, 3):
            x = torch.linspace(0, 1, 3 * n).view(n, 3).requires_grad_()
            loss = fn(f, x).sum()
            if twice:
                gradient, = torch.autograd.grad(loss, x, create_graph=True)
                loss = gradient.square().sum()
            loss.backward()
            found.append(x.grad)
            weight = model[0].weight
            found.append(weight.grad.clone())
        return found, [*LOG]
    torch.manual_seed(0)
    wanted, seen = run(lambda f: f)
    torch.manual_seed(0)
    found, seen_of_graphs = run(lambda f: sot.to_static(f, backend=backend))
    torch.testing.assert_close(found, wanted)
    assert seen_of_graphs == seen
