"""A size that changes is a constant for one call, and from then on a symbol: two captures, however many sizes."""
from __future__ import annotations

import math

import pytest
import torch
from harness import Counter, outcome, same

import sot

SIZES = (5, 8, 2, 3, 13, 7, 32)


def captured(fn, calls, **settings):
    """Run the calls plainly and translated; what was captured. Each call is made of arguments anew."""
    settings.setdefault("backend", Counter())
    translated = sot.to_static(fn, **settings)
    for make in calls:
        torch.manual_seed(0)
        mine = make()
        torch.manual_seed(0)
        want, got = outcome(fn, make(), {}), outcome(translated, mine, {})
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            differs = same(getattr(got, name), getattr(want, name), name)
            if name == "raised" and differs and got.raised is not None:
                raise got.raised
            assert not differs, differs
    captures = [c for c in sot.translation_of(translated).captures if (
        "filelock" not in c.place.file)]        # whose audit hook sees that functions are made
    assert not [c.stopped for c in captures if c.stopped is not None and c.stopped.reason.name == "INTERNAL"]
    return captures


def over(*shape, sizes=SIZES, grad=False):
    """Calls with one tensor, of whose shape a name is replaced by each of the sizes."""
    return [lambda n=n: (torch.randn([n if s == "n" else s for s in shape], requires_grad=grad),) for n in sizes]


def texts(captures):
    return {str(g) for g in captures[-1].guards}


# ---- programs that need one capture for the first size and one for all others ---------------------------------
def arithmetic(x):
    b, t, c = x.shape
    return x + b * 2 - t // 3 + b % 3 + b ** 2, (b + t) * c, b / t, -b, abs(b - 100), divmod(b, 3), b * 1.5


def functions(x):
    n = x.shape[0]
    return (x.sum() * math.ceil(n / 3), math.floor(n / 2), int(n / 2), float(n), round(n / 3), min(n, 4), max(n, 4, 6),
            math.sqrt(n), math.prod(x.shape), x.shape.numel(), sum(x.shape), pow(n, 2))


def shapes(x):
    b, t, c = x.shape
    y = x.view(b * t, c).reshape(t, b, -1).transpose(0, 1)
    return y.contiguous().view(b, -1), y.flatten(1), x.unsqueeze(1).expand(b, 3, t, c), x.view(-1)


def factories(x):
    n = x.size(0)
    return (torch.arange(n), torch.zeros(n, 2), torch.ones_like(x), x.new_empty(n + 1, 2).fill_(n), torch.full((n,), 7),
            torch.eye(n), torch.tril(torch.ones(n, n)))


def slicing(x):
    n = len(x)
    return (x[: n // 2], x[n // 2:], x[-1], x[:, : x.shape[1] - 1], x[1:], x[::2], x[n - 1], x[n - 1, 0], x[..., None],
            x.narrow(0, 0, n - 1))


def torch_size(x):
    s = x.shape
    return s[:-1] + (3,), s[1:], tuple(s), [*s], len(s), x.new_zeros(s[:-1] + (2,)), {"shape": s, "n": s[0]}


def lookups(x):
    return (x.size(), x.numel(), x.nelement(), x.dim(), x.stride(), x.shape == x.size(), x.shape[0] == x.shape[1],
            x.nbytes)


def text(x):
    n = x.shape[0]
    print("rows", n, f"{n:>5} of {x.shape[1]}", x.shape, n * 2)
    return f"{n}/{n + 1}", str(n), x * 2


def reductions(x):
    return x.mean(), x.sum() / x.shape[0], x.softmax(0), x.std(0), x.cumsum(0), x.sort(0).values, x.argmax(0), x.norm()


def broadcasting(x):
    n = x.shape[0]
    return (x + torch.ones(n, 1, 1), x * torch.arange(n).view(-1, 1, 1), x - x.mean(0, keepdim=True),
            x @ x.transpose(1, 2))


def joining(x):
    a, b = x.chunk(2, -1)
    return torch.cat([x, x], 0), torch.stack([x, x]), torch.cat([a, b, a], -1), x.repeat(2, 1, 1), x.unbind(-1)


def in_place(x):
    y = x.clone()
    y[: x.shape[0] // 2] = 0
    y[:, 0] += 1
    y.mul_(2).add_(x.shape[0])
    return y


def indexing(x):
    return x[torch.arange(x.shape[0] - 1, -1, -1)], x.index_select(0, torch.tensor([0, 1])), x.flip(0), torch.where(
        x > 0, x, x.shape[0]), x.masked_fill(x > 0, -1), x.gather(0, torch.zeros_like(x, dtype=torch.long))


def helper(y, rows):
    return y.view(rows, -1).sum(1), rows + 1


def calls(x):
    return helper(x, x.shape[0]), helper(x * 2, rows=len(x)), (lambda k: k * x.shape[0])(2)


def branches(x):
    if x.shape[0] > 1000:
        x = x * 2
    while x.shape[0] > 100:
        x = x[::2]
    return x + (1 if x.shape[0] else 2), bool(x.shape[0]), not x.shape[0], x.shape[0] is None, x.shape[0] > 0


PROGRAMS = [arithmetic, functions, shapes, factories, slicing, torch_size, lookups, text, reductions, broadcasting,
            joining, in_place, indexing, calls, branches]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_two_captures_for_all_sizes(program):
    captures = captured(program, over("n", 6, 4))
    assert len(captures) == 2, [c.recompiled_because for c in captures]
    assert not any(c.stopped or c.static for c in captures), [c.stopped or c.static for c in captures]


@pytest.mark.parametrize("program", [arithmetic, shapes, slicing, reductions, broadcasting, in_place, calls],
                         ids=lambda f: f.__name__)
def test_gradients(program):
    assert len(captured(program, over("n", 6, 4, grad=True))) == 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_that_are_special(program):
    captures = captured(program, over("n", 3, 4, sizes=(3, 4, 1, 0, 2, 1, 0, 5, 4, 3)))
    assert len(captures) <= 5, [c.recompiled_because for c in captures]


@pytest.mark.parametrize("program", [arithmetic, shapes, slicing, broadcasting], ids=lambda f: f.__name__)
def test_several_sizes_that_change(program):
    sizes = [(3, 4, 5), (5, 4, 3), (4, 4, 4), (7, 3, 2), (2, 9, 9), (6, 6, 2), (8, 2, 7)]
    captures = captured(program, [lambda s=s: (torch.randn(s),) for s in sizes])
    assert len(captures) <= 3, [c.recompiled_because for c in captures]


# ---- what is guarded, and how it reads --------------------------------------------------------------------------
def test_what_the_program_needs_is_guarded_in_the_users_words():
    captures = captured(lambda x: x * 2 if x.shape[0] > 3 else x + 1, over("n", 4, sizes=(5, 8, 4, 2, 3, 9)))
    assert [c.recompiled_because[-1:] for c in captures] == [
        [], ["expected x is a float32 tensor of shape (5, 4) on cpu, got float32 tensor of shape (8, 4) on cpu "
             "(x.shape[0] was 5)"],
        ["expected x is a float32 tensor of shape (5, 4) on cpu, got float32 tensor of shape (2, 4) on cpu "
         "(x.shape[0] was 5)"]]
    assert captures[2].recompiled_because[0] == "expected x.shape[0] > 3, got 2"
    assert {"x.shape[0] <= 3", "x.shape[0] >= 2", "x is a float32 tensor of shape (any, 4) on cpu"} <= texts(captures)


def test_sizes_are_equal_only_if_the_program_needs_it():
    def apart(x, y):
        return x.sum() * y.shape[0] + y.mean()

    def together(x, y):
        return x + y
    pairs = [(5, 5), (8, 8), (4, 9), (3, 3)]
    calls = [lambda a=a, b=b: (torch.ones(a), torch.ones(b)) for a, b in pairs]
    assert len(captured(apart, calls)) == 2
    assert "x.shape[0] == y.shape[0]" in texts(captured(together, calls[:2]))


def test_divisibility_is_guarded_as_such():
    captures = captured(lambda x: x.view(-1, 4).sum(0), over("n", sizes=(8, 12, 16, 40)))
    assert len(captures) == 2 and any("% 4 == 0" in text for text in texts(captures)), texts(captures)


def test_a_size_that_becomes_a_constant_says_so():
    captures = captured(lambda x: [x * 2] * [1, 2, 3, 4, 5, 6][x.shape[0] - 2], over("n", sizes=(2, 3, 4)))
    assert captures[2].recompiled_because[0] == "expected x.shape[0] - 2 == 1, got 2"


# ---- settings -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_dynamic_at_once_and_never():
    assert len(captured(shapes, over("n", 6, 4), dynamic=True)) == 1
    assert len(captured(shapes, over("n", 6, 4), dynamic=False)) == len(SIZES)
    calls = [lambda k=k: (torch.ones(3), k) for k in (5, 6, 0, 1)]
    assert len(captured(lambda x, k: x * k, calls, dynamic=True)) == 1
    assert len(captured(lambda x, k: x * k, calls, dynamic=False)) == 4


def test_an_input_spec_names_dimensions():
    def f(x, mask):
        return (x * mask[:, None]).sum() * x.shape[0] if x.shape[1] > 3 else x.sum()
    spec = [sot.InputSpec(["batch", None]), sot.InputSpec(["batch"])]
    calls = [lambda a=a, b=b: (torch.randn(a, b), torch.ones(a)) for a, b in ((5, 4), (6, 7), (9, 9), (6, 3))]
    captures = captured(f, calls, input_spec=spec)
    assert len(captures) == 2 and captures[1].recompiled_because == ["expected x.shape[1] > 3, got 3"]
    assert {"batch >= 2", "batch == mask.shape[0]"} <= {str(g) for g in captures[0].guards}
    with pytest.raises(ValueError, match=r"dimension 0 \(batch\) is 4, and dimension 0 of argument 'x' is 5"):
        sot.to_static(f, input_spec=spec)(torch.ones(5, 4), torch.ones(4))


def test_dimensions_of_a_tensor_are_marked():
    def marked(n):
        x = torch.randn(n, 3)
        sot.mark_dynamic(x, -2)
        return (x,)
    assert len(captured(shapes_of_two, [lambda n=n: marked(n) for n in SIZES])) == 1
    with pytest.raises(IndexError, match="dimension 2 of a tensor of 2 dimensions"):
        sot.mark_dynamic(torch.ones(2, 2), 2)


def shapes_of_two(x):
    return x.view(-1) * x.shape[0], x.T @ x


# ---- programs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [arithmetic, shapes, slicing, reductions, in_place], ids=lambda f: f.__name__)
def test_backends_of_torch_compile_take_symbols(program, backend):
    """A compiler may need to know more, such as whether a half of the size is 1."""
    captures = captured(program, over("n", 6, 4, grad=True), backend=backend)
    assert len(captures) <= (2 if backend == "eager" else 4), [c.recompiled_because for c in captures]


def test_an_index_and_a_count_through_a_backend_that_compiles():
    calls = [lambda k=k: (torch.arange(40.0), k) for k in range(3, 9)]
    assert len(captured(lambda x, k: x[k] + x[:k].sum() * k, calls, backend="aot_eager")) == 2


def test_an_index_beside_new_axes():
    """The stride of a new axis is that of the program, also where its size is 1."""
    def program(x, k):
        y = x.reshape(5, 4, 2)
        parts = (y[..., None, k % 2], y[k % 5, None], y[None, :, k % 4], y[1:3, None, k % 4, None],
                 y[None, k % 5, ..., 0], y[k % 5, None, ..., None, k % 2])
        return [(part, part.stride()) for part in parts]
    calls = [lambda k=k: (torch.arange(40.0), k) for k in range(3, 9)]
    assert len(captured(program, calls)) == 2


def test_a_convolutional_net_takes_images_of_any_size():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                                torch.nn.MaxPool2d(2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    sizes = [(8, 8), (10, 12), (16, 9), (21, 30), (7, 7)]
    parities = 3 if torch.__version__.startswith("2.11") else 0     # which pooling of that version asks for
    assert len(captured(model, [lambda s=s: (torch.randn(2, 3, *s),) for s in sizes])) == 2 + parities


def test_a_cache_grows_by_one_at_each_step():
    def step(x, cache):
        cache["k"] = torch.cat([cache["k"], x], 1) if "k" in cache else x
        weights = (x @ cache["k"].transpose(1, 2)).softmax(-1)
        return weights @ cache["k"], cache["k"].shape[1]

    mine: dict = {}
    theirs: dict = {}
    translated = sot.to_static(step, backend="eager")
    for i in range(60):
        x = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(i))
        assert not same(translated(x, mine), step(x, theirs))
    assert len(translated.captures) <= 4, [c.recompiled_because for c in translated.captures]


def test_sizes_and_numbers_cross_breaks():
    def f(x, n):
        y = x.view(-1, 2) * x.shape[0]
        sot.graph_break()
        z = y[: x.shape[0]] + n
        sot.graph_break()
        return z.sum(0) * (x.shape[0] + y.shape[0]), n + 1
    calls = [lambda n=n: (torch.randn(n, 4), n) for n in range(2, 12)]
    assert len(captured(f, calls)) == 6


def test_views_are_tensors_like_others():
    data = torch.randn(100, 4)
    calls = [lambda i=i, n=n: (data[i:i + n],) for i, n in ((0, 8), (8, 16), (24, 30), (3, 5))]
    assert len(captured(lambda x: x * 2 + x.shape[0], calls)) == 2
    assert len(captured(lambda x: (x + 1).contiguous().view(-1), [
        lambda n=n: (torch.randn(n, n + 4).t(),) for n in (3, 5, 8, 9)])) == 2
    assert len(captured(lambda x: x * 2, [lambda n=n: (torch.randn(n, n + 4)[:, :n - 1],) for n in (3, 5, 8, 9)])) == 3


def test_views_of_one_tensor_of_which_one_is_changed():
    def f(a, b):
        before = b + 0
        a.add_(1)
        return before, b * 2

    def make(n):
        base = torch.arange(float(2 * n))
        return base[:n], base[1:n + 1]
    captured(f, [lambda n=n: make(n) for n in (4, 6, 8)])


@pytest.mark.slow
def test_an_input_that_changes_its_shape():
    captured(lambda x: (x.unsqueeze_(1), x.shape, x * 2), over("n", 3, sizes=(4, 5, 6)))
    captured(lambda x: x.t_().add_(1), over("n", 3, sizes=(4, 5, 6)), backend="aot_eager")


def test_a_change_of_an_input_whose_size_becomes_a_constant():
    captures = captured(lambda x: (x.add_(1), x.unbind(0)[0]), over("n", 3, sizes=(4, 5, 6)))
    assert not any(c.static for c in captures), [c.static for c in captures]


@pytest.mark.parametrize("function", [
    lambda n: int(n * 0.3), lambda n: round(n * 0.5), lambda n: int(n ** 0.5), lambda n: max(1, int(n / 3 * 2))],
    ids=["int", "round", "of a root", "at least one"])
def test_sizes_that_are_made_of_floats_may_differ(function):
    captures = captured(lambda x: (x[:function(len(x))].sum(), x.new_zeros(function(len(x)) * 2)),
                        over("n", sizes=(10, 15, 21, 40, 7)))
    assert len(captures) <= 2 and not any(c.static for c in captures), [c.static for c in captures]


def test_a_loop_over_time_stays_a_loop_when_its_length_varies():
    def rnn(x, h):
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] + h)
        return h
    calls = [lambda t=t: (torch.randn(2, t, 3), torch.zeros(2, 3)) for t in (3, 5, 8, 9, 12, 40, 1, 0)]
    captures = captured(rnn, calls)
    assert not any(c.fallback for c in captures)
    assert sum(c.graph is not None for c in captures) <= 6, [c.recompiled_because for c in captures]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("made_inside", [True, False])
def test_sizes_vary_in_inference_mode(made_inside, backend):
    """An inference tensor has a fake that is one, too: the program can ask for it, and change it in place."""
    def fn(x):
        y = x.t()
        y.mul_(2)
        return y + 1, x.is_inference()
    translated = sot.to_static(fn, backend=backend)
    for n in (2, 3, 5, 7, 9):
        with torch.inference_mode(made_inside):
            x = torch.arange(n * 4.0).reshape(n, 4)
        with torch.inference_mode():
            mine, theirs = x.clone() if made_inside else x, x * 1
            (got, inside), (wanted, _) = translated(mine), fn(theirs)
        assert inside is made_inside and got.is_inference()
        torch.testing.assert_close((got, mine), (wanted, theirs))
    assert len(sot.translation_of(translated).captures) == 2


@pytest.mark.parametrize("make", [
    lambda x, v: torch.full((x.shape[0],), v), lambda x, v: x.new_full((2, x.shape[0]), v * 2),
    lambda x, v: torch.full(size=(x.shape[0],), fill_value=v), lambda x, v: torch.full((x.shape[0],), x.shape[0]),
    lambda x, v: torch.full((x.shape[0],), int(v), dtype=torch.int64), lambda x, v: torch.full_like(x, v),
    lambda x, v: torch.tensor([x.shape[0], v])])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_whose_size_and_elements_vary(make, backend):
    def f(x, v):
        y = make(x, v)
        return y, y.shape, torch.ones(y.shape), y.stride(), y.numel() * 2
    captured(f, [lambda n=n: (torch.ones(n), n / 4 + 0.5) for n in (3, 5, 4, 7, 6, 3)], backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [
    lambda x: x.storage_offset(), lambda x: x[1:].storage_offset(), lambda x: x.view(2, -1)[1].storage_offset(),
    lambda x: x.as_strided((2, 2), (1, 1), 1) * 2, lambda x: x.add_(1).storage_offset(),
    lambda x: x.as_strided((2,), (1,), 2), lambda x: torch.as_strided(x, (2,), (1,), storage_offset=1).sum()])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_an_input_that_begins_elsewhere_in_its_memory(ask, backend):
    def f(x):
        return ask(x), x + 1, x[1:]
    translated = sot.to_static(f, backend=backend)
    for offset, size in ((1, 4), (1, 6), (0, 8), (2, 8), (0, 4), (1, 4), (1, 10)):
        got, want = (fn(torch.arange(float(size + offset))[offset:]) for fn in (translated, f))
        assert not same(got, want), (offset, size)
