"""Objects with ``__torch_function__``, subclasses of Tensor among them: the protocol is followed in the graph."""
import pytest
import torch
from harness import Counter, Programs, check, same
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

import sot

X, Y = torch.arange(16.0).reshape(4, 4) / 7 - 1, torch.ones(4, 4)
LOG: list = []


class Adding(torch.Tensor):
    """Only adds to Tensor."""

    scale = 3

    def twice(self):
        return self * 2

    @property
    def scaled(self):
        return self * self.scale


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append((func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {}), kwargs is None))
        return super().__torch_function__(func, types, args, kwargs or {})


class LoggingMore(Logging):
    pass


class Counted(torch.Tensor):
    """Carries a number, which grows with each operation."""

    def __new__(cls, data, count=0):
        made = torch.as_tensor(data).as_subclass(cls)
        made.count = count
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs)
        if isinstance(out, Counted):
            out.count = 1 + max(a.count for a in args if isinstance(a, Counted))
        return out


class Closed(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.sum, torch.Tensor.sum):
            return "a sum"
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Duck:
    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.inner if isinstance(a, Duck) else a for a in args]
        return Duck(func(*args, **(kwargs or {})))


class Named(Duck):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [t.__name__ for t in types], kwargs


TABLE = {torch.mean: lambda s: s.inner, torch.add: lambda a, b: Scalar(a.inner + b.inner)}


class Scalar(Duck):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return TABLE[func](*args, **(kwargs or {})) if func in TABLE else NotImplemented


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(Y.clone().as_subclass(Adding))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) @ self.weight


def of(cls):
    return X.clone().as_subclass(cls)


def overridable(x, k=1):
    return handle_torch_function(overridable, (x,), x, k=k) if has_torch_function((x,)) else x * k


torch.manual_seed(0)
layer = Layer()
one_graph, with_breaks = Programs(), Programs()


@one_graph
def adds_methods(x=lambda: of(Adding)):
    return x.twice().scaled + 1, x.shape, x.scaled.size(0), type(x - 1), isinstance(x, torch.Tensor)


@one_graph
def hands_over_what_torch_does(x=lambda: of(Logging), y=lambda: Y.clone()):
    r, s = torch.add(x, y).mul(3), torch.stack([x, y], dim=1)
    return r, s, y + x, x @ y, torch.cat([x, y]), x.shape, x.T, F.relu(y), F.linear(x, y), len(x)


METHODS = ("abs", "t", "sum", "mean", "softmax", "clone", "detach", "contiguous", "cumsum", "sort", "norm", "split",
           "chunk", "var", "view_as", "expand_as", "__add__", "__rsub__", "__neg__", "__eq__", "__getitem__", "dim")
FUNCTIONS = (F.relu, F.sigmoid, F.tanh, F.normalize, F.silu, torch.exp, torch.numel, torch.flatten, torch.atleast_2d,
             torch.norm, torch.linalg.norm, torch.special.erf, torch.fft.fft, torch.zeros_like, torch.is_tensor)


@one_graph
def asks_for_each_operation_as_torch_does(x=lambda: of(Logging)):
    given = {"softmax": (0,), "cumsum": (0,), "split": (2,), "chunk": (2,), "view_as": (x,), "expand_as": (x,),
             "__add__": (2,), "__rsub__": (1,), "__eq__": (x,), "__getitem__": (0,)}
    return [getattr(x, name)(*given.get(name, ())) for name in METHODS], [f(x) for f in FUNCTIONS]


@one_graph
def asks_the_subclass_first(x=lambda: of(Logging), y=lambda: of(LoggingMore)):
    return x + y, y + x, torch.where(x > 0, x, y), x.max(0), x.split(2), torch.zeros_like(x), [row for row in x]


@one_graph
def changes_it(x=lambda: of(Logging)):
    x.add_(1)
    x[0] = 3
    x += 2
    return x * x


@one_graph
def differentiates(x=lambda: torch.Tensor._make_subclass(Logging, X.clone(), True)):
    return (x * x).sum()


@one_graph
def makes_one(x=lambda: X.clone()):
    y = x.as_subclass(Logging)
    y.note = 3
    z = torch.Tensor._make_subclass(LoggingMore, x) + y
    return y, z, type(z) is LoggingMore, y.note, hasattr(z, "note")


@one_graph
def carries_attributes(x=lambda: Counted(X.clone(), 5), y=lambda: Y.clone()):
    z = (x + 1) * y
    return z, z.count, Counted(y, 7).sum().count


@one_graph
def answers_what_it_likes(x=lambda: of(Closed)):
    return x.sum(), torch.sum(x), x + 1, type(x * 2)


@one_graph
def is_not_asked(x=lambda: of(Logging)):
    with torch._C.DisableTorchFunctionSubclass():
        y, asked = x + 1, has_torch_function_unary(x)
    return y, type(y), asked, has_torch_function_unary(x), has_torch_function((y,))


@one_graph
def hands_over_itself(x=lambda: of(Logging), y=lambda: Y.clone()):
    return overridable(x, k=2), overridable(y, k=3)


@one_graph
def is_no_tensor(x=lambda: X.clone(), d=lambda: Duck(X.clone())):
    return torch.add(Duck(x), 2).inner, F.relu(d).inner, torch.matmul(x, d), torch.sum(d, dim=0).inner, (x + d).inner


@one_graph
def says_what_it_was_asked(x=lambda: X.clone(), n=lambda: Named(1)):
    return x + n, n * x, x < n, torch.stack([x, n]), torch.sum(n, dim=0), torch.add(n, Duck(x)), x + x


@one_graph
def looks_up_a_table(s=lambda: Scalar(3), x=lambda: X.clone()):
    return torch.mean(s) + x, torch.add(s, s).inner * x


@one_graph
def has_weights(x=lambda: X.clone()):
    return layer(x), type(layer.weight)


@one_graph
def is_mapped(x=lambda: of(Logging)):
    return torch.func.vmap(lambda row: row * 2)(x)


class Tagged(torch.Tensor):
    """Made by Tensor's ``__new__``, with what it lacks computed by ``__getattr__``."""

    def __init__(self, data):
        self.tag = 7

    def __getattr__(self, name):
        if name == "nine":
            return 9
        raise AttributeError(name)


@one_graph
def is_made_of_a_tensor(x=lambda: X.clone()):
    y = Tagged(x)
    return y, y.tag, y.nine, hasattr(y, "ten"), (y + 1).sum(), type(y[0])


@one_graph
def shares_memory(x=lambda: X.clone()):
    y = x.as_subclass(Logging)
    y.add_(1)
    y[0].mul_(2)
    z = y.as_subclass(torch.Tensor)
    z[1] = 5
    return x, y, z, y is x, z is y


class Doubled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            x, w, *bias = args
            with torch._C.DisableTorchFunctionSubclass():
                return F.linear(x, w.as_subclass(torch.Tensor) * 2, *bias)
        return super().__torch_function__(func, types, args, kwargs)


doubled = torch.nn.Linear(4, 4)
doubled.weight = torch.nn.Parameter(doubled.weight.detach().as_subclass(Doubled))


@one_graph
def is_a_weight(x=lambda: X.clone()):
    return torch.relu(doubled(x)), type(doubled.weight), isinstance(doubled.weight, torch.nn.Parameter)


@with_breaks
def computes_gradients(x=lambda: torch.Tensor._make_subclass(Logging, X.clone(), True)):
    (x * x).sum().backward()
    return torch.autograd.grad((x * 2).sum(), x), x.grad


@with_breaks
def has_more_than_one_way(x=lambda: of(Logging)):
    x.note, x.t = 5, x * 2
    del x.note
    return torch.nn.Parameter(x), x.t, torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)


@one_graph
def is_refused(x=lambda: of(Closed), y=lambda: of(Logging)):
    try:
        return x + y
    except TypeError as e:
        return str(e).partition(":")[0]


@with_breaks
def is_looked_at(x=lambda: of(Logging)):
    if x.sum() > 0:
        x = x + 1
    return list(x), float(x.mean()), x.grad, x + 2


@with_breaks
def is_printed(x=lambda: of(Logging)):
    y = x + 1
    print(y.sum(), y.shape[0])
    return y * 2


@with_breaks
def goes_on_after_a_break(x=lambda: of(Counted)):
    x.count = 4
    y = x + 1
    sot.graph_break()
    return y * 2, (y * 2).count


def visible(v):
    """What the program can see of a value, without a class being asked."""
    if isinstance(v, torch.Tensor):
        held = {k: visible(w) for k, w in v.__dict__.items()}
        return type(v).__name__, v.as_subclass(torch.Tensor).detach().clone(), v.requires_grad, v.is_leaf, held
    if isinstance(v, (list, tuple)):
        return type(v).__name__, [visible(w) for w in v]
    return (type(v).__name__, visible(v.inner)) if isinstance(v, Duck) else v


def run(fn, make):
    """All that a call does, with new arguments."""
    LOG.clear()
    args = [m() for m in make]
    result = fn(*args)
    log = list(LOG)
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.backward()
        return visible([result, args, [a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad]]), log


def compare(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for _ in range(3):
        want, got = run(fn, fn.__defaults__), run(translated, fn.__defaults__)
        assert same(got, want) is None, same(got, want)
    return sot.translation_of(translated).captures


@one_graph.each
def test_torch_function_is_followed(fn):
    captures = compare(fn, backend := Counter())
    assert len(backend.graphs) <= 1 and not any(c.stopped for c in captures), [str(c.stopped) for c in captures]


@with_breaks.each
def test_what_is_not_followed_is_pythons(fn):
    assert any(c.stopped for c in compare(fn, Counter()))


@pytest.mark.parametrize("fn", [changes_it, differentiates, carries_attributes], ids=lambda fn: fn.__name__)
def test_graphs_that_are_compiled_are_given_plain_tensors(fn):
    compare(fn, "aot_eager")


def test_a_changed_class_is_another_program():
    class Changing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "first"

    translated = sot.to_static(lambda x: x + 1, backend="eager")
    assert [translated(of(Changing)) for _ in range(2)] == ["first"] * 2
    Changing.__torch_function__ = classmethod(lambda *given: "second")
    assert translated(of(Changing)) == "second"
    assert isinstance(translated(X), torch.Tensor)


def test_whether_classes_are_asked_is_guarded():
    translated = sot.to_static(lambda x: type(x + 1), backend="eager")
    assert translated(of(Adding)) is Adding
    with torch._C.DisableTorchFunctionSubclass():
        assert translated(of(Adding)) is torch.Tensor
    assert translated(of(Adding)) is Adding


@pytest.mark.parametrize("asks", [
    lambda func: func == torch.Tensor.ndim.__get__,
    lambda func: func in (torch.Tensor.T.__get__, torch.Tensor.ndim.__get__),
    lambda func: not func != torch.Tensor.ndim.__get__])
def test_the_getter_of_an_attribute_is_known_by_what_it_is(asks):
    class Ten(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 10 if asks(func) else super().__torch_function__(func, types, args, kwargs or {})

    def fn(x):
        return x.ndim + torch.ones(2), type(torch.Tensor.ndim.__get__).__name__

    x = X.as_subclass(Ten)
    same(sot.to_static(fn, backend="eager")(x), fn(x))


def test_modes_that_see_each_operation_are_counted():
    check(lambda x: x + len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()), torch.ones(2), graphs=1,
          breaks=0)


class HandlesNothing:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class HandlesNoProducts(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.mul, torch.Tensor.mul):
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs or {})


def test_an_operation_that_no_class_handles_raises_torchs_own_error():
    def caught(x):
        texts = []
        for call in (lambda: torch.add(HandlesNothing(), x), lambda: torch.cat([x, HandlesNothing()]),
                     lambda: torch.mul(x.as_subclass(HandlesNoProducts), HandlesNothing())):
            try:
                call()
            except TypeError as e:
                texts.append(str(e))
        return texts, x * 2
    check(caught, X, graphs=1, breaks=0)


def test_the_error_leaves_the_function_as_in_python():
    def leaves(x):
        y = x + 1
        return torch.add(HandlesNothing(), y)
    check(leaves, X)
