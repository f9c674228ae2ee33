"""A loss whose targets are out of range, after a change of an input: the input, and all other effects, are Python's."""
import copy
import random
import traceback
import warnings

import numpy as np
import pytest
import torch
from harness import Counter, check, same
from harness import caught as outcome
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import sot
from sot.backends.rescue import rescued

BACKENDS = ["eager", "aot_eager"]


def run(step_of, backend, refused):
    """What the calls of a training step return and raise, and what they leave. Calls in ``refused`` have targets that
    are out of range.
    """
    torch.manual_seed(0)
    step, state = step_of()
    call = step if backend is None else sot.to_static(step, backend=backend)
    seen = []
    for i in range(5):
        x, y = torch.randn(8, 4), torch.randint(0, 3, (8,)) + (7 if i in refused else 0)
        try:
            seen.append(call(x, y))
        except IndexError as error:
            seen.append(torch.tensor(str(error).startswith("Target")))
        seen += [v.detach().clone() if isinstance(v, torch.Tensor) else torch.tensor(v) for v in state()]
    return seen


def normalized():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    sgd, log = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []

    def step(x, y):
        sgd.zero_grad()
        log.append(1)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        sgd.step()
        return loss.detach()
    return step, lambda: [*model.state_dict().values(), len(log), *(p.grad is None for p in model.parameters())]


def caught():
    total, weight = torch.zeros(3), torch.randn(4, 3)

    def step(x, y):
        total.add_(x.mean(0)[:3])
        try:
            return F.cross_entropy(x @ weight, y) + total.sum()
        except IndexError:
            total.mul_(2)
            raise
    return step, lambda: [total]


@pytest.mark.parametrize("refused", [(), (0,), (1,), (2, 3), (4,)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step_of", [normalized, caught])
def test_what_the_program_leaves_is_pythons(step_of, backend, refused):
    want = run(step_of, None, refused)
    got = run(step_of, backend, refused)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_step_with_batch_norm_and_targets_is_one_graph_each_time(is_first):
    if is_first:        # torch remembers the results of fake kernels, and runs each once in a process
        FakeTensorMode.cache_clear()
    step, _ = normalized()
    backend = Counter()
    call = sot.to_static(step, backend=lambda gm, inputs: (backend(gm, inputs), lambda *args: gm(*args))[1],
                         full_graph=True)
    for _ in range(3):
        call(torch.randn(8, 4), torch.randint(0, 3, (8,)))
    assert len(backend.graphs) == 2     # the first step makes momenta


def ignoring():
    total, weight = torch.zeros(3), torch.randn(4, 3)

    def step(x, y):
        total.add_(x.mean(0)[:3])
        try:
            return F.cross_entropy(x @ weight, y - (y == 1) * 8, ignore_index=-7) + total.sum()
        except IndexError:
            total.mul_(2)
            raise
    return step, lambda: [total]


@pytest.mark.parametrize("refused", [(), (1,)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_targets_that_the_loss_ignores_are_no_failure(backend, refused):
    want = run(ignoring, None, refused)
    got = run(ignoring, backend, refused)
    torch.testing.assert_close(got, want)


OF_ONE_DTYPE = {
    "mm": lambda x, w: x @ w, "mv": lambda x, w: x @ w[:, 0], "vm": lambda x, w: x[0] @ w,
    "bmm": lambda x, w: torch.bmm(x[None], w[None]), "addmm": lambda x, w: torch.addmm(w[0], x, w),
    "linear": lambda x, w: F.linear(x, w.T), "bias": lambda x, w: F.linear(x, x, w[0]),
    "layer_norm": lambda x, w: F.layer_norm(x, (4,), w[:, 0]),
    "loss": lambda x, w: F.cross_entropy(x, CLASSES, w[:, 0]),
    "index_add": lambda x, w: x.index_add(0, CLASSES, w), "cdist": torch.cdist}
CLASSES = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("operation", OF_ONE_DTYPE.values(), ids=[*OF_ONE_DTYPE])
def test_an_operation_that_refuses_a_dtype_is_caught(operation, dtype):
    """Many fake kernels do not compare dtypes."""
    def fn(x, w):
        w.mul_(2)
        try:
            y = operation(x, w)
        except RuntimeError:
            w.add_(1)
            y = x
        return y + 1
    check(fn, torch.arange(16.0).reshape(4, 4), torch.ones(4, 4, dtype=dtype))


WITHOUT_A_KERNEL = {
    "rand_like": torch.rand_like, "rand": lambda x: torch.rand(3, dtype=x.dtype), "softmax": lambda x: x.softmax(0),
    "conv": lambda x: F.conv1d(x[None, None], x[None, None, :2]), "gelu": F.gelu, "std": lambda x: x.std(),
    "conv_transpose": lambda x: F.conv_transpose1d(x[None, None], x[None, None]), "dot": lambda x: x @ x,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x), "bitwise": lambda x: x & x, "gcd": lambda x: torch.gcd(x, x),
    "cdist": lambda x: torch.cdist(x[None], x[None]), "abs": torch.abs, "hypot": lambda x: torch.hypot(x, x),
    "topk": lambda x: x.topk(2)[0], "unfold": lambda x: F.unfold(x.view(1, 1, 2, 2), 2),
    "linspace": lambda x: torch.linspace(0, 1, 3, dtype=x.dtype), "rrelu": lambda x: F.rrelu(x, training=True)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16], ids=str)
@pytest.mark.parametrize("operation", WITHOUT_A_KERNEL.values(), ids=[*WITHOUT_A_KERNEL])
def test_an_operation_without_a_kernel_for_a_dtype_is_caught(operation, dtype, backend):
    """Fake kernels do not know which dtypes are implemented."""
    def fn(x, log):
        x.zero_()
        try:
            y = operation(x)
        except RuntimeError as error:
            log.append(str(error))
            y = x.logical_not()
        return y
    outcomes = []
    for run in (fn, sot.to_static(fn, backend=backend)):
        x, log, state = torch.arange(4).to(dtype), [], torch.manual_seed(1).get_state()
        outcomes.append((run(x, log), x, log, torch.equal(torch.get_rng_state(), state)))
    assert same(outcomes[1], outcomes[0]) is None


def test_what_was_warned_of_once_is_not_warned_of_again():
    """Capture calls the operation to learn its exception. Python's record of shown warnings stays as it was."""
    def fn(x):
        try:
            return x.view(7)
        except RuntimeError:
            return x + 1

    def warn():
        warnings.warn("only once", stacklevel=1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        warn()
        check(fn, torch.ones(4))
        warn()
    assert [str(w.message) for w in shown] == ["only once"]


def test_capture_draws_no_numbers_to_find_out():
    def fn(x):
        return torch.rand_like(x, dtype=torch.float16) + torch.rand(2, dtype=torch.bfloat16).sum()
    torch.manual_seed(1)
    want = fn(torch.ones(2, dtype=torch.int64))
    torch.manual_seed(1)
    assert torch.equal(sot.to_static(fn)(torch.ones(2, dtype=torch.int64)), want)


def test_an_operation_on_a_list_changes_its_tensors():
    """A graph that raises after ``_foreach_add_`` must not run again from its start."""
    def step(x, y, seen):
        torch._foreach_add_([x], 1.0)
        seen.append(1)
        try:
            return F.cross_entropy(x, y)
        except IndexError:
            return x.sum()
    check(step, torch.zeros(2, 3), torch.tensor([1, 7]), [])
    check(step, torch.zeros(2, 3), torch.tensor([1, 2]), [])


def test_a_number_at_the_places_of_a_mask_raises_for_no_mask():
    def step(x, seen):
        x.add_(1)
        seen.append(1)
        x[x.gt(0)] = 2.0
        try:
            x[x.lt(-5)] = -1.0
        except IndexError:
            x.zero_()
        return x * 3
    check(step, torch.randn(4, 3), [], breaks=0)


# ---- operations of subgraphs
class Selects(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, i):
        return x.index_select(0, i)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def in_a_function_of_autograd(x, i):
    x.add_(1)
    return Selects.apply(x * 2, i)


def in_a_checkpoint(x, i):
    x.add_(1)
    return checkpoint(lambda v: v.index_select(0, i), x * 2, use_reentrant=False)


def in_a_checkpoint_of_a_checkpoint(x, i):
    def inner(v):
        return checkpoint(lambda w: w.index_select(0, i), v * 2, use_reentrant=False)
    x.add_(1)
    return checkpoint(inner, x * 2, use_reentrant=False)


@pytest.mark.parametrize("fn", [in_a_function_of_autograd, in_a_checkpoint, in_a_checkpoint_of_a_checkpoint])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operation_of_a_subgraph_that_raises_leaves_what_pythons_leaves(fn, backend):
    """At a later call, for which the inputs are not copied in any case."""
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        translated(torch.arange(4.0), torch.tensor([2]))
    left = []
    for run in (fn, translated):
        x = torch.arange(4.0)
        with pytest.raises(IndexError):
            run(x, torch.tensor([20]))
        left.append(x.tolist())
    assert left == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize("leaves, left", [(True, [1, 1]), (False, [0, 0])])
def test_what_an_exception_leaves_if_python_does_not_run_the_frame_again(leaves, left):
    graph = fx.symbolic_trace(lambda x, i: x.add_(1).index_select(0, i))

    def compiled(x, i):
        raise IndexError("before the change")
    run = rescued(compiled, graph, "a backend", "here", changes=True, changed=[0], leaves=leaves)
    x = torch.zeros(2)
    with pytest.raises(IndexError, match="out of range"):
        run(x, torch.tensor([7]))
    assert x.tolist() == left


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.loads = nn.Linear(3, 4), [torch.zeros(4)]
        self.register_buffer("load", torch.zeros(4))

    def forward(self, x, size):
        place = self.gate(x).argmax(-1) + size - 4
        self.load += nn.functional.one_hot(place, size).sum(0)[-4:]
        self.loads[0] += 1
        return torch.zeros(4, 3).index_add(0, place, x)


@pytest.mark.parametrize("size", [4, 8])
def test_a_buffer_that_is_written_back_is_no_change_of_its_dict(size):
    """``self.load += x`` changes the tensor, and stores it where it was."""
    model, x = Routed(), torch.randn(5, 3)
    plain, translated = copy.deepcopy(model), sot.to_static(model, backend="eager")
    for _ in range(3):
        outcomes = []
        for each in (plain, translated):
            try:
                outcomes.append(each(x, size))
            except (IndexError, RuntimeError) as error:
                outcomes.append(str(error))
        assert not same(outcomes[1], outcomes[0])
        assert torch.equal(translated.load, plain.load) and torch.equal(translated.loads[0], plain.loads[0])
    captures = sot.translation_of(translated).captures
    assert len(captures) == 1 and captures[0].stopped is None


@pytest.mark.parametrize("always_call", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_call_of_a_module_catches_exceptions_only_for_hooks_that_ask_for_it(always_call, backend):
    def run(translated):
        model, total, seen = nn.Sequential(nn.Embedding.from_pretrained(torch.eye(3))), torch.zeros(2), []
        model.register_forward_hook(lambda module, args, out: seen.append(out is None), always_call=always_call)

        def step(total):
            total.add_(1)
            return model(total.long())
        call, found = sot.to_static(step, backend=backend) if translated else step, []
        for _ in range(3):
            try:
                found.append(call(total))
            except IndexError as error:
                found.append(str(error))
        return found, total, seen, call
    *want, _ = run(translated=False)
    *got, call = run(translated=True)
    assert same(got, want) is None
    assert [type(result) for result in got[0]] == [torch.Tensor, torch.Tensor, str]
    assert any(capture.stopped for capture in call.captures) == always_call


@pytest.mark.parametrize("invert", [
    lambda x: [torch.linalg.inv(part) for part in (x, x)], lambda x: (*(torch.linalg.inv(part) for part in (x, x)),),
    lambda x: {n: torch.linalg.inv(part) for n, part in enumerate((x, x))}], ids=["list", "generator", "dict"])
def test_a_comprehension_catches_nothing(invert):
    """Since Python 3.12 it has a handler, which restores the variables outside of it."""
    def inverted(x):
        x.add_(1)
        return invert(x)
    check(inverted, torch.eye(3), graphs=1, breaks=0)
    check(inverted, torch.full((3, 3), -1.0))


# ---- what the exception shows
SCALE = nn.Parameter(torch.tensor(1.0))


def inverse(x):
    return torch.linalg.inv(x)


def changes_an_input(x):
    x.add_(0)
    return inverse(x)


def changes_data(x):
    SCALE.data.copy_(x.sum())
    return inverse(x)


def whole_share(x):
    return 7 // int(x.sum())


def number_after_a_change_of_data(x):
    SCALE.data.copy_(x.sum())
    return whole_share(x)


def number_that_is_not_used(x):
    n = int((x / x).sum())  # noqa: F841
    SCALE.data.copy_(x.sum())
    return x


@pytest.mark.parametrize("fn", [changes_an_input, changes_data, number_after_a_change_of_data, number_that_is_not_used])
def test_the_traceback_has_the_frames_of_the_program(fn):
    def frames(call):
        with pytest.raises((RuntimeError, ArithmeticError, ValueError)) as raised:
            call(torch.zeros(2, 2))
        found = traceback.extract_tb(raised.value.__traceback__)[1:]
        return [(frame.name, frame.lineno) for frame in found if frame.name not in ("__call__", "python_call")]
    translated = sot.to_static(fn, backend="eager")
    assert [frames(translated), frames(translated)] == [frames(fn)] * 2
    assert len(translated.captures) == 1 and not translated.captures[0].stopped


def draws_after(x):
    x.add_(0)
    return inverse(x) * random.random()


def draws_before(x):
    x.add_(0)
    share = random.random()
    return inverse(x) * share


def draws_before_and_after(x):
    x.add_(0)
    share = np.random.rand()
    return inverse(x) * share * random.random() * np.random.rand()


def draws_in_the_graph_too(x):
    y = x * 2
    y.add_(inverse(x))
    return F.rrelu(y, training=True), random.randrange(4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [draws_after, draws_before, draws_before_and_after, draws_in_the_graph_too])
def test_numbers_that_the_program_has_not_drawn_are_not_drawn(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for x in torch.eye(2), torch.zeros(2, 2), torch.eye(2):
        results = []
        for call in translated, fn:
            random.seed(0), np.random.seed(0), torch.manual_seed(0)
            results.append((outcome(call, x.clone()), random.random(), np.random.rand(), torch.rand(1)))
        assert same(*results) is None


def refuses_negative(x, weight):
    was = weight.requires_grad
    weight.requires_grad_(not was)
    if x.sum() < 0:
        raise ValueError(was)
    return x * weight, was


def selects(x, weight):
    was = weight.requires_grad
    weight.requires_grad = not was
    return x[x.long() - 1], was


def selects_between(x, weight):
    was = weight.requires_grad
    weight.requires_grad_(not was)
    y = x[x.long() - 1]
    weight.requires_grad_(was)
    return y, was


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [refuses_negative, selects, selects_between])
def test_whether_a_leaf_requires_gradients_is_taken_back_before_python_runs_the_frame(fn, backend):
    found = []
    for call in fn, sot.to_static(fn, backend=backend):
        weight = torch.ones(2)
        found.append([(outcome(call, x, weight), weight.requires_grad)
                      for x in (torch.ones(2), -torch.ones(2) * 4, -torch.ones(2) * 4, torch.ones(2))])
    assert same(*found) is None
