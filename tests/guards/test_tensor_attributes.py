"""What a program can ask of a tensor that is no tensor, all of it: constant, guarded, or left to Python.

Two inputs that differ in nothing but what the guard on a tensor leaves out (where the memory begins, who shares it,
what autograd keeps) go through one translated function, in either order, and give what plain Python gives.
"""
import copy
import warnings

import pytest
import torch

import sot
from sot.torch_compat import tensors as known

CLASSIFIED = known.CONSTANT_ATTRIBUTES | known.CONSTANT_METHODS | known.VALUES | set(known.ASKED) | known.LEFT
# Operations that have no operator of ATen's name in some version, constructors, and what a class has for Python.
OPERATIONS = frozenset("""
    H T cholesky qr grad_fn as_subclass backward bfloat16 byte cdouble cfloat char double half ipu long mtia
    new new_tensor register_hook register_post_accumulate_grad_hook retain_grad short to_sparse_coo unique xpu
    __array_wrap__ __delitem__ __floordiv__ __getitem__ __iadd__ __idiv__ __ifloordiv__ __imod__ __imul__ __invert__
    __ipow__ __isub__ __iter__ __itruediv__ __mod__ __pos__ __radd__ __rdiv__ __rfloordiv__ __rlshift__ __rmatmul__
    __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rtruediv__ __rxor__ __setitem__ __truediv__
    __torch_dispatch__ __torch_function__ __weakref__ __annotations__ _dtensor__new__ _make_subclass
    _make_wrapper_subclass _python_dispatch __module__ __slotnames__""".split())


def gives_tensors(name):
    """Has ATen an operator of this name whose result is a tensor?"""
    for operator in (name, name.strip("_")):
        try:
            packet = getattr(torch.ops.aten, operator)
            if any("Tensor" in str(r.type) for o in packet.overloads() for r in getattr(packet, o)._schema.returns):
                return True
        except (AttributeError, RuntimeError):
            pass
    return False


def test_each_attribute_is_classified():
    """What is new in torch is constant, asked or left: see sot/torch_compat/tensors.py."""
    names = set(dir(torch.Tensor)) - OPERATIONS - set(dir(object)) - CLASSIFIED
    assert not [name for name in sorted(names) if not gives_tensors(name)]


def inputs():
    """Tensors of one dtype and shape that differ in what the guard on a tensor does not compare."""
    base = torch.arange(10.0, requires_grad=True)
    with torch.no_grad():
        view = torch.arange(10.0)[2:6]
    retained = base[:4] * 2
    retained.retain_grad()
    changed = torch.zeros(4).add_(1)
    return {"own": torch.ones(4), "view": view, "shared": torch.ones(4).share_memory_(), "changed": changed,
            "leaf": torch.ones(4, requires_grad=True), "result": torch.ones(4, requires_grad=True) * 2,
            "second result": torch.stack([base[:4], base[:4]]).unbind()[1], "retained": retained}


OTHER = torch.ones(4)


def ask(x, name, *args):
    found = getattr(x, name)
    if callable(found):
        found = found(*args)
    return found if isinstance(found, (int, float, bool, str, torch.dtype, torch.Size, tuple)) else type(found).__name__


SKIPPED = frozenset("""__sizeof__ share_memory_ apply_ map_ map2_ module_load reinforce __setstate__ record_stream type
    _fix_weakref _clear_non_serializable_cached_data __deepcopy__ __reduce_ex__ _reduce_ex_internal __reduce__
    __repr__ __str__ __format__ is_pinned""".split())      # change it, take other arguments, or are slow


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted((set(known.ASKED) | known.LEFT | {"grad_fn", "grad"}) - SKIPPED))
def test_what_no_guard_on_a_tensor_compares(name):
    if not hasattr(torch.Tensor, name):
        pytest.skip("not in this version of torch")
    args = (OTHER,) if name in ("is_set_to", "equal", "allclose", "__contains__") else ()
    def fn(x):
        return ask(x, name, *args), x + 1

    def result(f, x):
        try:
            return f(x)[0]
        except Exception as e:      # noqa: BLE001 - what sparse and quantized tensors have alone
            return type(e)
    made = inputs()
    for order in ([*made], [*made][::-1]):
        g = sot.to_static(fn, backend="eager")
        for kind in order:
            assert result(g, made[kind]) == result(fn, made[kind]), kind


@pytest.mark.parametrize("fn", [
    lambda x: x.as_strided((2,), (1,), x.storage_offset()),
    lambda x: x * x[1:].storage_offset() if x[1:].storage_offset() > 1 else x,
    lambda x: x * x.detach().view(2, 2)[1].storage_offset() if x.dim() else x,
    lambda x: (x + 1).storage_offset() + x,
    lambda x: x * (2 if x.is_leaf else 3) + (x + 1).output_nr,
    lambda x: x * (2 if x.grad_fn is None else 3),
    lambda x: (x + 1, type(x.grad_fn).__name__, x.grad_fn.name() if x.grad_fn is not None else ""),
    lambda x: x + (1 if x.is_set_to(OTHER) else 5),
    lambda x: x + x.is_shared() + x._is_view() * 2,
    lambda x: copy.deepcopy(x) + 1 if not x.requires_grad else x,
    lambda x: x + (2 if x.view(2, 2)._is_view() else 3),
    lambda x: x * (torch.is_tensor(x) + torch.is_floating_point(x) + x.numel() + x.element_size()),
], ids=lambda fn: f"line {fn.__code__.co_firstlineno}")
def test_programs_that_ask(fn):
    made = inputs()
    for order in ([*made], [*made][::-1]):
        g = sot.to_static(fn, backend="eager")
        for kind in order:
            assert outcome(g, made[kind]) == outcome(fn, made[kind]), kind


def outcome(fn, x):
    found = fn(x)
    tensor, *rest = found if isinstance(found, tuple) else (found,)
    return tensor.tolist(), rest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", [("leaf", "result"), ("result", "leaf")])
def test_a_backward_that_began_elsewhere(order):
    """A leaf's gradient ends with it; that of a result goes on to what it was made from."""
    def fn(x):
        y = (x * x).sum()
        y.backward()
        return y

    def gradients(f):
        found = []
        for kind in order:
            leaf = torch.ones(4, requires_grad=True)
            f(leaf if kind == "leaf" else leaf * 3)
            found.append(leaf.grad.tolist())
        return found
    assert gradients(sot.to_static(fn, backend="eager")) == gradients(fn)


def test_no_warning_of_a_gradient_that_is_not_asked_for():
    def fn(x):
        return x * 2 if not x.is_leaf or x.grad is None else x.grad
    g = sot.to_static(fn, backend="eager")
    for _ in range(2):
        g(torch.ones(4, requires_grad=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g(torch.ones(4, requires_grad=True) * 2)


def test_after_a_change():
    def fn(x, y):
        before = x.is_leaf, x.requires_grad
        x.mul_(2)
        x.requires_grad_()
        return before, x.is_leaf, x.grad_fn is None, y.detach().is_leaf

    for _ in range(2):
        for make in (lambda: torch.ones(4), lambda: torch.ones(9)[2:6]):
            y = torch.ones(4, requires_grad=True)
            assert sot.to_static(fn, backend="eager")(make(), y * 2) == fn(make(), y * 2)


@pytest.mark.parametrize("had", [False, True], ids=["it was not there", "it was there"])
def test_an_attribute_that_is_set_and_deleted_is_gone(had):
    def program(x):
        x.label = {"rows": 3}
        y = x * x.label["rows"]
        del x.label
        return y, hasattr(x, "label")
    translated = sot.to_static(program, backend="eager")
    for present in (had, not had):
        x = torch.ones(2)
        if present:
            x.label = 1
        y, after = translated(x)
        assert y.tolist() == [3.0, 3.0] and not after and not hasattr(x, "label")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["grad", "grad_fn", "is_leaf"])
def test_a_history_that_autograd_refuses_to_return(name):
    """Its view is one of several, whose base has been changed: torch raises, or answers without looking."""
    def fn(x):
        with torch.no_grad():
            x[0] = 0.5
        return getattr(x, name), x + 1

    def called(f):
        try:
            return f(torch.ones(2, 3, requires_grad=True).mul(1).unbind()[1])[0]
        except RuntimeError as e:
            return str(e)
    g = sot.to_static(fn, backend="eager")
    assert called(g) == called(fn)
    assert all(c.stopped is None or c.stopped.reason.name != "INTERNAL" for c in g.captures)


def test_versions_of_many_tensors_at_once():
    changed, weight = torch.ones(2).add_(1).add_(1), torch.nn.Parameter(torch.ones(2))
    with torch.inference_mode():
        without = torch.ones(2)
    with torch.no_grad():
        weight.mul_(2)
    assert known.versions_of([changed, 3, without, weight, None, changed.detach()]) == [2, 1, 2]
