"""Instances of wrapper subclasses: operations on them are nodes, which run on the program's instances."""
import copy
import copyreg

import pytest
import torch
from harness import Counter, Programs, every_call, outcome, same
from torch_ops.wrappers import classes
from torch_ops.wrappers.classes import Counting, Halving, Int8, Logging, Noting, Printing, Two, WithOptions

import sot

BACKENDS = ["eager", "aot_eager"]
X = torch.arange(12.0).reshape(3, 4) / 5 - 1


def two(**kw):
    return Two(X.clone(), X + 1, **kw)


whole = Programs()


@whole
def handed_in(t, x):
    y = t * x + 1
    return y.a, y.b, type(y).__name__, y.shape, y.scale, isinstance(y, Two)


@whole
def returned(t, x):
    return t * x, [t.relu()], t


@whole
def made_inside(t, x):
    made = Two(x, x + 1, scale=2.0)
    y = (made * 2).sin()
    return y.a, y.b, y.scale, made.a is x, made.a is made.a, y.a is y.b


@whole
def made_and_returned(t, x):
    return Two(x * 2, x, 3.0) @ x.t()


@whole
def methods_of_the_class(t, x):
    return t.swapped().a * 2, (t.swapped() + t).b


@whole
def changed_in_place(t, x):
    t.add_(x)
    return t.a * 2, t


@whole
def changed_inside(t, x):
    t.a.mul_(2)
    return t + x, t.a


@whole
def changed_through_the_parts(t, x):
    made = Two(x, x.clone())
    made.add_(1)
    return x * 2, made.a


@whole
def parts_are_the_programs(t, x):
    y = t.a * 2
    return t.a, t.b, y, t.a is t.a


@whole
def views(t, x):
    v = t.view(4, 3)[1:]
    return v.a, v.t().b, t[0].a, t.narrow(1, 1, 2).b


@whole
def of_wrappers(t, x):
    outer = Two(t, t * 2)
    y = outer * x
    return y.a.b, y.b.a, type(y.a)


@whole
def same_tensor_twice(t, x):
    made = Two(x, x)
    return (made * 2).a, made.a is made.b


@whole
def metadata_decides(t, x):
    return t.a if t.dim() == 2 and t.dtype is torch.float32 and not t.requires_grad and t.scale == 1 else x


def both(fn, args, backend):
    """Two calls of a function and of its translation: where they differ, and the captures."""
    translated = sot.to_static(fn, backend=backend if callable(backend) else every_call(backend))
    for _ in range(2):
        theirs, mine = copy.deepcopy(args), copy.deepcopy(args)
        want, got = outcome(fn, theirs, {}), outcome(translated, mine, {})
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            assert not (differs := same(getattr(got, name), getattr(want, name), name)), differs
    return sot.translation_of(translated)


@pytest.mark.parametrize("backend", BACKENDS)
@whole.each
def test_one_graph(fn, backend):
    found = both(fn, (two(), X + 2), backend)
    assert (len(found.graphs), [str(c.stopped) for c in found.captures if c.stopped]) == (1, [])


@pytest.mark.slow
@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
def test_quantized_weights(backend):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(Int8.quantized(layer.weight.detach()), requires_grad=False)
    translated = sot.to_static(model, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(translated(X), model(X))
        found = sot.translation_of(translated)
        assert (len(found.graphs), [str(c.stopped) for c in found.captures if c.stopped]) == (1, [])
    # another weight, of another context and dtype: the guards see it
    wide = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).double()
    model[0].bias, model[2].bias = wide[0].bias, wide[2].bias
    model[0].weight = torch.nn.Parameter(Int8.quantized(torch.randn(4, 4).double(), "other"), requires_grad=False)
    model[2].weight = torch.nn.Parameter(Int8.quantized(torch.randn(2, 4).double(), "other"), requires_grad=False)
    with torch.no_grad():
        torch.testing.assert_close(translated(X.double()), model(X.double()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    def fn(x, y):
        made = Two(x * 2, y)
        return (made.sin() * made).a.sum(), (made * 3).b
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    found = both(fn, (x, y), backend)
    assert len(found.graphs) == 1


def test_leaves_that_require_grad():
    def fn(t, x):
        return (t * x).sin()
    grads = []
    for run in (fn, sot.to_static(fn, backend=(backend := Counter()))):
        t = Two(X.clone(), X + 1).requires_grad_()
        run(t, X).sum().backward()
        grads.append(t.grad)
    assert not same(*grads) and len(backend.graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_that_the_program_drops(backend):
    def step(t, x):
        t.grad = None
        return (t * x).sin()
    leaves = []
    for run in (step, sot.to_static(step, backend=backend)):
        t = Two(X.clone(), X + 1).requires_grad_()
        for _ in range(3):
            run(t, X).sum().backward()
        run(t, X)
        leaves.append(t)
    assert [t.grad for t in leaves] == [None, None] and not sot.translation_of(run).explain().breaks


def test_guards():
    def fn(t, x):
        return (t * x).a + t.scale
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    variants = [two(), two(), two(scale=2.0), Two(X.double(), X.double()), Two(X, X.double()), Two(X.t(), X.t()),
                two().requires_grad_(), X.as_subclass(torch.Tensor)]
    for t in variants[:-1]:
        x = X.t() if t.shape != X.shape else X
        assert not same(translated(t, x), fn(t, x))
    assert len(backend.graphs) == 6
    same_part = X.clone()
    t = Two(same_part, same_part)
    assert not same(translated(t, X), fn(t, X)) and len(backend.graphs) == 7
    for _ in range(2):
        t = two()
        t.add_(1)
        assert not same(translated(t, X), fn(t, X)) and len(backend.graphs) == 7


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constructor_that_collects_its_options(backend):
    def fn(t, x):
        y = t * x
        return y.a, y.b, type(y).__name__
    found = both(fn, (WithOptions(X.clone(), X + 1), X + 2), backend)
    assert (len(found.graphs), [str(c.stopped) for c in found.captures if c.stopped]) == (1, [])


@pytest.mark.parametrize("kind", [Counting, Printing, Logging, Noting])
def test_classes_whose_code_has_effects(kind):
    """Python runs them, so the effects are those of the program."""
    def fn(t, x):
        return (t * x).a, t + 1
    def state():
        found = Counting.operations, len(classes.SEEN), classes.NOTED.pop("count", 0)
        Counting.operations = 0
        classes.SEEN.clear()
        return found
    effects = []
    for run in (fn, sot.to_static(fn, backend="eager")):
        t = kind(X.clone(), X + 1)
        state()
        effects.append([(outcome(run, (t, X), {}).printed, state()) for _ in range(2)])
    assert effects[0] == effects[1]


def test_what_the_code_of_a_class_reads_is_guarded():
    def fn(t):
        y = t * 2
        return y.a, y.a.dtype
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    try:
        for half in (False, True, False):
            Halving.halves = half
            assert not same(translated(Halving(X)), fn(Halving(X)))
    finally:
        Halving.halves = False
    assert len(backend.graphs) == 2


def test_an_attribute_that_flatten_leaves_out():
    def fn(t):
        return (t * 2).a
    t = Halving(X)
    t.note = "of the program"
    translated = sot.to_static(fn, backend="eager")
    assert not same(translated(t), fn(t))
    assert "note" in str(sot.translation_of(translated).captures[0].stopped)


def test_after_a_break():
    def fn(t, x):
        made = Two(x, x + 1)
        y = made * t
        print(y.a.sum().item() > 0)
        torch._dynamo.graph_break() if x is None else None
        z = open.__name__ and y + 1
        return z.b, made, y
    for backend in BACKENDS:
        both(fn, (two(), X), backend)


def test_text_values_and_stores():
    def text(t):
        return f"{t * 2}", repr(t)

    def values(t):
        return t.a.sum().item(), float((t * 2).a.max()), bool((t > 0).a.any())

    def store(t):
        y = t * 2
        y.a = t.b
        return (y + 1).a

    def compared(t):
        return t.a if (t.sum() > 100) else t.b
    for fn in (text, values, store, compared):
        both(fn, (two(),), "eager")


def test_whole_programs():
    def fn(t, x):
        for _ in range(3):
            t = t * x + Two(x, x)
        return t.a
    want = fn(two(), X)
    sot.enable()
    try:
        for _ in range(4):
            assert not same(fn(two(), X), want)
    finally:
        sot.disable()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_that_is_an_argument_as_well(backend):
    def fn(t, x):
        t.add_(1)
        y = x * 2
        x.mul_(3)
        return y, t * 1, t.a is x

    def call(run):
        t = two()
        return run(t, t.a), t
    translated = sot.to_static(fn, backend=every_call(backend))
    for _ in range(2):
        assert not same(call(translated), call(fn))


def test_instances_that_were_copied_before():
    """copy and pickle leave ``__slotnames__`` in the class."""
    t, y = two(), X.clone()
    copyreg._slotnames(Two)
    copyreg._slotnames(torch.Tensor)
    copy.copy(X)
    found = both(handed_in, (t, y), "eager")
    assert "__slotnames__" in vars(Two) and len(found.graphs) == 1


class Importing(Two):
    """Its code imports what has been imported before."""

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Importing(inner["a"], inner["b"], *meta)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        import torch.utils._pytree as pytree
        from torch.utils._pytree import tree_map_only
        a = func(*tree_map_only(Two, lambda t: t.a, args), **tree_map_only(Two, lambda t: t.a, kwargs or {}))
        b = func(*pytree.tree_map(lambda t: t.b if isinstance(t, Two) else t, args))
        return cls(a, b) if isinstance(a, torch.Tensor) else a


class ImportingOthers(Two):
    """The first operation may import a module, which runs its code."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        import wave
        return wave and super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind, graphs", [(Importing, 1), (ImportingOthers, 0)])
def test_code_that_imports(kind, graphs, backend):
    def fn(t):
        return (t * 2 + 1).relu().a
    t = kind(X.clone(), X + 1)
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        assert not same(translated(t), fn(t))
    assert len(translated.graphs) == graphs
