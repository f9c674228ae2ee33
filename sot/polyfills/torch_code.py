"""Parts of torch in Python, without the code that serves torch.compile."""
from __future__ import annotations

import torch
from torch.autograd.function import FunctionCtx
from torch.fx import Node
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.overrides import get_default_nowrap_functions
from torch.utils import _foreach_utils

from sot.graph.number_rules.drawing import trunc_normal_ as draw_truncated
from sot.support.registry import polyfills
from sot.torch_compat.callables import (
    MAP_AGGREGATES,
    MAP_ARGUMENTS,
    NODE_ITERATORS,
    single_adagrad,
    single_adam,
    single_sgd,
    truncated_normal_,
)
from sot.torch_compat.functions import (
    NoSubclasses,
    gradients_in_transform,
    group_tensors,
    order_of_groups,
    pop_mode,
    push_mode,
)
from sot.torch_compat.global_state import DeviceContext, device_constructors
from sot.torch_compat.tensors import convert_result


@polyfills(gradients_in_transform)
def gradients_in_a_transform(outputs, inputs, grad_outputs=None, retain_graph=False, create_graph=True):
    if grad_outputs is None:
        outputs = tuple(out for out in outputs if out.requires_grad)
    else:
        pairs = [(out, g) for out, g in zip(outputs, grad_outputs, strict=True) if out.requires_grad]
        outputs, grad_outputs = tuple(out for out, _ in pairs), tuple(g for _, g in pairs)
    if not outputs:
        return tuple(torch.zeros_like(x) for x in inputs)
    found = torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def through_mode(function, types, *given):
    mode = pop_mode()
    try:
        return mode.__torch_function__(function, types, *given)
    finally:
        push_mode(mode)


def through_classes(function, types, *given):
    for cls in types:
        result = cls.__torch_function__(function, types, *given)
        if result is not NotImplemented:
            return result
    return NotImplemented


@polyfills(vars(torch.Tensor)["__torch_function__"].__func__)
def default_torch_function(cls, func, types, args=(), kwargs=None):
    if kwargs is None:
        kwargs = {}
    for other in types:
        if not issubclass(cls, other):
            return NotImplemented
    with NoSubclasses():
        result = func(*args, **kwargs)
        return result if stays_plain(func) else convert_result(result, cls)


def stays_plain(function):
    return function in get_default_nowrap_functions()


def enter_device(device):
    push_mode(DeviceContext(device))
    return device


def leave_device(device, *exception):
    pop_mode()


@polyfills(DeviceContext.__torch_function__)
def on_device(self, func, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if takes_device(func) and kwargs.get("device") is None:
        kwargs["device"] = self.device
    return func(*args, **kwargs)


def takes_device(function):
    return function in device_constructors()


class UnusedContext:
    def save_for_backward(self, *tensors):
        pass


def unused_context():
    return UnusedContext()


def forward_of_function(cls, has_setup, needs_input_grad, *inputs):
    """The result of an autograd function, and its context, from which the backward reads."""
    context = FunctionCtx()
    context.needs_input_grad = needs_input_grad
    if has_setup:
        result = cls.forward(*inputs)
        cls.setup_context(context, inputs, result)
    else:
        result = cls.forward(context, *inputs)
    context.saved_tensors = getattr(context, "to_save", None) or ()
    return result, context


def forward_without_gradients(cls, has_setup, needs_input_grad, *inputs):
    with torch.no_grad():
        return forward_of_function(cls, has_setup, needs_input_grad, *inputs)


def backward_of_function(cls, context, *gradients):
    return cls.backward(context, *gradients)


def copied_parameter(parameter):
    copied = parameter.detach().clone(memory_format=torch.preserve_format)
    return torch.nn.Parameter(copied, parameter.requires_grad)


def values_of(table):
    return list(table.values())


def call_with_gradient(hooks, gradient):
    with torch.no_grad():
        for hook in hooks:
            result = hook(gradient)
            if result is not None:
                gradient = result
    return gradient


def call_after_gradient(hooks, leaf):
    """Whether none of the hooks returns anything."""
    with torch.no_grad():
        for hook in hooks:
            if hook(leaf) is not None:
                return False
    return True


def tensor_of_tensors(data, dtype=None):
    if dtype is None:
        for value in leaves_of(data):
            found = value.dtype if isinstance(value, torch.Tensor) else dtype_of(value)
            dtype = found if dtype is None else torch.promote_types(dtype, found)
    return stacked(data, dtype)


def dtype_of(number):
    if isinstance(number, complex):
        return torch.get_default_dtype().to_complex()
    return torch.bool if isinstance(number, bool) else torch.int64 if isinstance(
        number, int) else torch.get_default_dtype()


def leaves_of(data):
    if not isinstance(data, (list, tuple)):
        return [data]
    return [leaf for value in data for leaf in leaves_of(value)]


def stacked(data, dtype):
    if isinstance(data, (list, tuple)):
        return torch.stack([stacked(value, dtype) for value in data])
    if isinstance(data, torch.Tensor):
        if data.dim() or data.device.type != "cpu" or (data.is_floating_point() and not dtype.is_floating_point):
            return data.item()
        return data.detach().to(dtype)
    return torch.tensor(data, dtype=dtype)


@polyfills(torch.optim.Optimizer.zero_grad)
def zero_grad(self, set_to_none=True):
    for group in self.param_groups:
        for p in group["params"]:
            forget_gradient(p, set_to_none)


@polyfills(torch.nn.Module.zero_grad)
def zero_grad_of_module(self, set_to_none=True):
    if getattr(self, "_is_replica", False):
        leave_to_python()       # it warns
    for p in self.parameters():
        forget_gradient(p, set_to_none)


def forget_gradient(p, set_to_none):
    if set_to_none:
        drop_gradient(p)
    elif p.grad is not None:
        if p.grad.grad_fn is not None:
            p.grad.detach_().zero_()
        else:
            p.grad.requires_grad_(False).zero_()


def drop_gradient(p):
    p.grad = None       # a handler notes whether the program has read it before


def with_gradients(step, self, *args, **kwargs):
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(self.defaults["differentiable"])
        return step(self, *args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def scaled_step(self, optimizer, optimizer_state, *args, **kwargs):
    """What a GradScaler does with an optimizer: all of the step is computed, and undone if a gradient was infinite."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        leave_to_python()
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    kept = params + [p.grad for p in params]
    sizes = []
    for p in params:
        state = optimizer.state.get(p, {})
        kept = kept + [v for v in state.values() if isinstance(v, torch.Tensor)]
        sizes.append(len(state))
    called = getattr(optimizer, "_opt_called", None)
    found_inf = sum(optimizer_state["found_inf_per_device"].values())
    with torch.no_grad():
        before = [v.clone() for v in kept]
    result = optimizer.step(*args, **kwargs)
    if result is not None or getattr(optimizer, "_opt_called", None) is not called or sizes != [
            len(optimizer.state.get(p, {})) for p in params]:
        leave_to_python()       # the first step makes more than tensors
    put_back(found_inf, kept, before)
    return result


def step_without_branches(step, *lists, capturable, **options):
    """The form of a step for CUDA graphs. Its counters are of float64, as Python's numbers are."""
    *others, counters = lists
    precise = [counter.double() for counter in counters]
    step(*others, precise, capturable=True, **options)
    for counter, now in zip(counters, precise, strict=True):
        counter.copy_(now)


def leave_to_python():
    raise NotImplementedError       # a handler breaks the graph here


def put_back(found_inf, kept, before):
    """What they were, if a gradient was infinite or not a number."""
    with torch.no_grad():
        for v, old in zip(kept, before, strict=True):
            v.copy_(torch.where(found_inf == 0, v, old))


def unscaled_step(step, params, grads, *lists, grad_scale, found_inf, **options):
    """The step of a kernel that knows of a GradScaler."""
    kept = [v for values in (params, grads, *lists) for v in values]
    if any(v is None for v in kept):
        leave_to_python()
    with torch.no_grad():
        before = [v.clone() for v in kept] if found_inf is not None else []
        if grad_scale is not None:
            for g in grads:
                g.div_(grad_scale)
    step(params, grads, *lists, grad_scale=None, found_inf=None, **options)
    if found_inf is not None:
        put_back(found_inf, kept, before)


def sgd_of_single_tensors(params, grads, momenta, grad_scale, found_inf, **options):
    if grad_scale is None and found_inf is None:
        return single_sgd(params, grads, momenta, None, None, **options)
    if not options["momentum"]:
        momenta, none = [], momenta
        return unscaled_step(
            lambda params, grads, **given: single_sgd(params, grads, none, **given), params, grads,
            grad_scale=grad_scale, found_inf=found_inf, **options)
    return unscaled_step(single_sgd, params, grads, momenta, grad_scale=grad_scale, found_inf=found_inf, **options)


def adam_of_single_tensors(params, grads, averages, squares, maxima, steps, grad_scale, found_inf, **options):
    if grad_scale is None and found_inf is None:
        return single_adam(params, grads, averages, squares, maxima, steps, None, None, **options)
    return unscaled_step(single_adam, params, grads, averages, squares, maxima, steps, grad_scale=grad_scale,
                         found_inf=found_inf, **options)


def adagrad_of_single_tensors(params, grads, sums, steps, grad_scale, found_inf, **options):
    if grad_scale is None and found_inf is None:
        return single_adagrad(params, grads, sums, steps, None, None, **options)
    return unscaled_step(single_adagrad, params, grads, sums, steps, grad_scale=grad_scale, found_inf=found_inf,
                         **options)


def may_be_grouped(key, tensor):
    """Steps and other states of optimizers may be different from the parameter."""
    kind = tensor.dtype
    return (tensor.device, kind) == key or kind is torch.bfloat16 or tensor.device.type == "cpu" and (
        kind is torch.float32 or kind is torch.float64)


@polyfills(_foreach_utils._group_tensors_by_device_and_dtype)
def grouped(tensorlistlist, with_indices=False):
    groups = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = groups[key]
        for found, given in zip(lists, tensorlistlist, strict=True):
            if given:
                if given[i] is not None and not may_be_grouped(key, given[i]):
                    return group_tensors(tensorlistlist, with_indices)      # raises
                found.append(given[i])
        if with_indices:
            indices.append(i)
    return {key: groups[key] for key in order_of_groups([*groups])} if len(groups) > 1 else groups


@polyfills(*NODE_ITERATORS)
def nodes_of_graph(root, reverse):
    """A node may be taken out of the graph while its turn is near."""
    node = root._prev if reverse else root._next
    while node is not root:
        following = node._prev if reverse else node._next
        if not node._erased:
            yield node
        node = following


def forked(function, *args, **kwargs):
    return ready(function(*args, **kwargs))


def ready(result):
    raise NotImplementedError       # a handler makes the future


def result_of(future):
    raise NotImplementedError       # a handler has it


def is_done(future):
    raise NotImplementedError       # a handler has it


def itself(value):
    return value


def infer_parameters(self, module, args, kwargs=None):
    module.initialize_parameters(*args, **(kwargs or {}))
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
    for name in "_initialize_hook", "_load_hook":
        remove_hook(getattr(module, name))
        delattr(module, name)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def remove_hook(handle):
    """The number of the handle is guarded: this module is initialized once."""
    for of_hooks in handle.hooks_dict_ref, *handle.extra_dict_ref:
        hooks = of_hooks()
        if hooks is not None and handle.id in hooks:
            del hooks[handle.id]


@polyfills(torch.autograd.Variable)
def variable(data, requires_grad=False):
    return data.detach().requires_grad_(requires_grad)


@polyfills(torch.Tensor.storage)
def typed_storage(self):
    torch.storage._warn_typed_storage_removal(stacklevel=2)
    return self._typed_storage()


@polyfills(torch.Tensor._typed_storage)
def typed_storage_without_warning(self):
    return torch.TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)


@polyfills(torch.TypedStorage._size)
def size_of_storage(self):
    return bytes_in(self._untyped_storage) // self._element_size()


@polyfills(torch.TypedStorage._getitem)
def item_of_storage(self, idx):
    if isinstance(idx, slice):
        raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
    if not isinstance(idx, int):
        raise RuntimeError(f"can't index a {type(self)} with {type(idx)}")
    return element_in(self._untyped_storage, self.dtype, self._maybe_wrap_index(idx)).item()


def bytes_in(storage):      # capture guards the size of a storage from outside
    return storage.nbytes()


def element_in(storage, dtype, index):      # capture makes a node of it
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage)[index]


@polyfills(*MAP_AGGREGATES)
def map_aggregate(a, fn):
    if isinstance(a, tuple):
        items = tuple([map_aggregate(item, fn) for item in a])
        return type(a)(*items) if hasattr(a, "_fields") else items
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict([(key, map_aggregate(item, fn)) for key, item in a.items()])
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


@polyfills(*MAP_ARGUMENTS)
def map_arg(a, fn):
    return map_aggregate(a, lambda item: fn(item) if isinstance(item, Node) else item)


@polyfills(torch.nn.init.trunc_normal_)
def truncated_normal_numbers(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    if tensor.is_meta or not (std > 0 and a < b and a - 2 * std <= mean <= b + 2 * std):    # it warns, or raises
        return truncated_normal_(tensor, mean, std, a, b, generator)
    return draw_truncated(tensor, mean, std, a, b, generator)
