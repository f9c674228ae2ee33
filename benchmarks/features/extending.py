"""``torch.library``, ``torch.overrides``, subclasses of tensors, modes, ``torch.fx`` and ``torch.distributed``."""
from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch import fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .program import Group, leaf, plain

# ---- torch.library ----
library = Group("torch.library")


@torch.library.custom_op("features::scale", mutates_args=())
def scale(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


@scale.register_fake
def _(x, k):
    return torch.empty_like(x)


def scale_setup(ctx, inputs, output):
    ctx.k = inputs[1]


def scale_backward(ctx, g):
    return g * ctx.k, None


scale.register_autograd(scale_backward, setup_context=scale_setup)


@torch.library.custom_op("features::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("features::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0.5].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


LIB = torch.library.Library("features_lib", "DEF")
LIB.define("twice(Tensor x) -> Tensor")
LIB.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("features_lib::twice", torch.empty_like)
LIB.define("split2(Tensor x, int[] sizes) -> Tensor[]")
LIB.impl("split2", lambda x, sizes: [t.clone() for t in x.split(sizes)], "CompositeImplicitAutograd")


@library.of(leaf)
def custom_operators(x):
    return scale(x, 2.0).sin(), torch.ops.features.scale(x, 3.0)


@library
def operators_that_change_arguments(x):
    bump(x)
    torch.ops.features.bump(x)
    return x * 2


@library
def operators_with_sizes_of_data(x):
    return positive(x) * 2


@library
def operators_defined_by_schemas(x):
    return torch.ops.features_lib.twice(x), torch.ops.features_lib.twice.default(x) + 1


@library
def operators_that_return_lists(x):
    a, b = torch.ops.features_lib.split2(x, [1, 2])
    return a + b


@library
def operators_of_aten(x):
    return torch.ops.aten.add.Tensor(x, x), torch.ops.aten.sum.dim_IntList(x, [1]), torch.ops.aten.topk(x, 2)[0]


@library
def schemas_of_operators(x):
    return x + 1, str(torch.ops.aten.relu.default), torch.ops.aten.add.Tensor._schema.name


@library
def batched_operators(x):
    return torch.vmap(torch.ops.aten.relu)(x), torch.vmap(torch.ops.aten.mul.Tensor, (0, None))(x, torch.ones(4))


# ---- torch.overrides: __torch_function__ ----
overrides = Group("torch.overrides")


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Logged):
            result.last = getattr(func, "__name__", str(func))
        return result


@overrides
def subclasses_that_note(x):
    y = x.as_subclass(Logged)
    z = (y * 2).sin()
    return z.as_subclass(torch.Tensor), z.last, type(z + 1).__name__


class Quantity:
    def __init__(self, value, unit):
        self.value, self.unit = value, unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        values = [a.value if isinstance(a, Quantity) else a for a in args]
        return Quantity(func(*values, **(kwargs or {})), next(a.unit for a in args if isinstance(a, Quantity)))


@overrides
def objects_like_tensors(x):
    q = torch.add(Quantity(x, "m"), torch.ones(4))
    return q.value, q.unit, torch.overrides.is_tensor_like(q), torch.mean(q).value


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(torch.overrides.resolve_name(func))
        return func(*args, **(kwargs or {}))


@overrides
def modes_of_functions(x):
    with Counting() as mode:
        y = torch.relu(x) + 1
    return y, mode.names


def weighted(x, w):
    if torch.overrides.has_torch_function((x, w)):
        return torch.overrides.handle_torch_function(weighted, (x, w), x, w)
    return x * w


@overrides
def functions_that_can_be_overridden(x):
    return weighted(x, 2.0), weighted(Quantity(x, "s"), 3.0).value


@overrides
def subclass_functions_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        return type(x.as_subclass(Logged) * 2).__name__, x + 1


class Tagged(torch.Tensor):
    @staticmethod
    def __new__(cls, data, tag):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, tag):
        self.tag = tag

    @property
    def doubled(self):
        return self * 2


@overrides
def subclasses_with_attributes(x):
    t = Tagged(x, "a")
    return t.tag, torch.Tensor(t.doubled), isinstance(t + 1, Tagged)


@overrides
def tables_of_overrides(x):
    return (
        x + 1, torch.overrides.is_tensor_method_or_property(torch.Tensor.add), torch.overrides.resolve_name(torch.add))


HANDLED = {}


def implements(function):
    def register(f):
        HANDLED[function] = functools.wraps(function)(f)
        return f
    return register


class Diagonal:
    def __init__(self, n, value):
        self.n, self.value = n, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED:
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


@implements(torch.matmul)
def _(a, b):
    return b * a.value if isinstance(a, Diagonal) else a * b.value


@overrides
def functions_handled_by_tables(x):
    return torch.matmul(Diagonal(3, 2.0), x), torch.matmul(x, Diagonal(4, 3.0))


@overrides
def functions_not_handled(x):
    try:
        torch.add(Diagonal(3, 2.0), x)
    except TypeError as e:
        return type(e).__name__, x * 2


# ---- __torch_dispatch__ ----
dispatch = Group("__torch_dispatch__")


class Two(torch.Tensor):
    """Two tensors of one shape."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device, strides=a.stride(),
                                                   requires_grad=a.requires_grad)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return f"Two({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def part(name):
            return tree_map(lambda t: getattr(t, name) if isinstance(t, Two) else t, (args, kwargs or {}))
        (args_a, kwargs_a), (args_b, kwargs_b) = part("a"), part("b")
        a, b = func(*args_a, **kwargs_a), func(*args_b, **kwargs_b)
        return Two(a, b) if isinstance(a, torch.Tensor) else a


@dispatch
def wrappers_made_inside(x):
    t = Two(x, x + 1)
    y = (t * 2).sin()
    return y.a, y.b, type(y).__name__, y.shape


@dispatch.of(lambda: (Two(torch.ones(3, 4), torch.zeros(3, 4)), torch.ones(3, 4)))
def wrappers_handed_in(t, x):
    y = t * x + 1
    return y.a, y.b


class Quantized(torch.Tensor):
    """Weights of eight bits with a scale for each row, as libraries of quantization have them."""

    @staticmethod
    def __new__(cls, data, scales):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scales.dtype)

    def __init__(self, data, scales):
        self.data_, self.scales = data, scales

    def __tensor_flatten__(self):
        return ["data_", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Quantized(inner["data_"], inner["scales"])

    def dequantize(self):
        return self.data_.to(self.scales.dtype) * self.scales[:, None]

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, w, bias = args[0], args[1], args[2] if len(args) > 2 else None
            return torch.nn.functional.linear(x, w.dequantize(), bias)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return Quantized(args[0].data_, args[0].scales)
        raise NotImplementedError(func)


def quantized_layer():
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    w = layer.weight.detach()
    scales = w.abs().amax(1) / 127
    weight = Quantized((w / scales[:, None]).round().to(torch.int8), scales)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return layer, *plain()


@dispatch.of(quantized_layer)
def quantized_weights(layer, x):
    return layer(x).relu()


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@dispatch
def modes_of_dispatch(x):
    with Recorder() as mode:
        y = x.relu() + 1
    return y, mode.seen


@dispatch
def wrappers_of_views(x):
    t = Two(x, x + 1)
    v = t.view(4, 3)[1:]
    v.add_(1)
    return v.a, t.b


@dispatch.of(lambda: (Two(torch.ones(3, 4, requires_grad=True), torch.zeros(3, 4, requires_grad=True)),))
def wrappers_with_gradients(t):
    return (t.a * 2).sin() + t.b


# ---- torch.fx ----
graphs = Group("torch.fx")


def traced(x):
    return torch.relu(x) * 2 + x


@graphs.of(lambda: (fx.symbolic_trace(traced), *plain()))
def graphs_called(gm, x):
    return gm(x)


@graphs
def traced_inside(x):
    return fx.symbolic_trace(traced)(x)


class Doubled(fx.Interpreter):
    def call_function(self, target, args, kwargs):
        return super().call_function(target, args, kwargs) * 2


@graphs.of(lambda: (fx.symbolic_trace(traced), *plain()))
def interpreted(gm, x):
    return Doubled(gm).run(x)


@graphs.of(lambda: (fx.symbolic_trace(traced), *plain()))
def nodes_read(gm, x):
    return x * len(gm.graph.nodes), [n.op for n in gm.graph.nodes]


@torch.fx.wrap
def opaque(x):
    return x.sum() * 2


@graphs
def wrapped_functions(x):
    return opaque(x) + x


# ---- torch.distributed, without a group of processes ----
distributed = Group("torch.distributed")


@distributed
def guarded_by_availability(x):
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(x)
    return x * 2


@distributed
def ranks_by_default(x):
    rank = dist.get_rank() if dist.is_initialized() else 0
    return x + rank, dist.is_nccl_available()


@distributed
def only_on_the_first(x):
    def first():
        return not dist.is_initialized() or dist.get_rank() == 0
    if first():
        print("step", x.sum().item())
    return x * 2


@distributed
def reduce_operations(x):
    return x * 2, dist.ReduceOp.SUM == dist.ReduceOp.SUM, dist.get_world_size() if dist.is_initialized() else 1
