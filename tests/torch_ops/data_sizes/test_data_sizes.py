"""Numbers and sizes that depend on data are part of the graph, and are Python's for every size: none, one and many."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Calls, Programs, outcome, same

import sot

one_graph, small_integers, breaking = Programs(), Calls(), Programs()
X = torch.linspace(-2, 3, 24).reshape(6, 4)
W = torch.linspace(-1, 1, 16).reshape(4, 4)
MANY = [X, X.flip(0), X - 10, X + 10, X - X[5, 0], X * 0 + torch.eye(6)[:, :4]]    # none, all, one or several


def compared(fn, calls, backend="eager", **settings):
    """The captures of a function that is called with each of these arguments, as Python calls it."""
    translated = sot.to_static(fn, backend=backend, **settings)
    for args in calls:
        theirs, mine = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
        want, got = outcome(fn, tuple(theirs), {}), outcome(translated, tuple(mine), {})
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            differs = same(getattr(got, name), getattr(want, name), name)
            assert not differs, (args, differs, got.raised)
    # Where an assertion fails, Python runs the function, and what it calls then is captured, too.
    return [capture for capture in translated.captures if not capture.name.endswith("<lambda>")]


# ---- sizes ------------------------------------------------------------------------------------------------------
@one_graph
def a_mask(x):
    y = x[x > 0]
    return y * 2, torch.masked_select(x, x < -1).sum(), y.shape, y.numel() + 1, len(y)


@one_graph
def results_given_as_out(x):
    y = x[x > 0]
    sums, ends = torch.empty(y.shape[0]), y.new_zeros(len(y) + 1)
    torch.cumsum(y, 0, out=sums)
    torch.cumsum(y, 0, out=ends[1:])
    return sums, ends


@one_graph
def rows(x):
    keep = x[:, 0] > 0
    y = x[keep]
    return y @ W, y.mean(0), y.softmax(1), y.reshape(-1, 2), y.new_zeros(y.shape[0], 2), y.view(len(y), 2, 2).flatten(1)


@one_graph
def elements_at_numbers(x):
    first = x.argmax(1).tolist()
    back, path = x.argsort(1), []
    for row, i in enumerate(first):
        j = int(back[row, i])
        path.append((i, j, back[row, j].item(), float(x[row, j])))
    return path, x[:, first[0]].tolist(), x.sum()


@one_graph
def positions(x):
    i = (x.sum(1) > 0).nonzero().squeeze(-1)
    a, b = torch.where(x > 1)
    return x[i], torch.zeros(6, 4).index_add(0, i, x[i]), x[a, b], torch.argwhere(x > 0).sum(0)


@one_graph
def other_dtypes(x):
    y, i = x[x > 0], x.nonzero()[:, 0]
    return y.int(), y.bool(), y.double(), y.half(), i.float() / 3, i.to(torch.int32), i.unique().float()


@one_graph
def values(x):
    found, where, counts = x.round().unique(return_inverse=True, return_counts=True)
    return found * 2, found[where], torch.repeat_interleave(found, counts), torch.unique_consecutive(x)


@one_graph
def routing(x):
    which, out = (x @ W).argmax(-1), torch.zeros_like(x)
    for expert in range(4):
        i = torch.nonzero(which == expert).squeeze(-1)
        out.index_add_(0, i, x[i] @ (W + expert))
    return out


@one_graph
def boxes(x):
    score = x[:, 3]
    keep = score > -0.5
    x, score = x[keep], score[keep]
    order = score.argsort(descending=True, stable=True)
    x, score = x[order], score[order]
    overlap = (x[:, None] - x[None]).abs().sum(-1).triu(1)
    near = (overlap < 1).sum(0) < 2
    return x[near], score[near][:3], torch.cat([x[near], x[~near]])


@one_graph
def written(x):
    y = x.clone()
    y[y > 0] = 1.
    y[(y < -1).nonzero(as_tuple=True)] = 0.
    z = torch.zeros_like(x)
    z[x > 0] = x[x > 0] * 2
    return y, z, x.masked_scatter(x > 0, x.flatten())


@one_graph
def shown(x):
    y = x[x > 0]
    print("kept", y.shape[0], f"{y.numel()} of {x.numel()}")
    return y.shape[0] / x.numel(), {"size": tuple(y.shape)}, min(y.numel(), 3), max(len(y), 1), y.numel() > 3


@one_graph
def a_rank_that_differs(x):
    y = x[x[:, 0] > 0]
    return y.squeeze(), y.dim()


@one_graph
def broadcast_to_one(x):
    y = x[x[:, 0] > 0]
    return y + torch.ones(1, 4), y * y


@one_graph
def a_loss(x):
    w = W.clone().requires_grad_()
    y = x @ w
    mask = y > 0
    loss = F.mse_loss(y[mask], x[mask])
    loss.backward()
    return loss, w.grad


@one_graph.each
def test_one_graph_for_all_sizes(fn):
    captures = compared(fn, [(x,) for x in MANY])
    assert [str(c.stopped) for c in captures if c.stopped] == [] and len(captures) == 1


# ---- numbers ------------------------------------------------------------------------------------------------------
@small_integers(*range(-2, 8))
def a_size(n):
    k = max(n.item(), 0)
    return torch.zeros(k), torch.ones(k, 2) + 1, torch.arange(k) * 2, X.new_full((k,), 2), torch.ones(k).expand(3, k)


@small_integers(*range(-8, 8))
def a_slice(n):
    k = n.item()
    return X[:k], X[k:], X[:, k:], X[:n] * 2, X[n:, 1:n], X[-1:k + 1]


@small_integers(*range(-2, 8))
def reckoned_with(n):
    k = n.item()
    return torch.arange(abs(k) + 2), X * k, X[:k * 2 + 1], X / (k * k + 1), X.sum(0) + (k - 1), k > 3, X + (k > 0)


@small_integers(3, *range(8))
def checked(n):
    k = n.item()
    torch._check(k >= 1)
    torch._check(k <= 6, lambda: "too many")
    return X[:k] if k >= 1 else X, X.narrow(0, 0, k)


@small_integers(2, *range(8))
def asserted(n):
    k = int(n)
    if k > 5:
        raise AssertionError("too many")
    if k == 3:
        raise ValueError("three")
    return X[:k]


@small_integers(*range(8))
def counted(n):
    mask = torch.arange(6) < n
    return X[mask], X.sum() / max(mask.sum().item(), 1), torch.zeros(mask.sum().item() + 1)


@small_integers(*range(1, 5))
def split(n):
    sizes = torch.stack([n, 5 - n, n * 0 + 1]).tolist()
    return [part.sum(0) for part in X.split(sizes)], [X[0].repeat(size) for size in sizes]


@small_integers(*range(-2, 3))
def a_size_that_is_given_by_minus_one(n):
    k = n.item()
    return torch.ones(1, 4).expand(k, 4), torch.ones(6).view(k, 3)


@small_integers.each
def test_numbers_are_in_the_graph(fn, args):
    captures = compared(fn, [(torch.tensor(n),) for n in args])
    assert len(captures) == 2, [str(c.stopped) for c in captures]       # the first for a constant
    assert captures[1].stopped is None


def test_a_check_before_a_break():
    def fn(n):
        k = n.item()
        torch._check(k > 2)
        sot.graph_break()
        return k + 1
    compared(fn, [(torch.tensor(n),) for n in (3, 1, 4, 2)])


def test_floats_and_truths():
    def fn(x):
        scale, any_ = x.max().item(), (x > 3).any().item()
        return x * scale + scale / 2, x.clamp(max=scale), torch.full((2,), x.min().item()), x * any_, int(any_) + 1
    captures = compared(fn, [(x,) for x in MANY])
    assert len(captures) == 1 and captures[0].stopped is None


def test_an_int_of_a_float():
    def fn(x):
        return torch.zeros(int(x.item()))
    captures = compared(fn, [(torch.tensor(v),) for v in (3.7, 0.5, 9.0, float("nan"), float("inf"), -2.0)])
    assert len(captures) == 1 and captures[0].stopped is None


# ---- what decides the way ---------------------------------------------------------------------------------------
@breaking
def a_branch_on_a_size(x):
    y = x[x[:, 0] > 0]
    return y.sum(0) if y.shape[0] > 2 else y.mean(0)


@breaking
def a_loop_over_rows(x):
    return [row.sum() for row in x[x[:, 0] > 0]]


@breaking
def a_list_of_a_size(x):
    return [0] * len(x[x > 1]), list(range((x > 1).sum().item()))


@breaking
def strides_that_depend_on_the_size(x):
    y = x[:, :max((x > 2).sum().item(), 1)]
    return y.is_contiguous(), y.stride(), y.contiguous().stride()


@breaking
def a_view_or_a_copy(x):
    y = x[:, :(x > 1).sum().item()].contiguous()
    y.add_(1)
    return y, x


@breaking
def an_input_that_has_changed(x):
    x.add_(1)
    y = x[x[:, 0] > 0]
    z = x[x[:, 1] > 0.5]
    try:
        return y + z
    except RuntimeError as error:
        return str(error)


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Passing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@breaking
def an_instance_of_a_subclass(x):
    n = (x > 0).sum().item()
    y = x.as_subclass(Seen)
    return (y[:n] * n).as_subclass(torch.Tensor), y[x > 0].shape[0]


@breaking
def under_a_mode(x):
    n = (x > 0).sum().item()
    with Passing():
        y = x[:n] * n
        z = x[x > 0]
    return y, z, z.shape[0]


@breaking
def a_branch_on_a_selection(x):
    y = x[x > 0]
    return y * 2 if y.sum() > 1 else y - 1


@breaking.each
def test_what_capture_cannot_know_is_right(fn):
    compared(fn, [(x,) for x in MANY])


@breaking.each
def test_the_same_with_branches_in_the_graph(fn):
    compared(fn, [(x,) for x in MANY], control_flow="graph")


def test_a_break_is_where_the_way_is_decided():
    captures = compared(a_branch_on_a_size, [(X,)])
    assert sum(c.stopped is not None for c in captures) == 1 and len(captures) == 2


def test_a_kernel_that_takes_no_symbols_is_a_break_for_its_shape_and_no_error_of_the_program():
    def fn(x):
        return torch.randperm(int((x > 0).sum()), generator=torch.Generator().manual_seed(1)).sum()

    captures = compared(fn, [(X,), (X + 1,)])
    assert {c.stopped.reason.name for c in captures if c.stopped} == {"TENSOR_SHAPE"}


@pytest.mark.parametrize("draw", [
    lambda n, generator: torch.randn(n, generator=generator),
    lambda n, generator: torch.randint(0, 9, (n, 2), generator=generator).float()])
def test_a_generator_draws_a_number_that_depends_on_data(draw):
    def fn(x):
        return draw(int((x > 0).sum()), torch.Generator().manual_seed(1)).sum()

    captures = compared(fn, [(X,), (X + 1,)])
    assert not any(c.stopped for c in captures)


# ---- other settings -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", [a_mask, rows, positions, values, boxes])
def test_backends_that_compile(fn):
    captures = compared(fn, [(x,) for x in MANY], backend="aot_eager")
    assert [str(c.stopped) for c in captures if c.stopped] == [] and len(captures) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive], ids=lambda f: f.__name__)
def test_positions_and_counts_are_integers(unique, backend):
    def fn(x):
        _, where, counts = unique(x, return_inverse=True, return_counts=True)
        return where.dtype, counts.dtype, where / 2, counts // 2
    compared(fn, [(torch.tensor([3.0, 1.0, 1.0, 2.0]),)], backend=backend)


def test_sizes_that_vary_beside_sizes_of_data():
    def fn(x):
        y = x[x > 0]
        return torch.cat([x.flatten(), y]), y.shape[0] + x.shape[0], x.new_zeros(x.shape[0], y.shape[0])
    captures = compared(fn, [(torch.linspace(-1, 1, 4 * n).reshape(n, 4),) for n in (3, 5, 2, 8)])
    assert len(captures) == 2 and not any(c.stopped for c in captures)


# ---- guesses that fail ------------------------------------------------------------------------------------------
failing = Programs()


@failing
def one_row_is_broadcast(x):
    y = x[x[:, 0] > 0]
    return (y + x).sum(0) * 2


@failing
def one_row_is_squeezed(x):
    return x[x[:, 0] > 0].squeeze(0) * 2


@failing
def a_slice_of_one_row_is_squeezed(x):
    n = (x[:, 0] > 0).sum().item()
    return x.flip(0)[:n].squeeze(0) * 2, n


@failing
def positions_are_expanded(x):
    return torch.sin(x).sum() + (x[:, 0] > 0).nonzero().expand(4, 1)


def one_row(i):
    """A tensor whose first column is positive in one row."""
    x = -X.abs() - 1
    x[i % 6, 0] = 1 + i
    return x


def runs_of(fn, calls, backend):
    """The number of graphs that each call runs, and the captures."""
    runs = []

    def counting(gm, inputs):
        compiled = gm.forward if backend == "eager" else sot.backends.lookup_backend(backend)(gm, inputs)

        def call(*args):
            runs[-1] += 1
            return compiled(*args)
        return call
    translated = sot.to_static(fn, backend=counting)
    for args in calls:
        runs.append(0)
        want, got = fn(*args), translated(*args)
        assert not same(got, want)
    return runs, translated.captures


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@failing.each
def test_a_guess_that_fails_at_each_call_is_given_up(fn, backend):
    runs, captures = runs_of(fn, [(one_row(i),) for i in range(8)], backend)
    assert runs == [1, 1, 1, 2, 2, 2, 2, 2]     # then there is a break where the size is made
    assert [len(c.recompile_reasons) for c in captures] == [0, 1, 0]
    reason, = captures[1].recompile_reasons
    assert "wrong at 3 of 3 calls" in reason.text and reason.file == __file__
    assert [c.stopped is not None for c in captures] == [False, True, False]


def test_a_guess_that_seldom_fails_is_kept():
    calls = [(one_row(i) if i % 6 == 0 else X,) for i in range(24)]
    runs, captures = runs_of(one_row_is_squeezed, calls, "eager")
    assert runs == [1] * 24 and len(captures) == 1


def test_a_guess_of_a_full_graph_is_kept():
    translated = sot.to_static(one_row_is_squeezed, full_graph=True)
    for i in range(6):
        assert not same(translated(one_row(i)), one_row_is_squeezed(one_row(i)))
    assert len(translated.captures) == 1


def test_an_assertion_of_the_program_that_fails_is_kept():
    def fn(x):
        n = (x > 0).sum().item()
        if n > 2:
            raise ValueError("too many")
        return x[:n].sum(0)
    captures = compared(fn, [(X,)] * 8)
    assert len(captures) == 1


@pytest.mark.slow
def test_a_compiled_graph_does_not_rely_on_a_guess():
    captures = compared(one_row_is_squeezed, [(X,), (one_row(0),), (X - 10,), (one_row(1),)], backend="inductor")
    assert len(captures) == 1 and captures[0].stopped is None


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 3 * gradient * x


@pytest.mark.parametrize("fn", [
    lambda x: (Square.apply(x), x.nonzero().shape[0]),
    lambda x: (x.nonzero().shape[0], Square.apply(x).nonzero().shape[0]),
    lambda x: Square.apply(x[x > 0]).sum()])
def test_an_autograd_function_among_sizes_that_depend_on_data(fn):
    def calls(x):
        return fn(x)
    captures = compared(calls, [(x.clone().requires_grad_(),) for x in MANY])
    assert {c.stopped for c in captures} == {None}
