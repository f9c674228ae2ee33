"""Private functions of torch that programs call indirectly: of transforms, modes, autograd and C++."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._functorch import eager_transforms, predispatch
from torch._higher_order_ops.associative_scan import associative_scan_op as associative_scan
from torch._higher_order_ops.flex_attention import flex_attention
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder as nested_region  # noqa: F401
from torch._higher_order_ops.map import map_impl as map_rows
from torch._higher_order_ops.scan import scan_op as scan
from torch._higher_order_ops.while_loop import while_loop
from torch._higher_order_ops.wrap import tag_activation_checkpoint as recomputed

# ---- ``__torch_function__``
DISABLED = torch._C._disabled_torch_function_impl       # what a class has that overrides nothing
NoSubclasses: Any = torch._C.DisableTorchFunctionSubclass
push_mode, pop_mode = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
count_modes, mode_at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
count_dispatch_modes = torch._C._len_torch_dispatch_stack
has_modes, asks_subclasses = torch._C._is_torch_function_mode_enabled, torch._C._is_torch_function_enabled

of_either_layout = torch.nested.nested_tensor, torch.nested.as_nested_tensor
nested_makers = (of_either_layout[0].__globals__["_nested"].nested_tensor, torch._nested_tensor_from_tensor_list)

# ---- torch.func
is_in_transform = functorch.is_functorch_wrapped_tensor
TRANSFORM_READERS = (functorch.is_batchedtensor, functorch.is_gradtrackingtensor, is_in_transform,
                     functorch.maybe_get_level, functorch.maybe_get_bdim, torch._is_functional_tensor)
functional_tensor_functions: tuple[Any, ...] = (
    functorch._wrap_functional_tensor, functorch._unwrap_functional_tensor, torch._sync,
    functorch._propagate_functional_input_mutation)
check_functional = functorch._assert_wrapped_functional
transforms_are_active = torch._C._are_functorch_transforms_active
is_tracked_by_transform = functorch.is_gradtrackingtensor
set_requires_grad = eager_transforms._set_tensor_requires_grad
gradients_in_transform = eager_transforms._autograd_grad
load_decompositions = predispatch.lazy_load_decompositions

# ---- autograd
number_of_pass, will_run_node = torch._C._current_graph_task_id, torch._C._will_engine_execute_node
disable_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_disable
enable_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_enable
push_saved_tensors_hooks = torch._C._autograd._push_saved_tensors_default_hooks
pop_saved_tensors_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
refusal_of_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
set_grad_enabled = torch._C._set_grad_enabled
pad_sequence = torch._C._nn.pad_sequence

# ---- the rest
to_capsule, from_capsule = torch._C._to_dlpack, torch._C._from_dlpack
LOG_API_USAGE = (torch._C._log_api_usage_once, torch._C._log_api_usage_metadata)
# Questions whose answers do not change while a program runs.
CONFIGURATION = (torch._C._get_privateuse1_backend_name, torch._C._accelerator_getAccelerator,
                 torch._C._get_accelerator, torch._C._is_tracing, torch._C._supported_qengines)
is_warn_always = torch._C._get_warnAlways
set_deterministic_algorithms = torch._C._set_deterministic_algorithms
group_tensors = torch._C._group_tensors_by_device_and_dtype
TensorBase = torch._C.TensorBase
OPERATION_MODULES = ("torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special", "torch._C._nested",
                     "torch._C._sparse")
VARIABLE_FUNCTIONS = ("torch", "torch._C._VariableFunctions")
variable_functions = torch._C._VariableFunctions
nn_functions = torch._C._nn

__all__ = ["associative_scan", "flex_attention", "is_traced", "map_rows", "recomputed", "scan", "while_loop"]


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether a tensor carries a derivative of forward mode. One of inference mode cannot, and within that mode torch
    does not say.
    """
    if tensor.is_inference():
        return False
    with torch.inference_mode(False):
        return torch.autograd.forward_ad.unpack_dual(tensor, level=0).tangent is not None


TRACING_MODES = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "FUNCTIONAL", "PROXY"))


def is_traced() -> bool:
    """Whether operations run for a compiler that traces them, and not for their results."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in TRACING_MODES)


def calls_operator(function: Any) -> bool:
    """Whether a builtin function is an operation of torch's own, whose operator has its name."""
    module, name = function.__module__, function.__name__
    return module in OPERATION_MODULES or module in VARIABLE_FUNCTIONS and hasattr(variable_functions, name)


def order_of_groups(keys: Sequence[tuple[torch.device, torch.dtype]]) -> tuple[tuple[torch.device, torch.dtype], ...]:
    """The order that torch gives to groups of tensors, by their devices and dtypes in the order of their first tensors.
    It is that of a hash table in C++.
    """
    examples: list[torch.Tensor | None] = [torch.empty(0, device=device, dtype=dtype) for device, dtype in keys]
    return (*group_tensors([examples], False),)
