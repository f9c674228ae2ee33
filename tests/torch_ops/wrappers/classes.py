"""Wrapper subclasses of Tensor for tests."""
import torch
from torch.utils._pytree import tree_map


class Two(torch.Tensor):
    """Two tensors of one shape."""

    @staticmethod
    def __new__(cls, a, b, scale=1.0):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device, strides=a.stride(),
                                                   requires_grad=a.requires_grad)

    def __init__(self, a, b, scale=1.0):
        self.a, self.b, self.scale = a, b, scale

    def __repr__(self):
        return f"Two({self.a}, {self.b})"

    def __tensor_flatten__(self):
        return ["a", "b"], (self.scale,)

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Two(inner["a"], inner["b"], *meta)

    def swapped(self):
        return Two(self.b, self.a, self.scale)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        scale = max(t.scale for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, Two))

        def part(name):
            return tree_map(lambda t: getattr(t, name) if isinstance(t, Two) else t, (args, kwargs))
        (args_a, kwargs_a), (args_b, kwargs_b) = part("a"), part("b")
        a, b = func(*args_a, **kwargs_a), func(*args_b, **kwargs_b)
        if func in IN_PLACE:
            return args[0]
        return cls(a, b, scale) if isinstance(a, torch.Tensor) else a


IN_PLACE = frozenset((torch.ops.aten.add_.Tensor, torch.ops.aten.mul_.Tensor, torch.ops.aten.relu_.default))


class Int8(torch.Tensor):
    """Weights of eight bits with a scale for each row. A table has its operations."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data, scales, group):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scales.dtype, device=data.device)

    def __init__(self, data, scales, group):
        self.int_data, self.scales, self.group = data, scales, group

    def __tensor_flatten__(self):
        return ["int_data", "scales"], {"group": self.group}

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["int_data"], inner["scales"], **meta)

    @classmethod
    def quantized(cls, w, group="rows"):
        scales = w.abs().amax(1).clamp(min=1e-6) / 127
        return cls((w / scales[:, None]).round().to(torch.int8), scales, group)

    def __repr__(self):
        return f"Int8({self.int_data}, {self.scales})"

    def dequantize(self):
        return self.int_data.to(self.scales.dtype) * self.scales[:, None]

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in TABLE:
            return TABLE[func](func, *args, **(kwargs or {}))
        raise NotImplementedError(f"{func} of Int8")


TABLE = {}


def implements(*ops):
    def register(fn):
        for op in ops:
            TABLE[op] = fn
        return fn
    return register


@implements(torch.ops.aten.detach.default, torch.ops.aten.alias.default)
def _detach(func, w):
    return Int8(func(w.int_data), func(w.scales), w.group)


@implements(torch.ops.aten.t.default)
def _t(func, w):
    return w.dequantize().t()


@implements(torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
def _mm(func, *args):
    return func(*(a.dequantize() if isinstance(a, Int8) else a for a in args))


class WithOptions(Two):
    """Collects the options of its constructor in a dict, as quantised weights of libraries do."""

    @staticmethod
    def __new__(cls, a, b, scale=1.0, **more):
        options = {}
        options["dtype"] = a.dtype
        options["device"] = a.device
        options["requires_grad"] = a.requires_grad
        more["strides"] = a.stride()
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **options, **more)

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return WithOptions(inner["a"], inner["b"], *meta)


NOTED = {}


class Noting(Two):
    """Notes its operations in a table that a local variable names."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        noted = NOTED
        noted["count"] = noted.get("count", 0) + 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Counting(Two):
    """Counts its operations."""

    operations = 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Counting.operations += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Printing(Two):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        print(func)
        return super().__torch_dispatch__(func, types, args, kwargs)


SEEN: list = []


class Logging(Two):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Halving(torch.Tensor):
    """Its results have the dtype that a global variable says, so capture cannot know it without a guard."""

    halves = False

    @staticmethod
    def __new__(cls, a):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a):
        self.a = a

    def __tensor_flatten__(self):
        return ["a"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Halving(inner["a"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = tree_map(lambda t: t.a if isinstance(t, Halving) else t, args)
        out = func(*args, **(kwargs or {}))
        return Halving(out.to(torch.float64) if cls.halves else out)
