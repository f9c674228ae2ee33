"""Private functions of torch that programs call indirectly: of transforms, modes, autograd and C++."""
from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._functorch import eager_transforms, predispatch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder as nested_region  # noqa: F401
from torch._higher_order_ops.while_loop import while_loop

# ---- ``__torch_function__``
DISABLED = torch._C._disabled_torch_function_impl       # what a class has that overrides nothing
NoSubclasses: Any = torch._C.DisableTorchFunctionSubclass
push_mode, pop_mode = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
count_modes, mode_at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
has_modes, asks_subclasses = torch._C._is_torch_function_mode_enabled, torch._C._is_torch_function_enabled

# ---- torch.func
is_in_transform = functorch.is_functorch_wrapped_tensor
TRANSFORM_READERS = (functorch.is_batchedtensor, functorch.is_gradtrackingtensor, is_in_transform,
                     functorch.maybe_get_level, functorch.maybe_get_bdim)
is_tracked_by_transform = functorch.is_gradtrackingtensor
set_requires_grad = eager_transforms._set_tensor_requires_grad
gradients_in_transform = eager_transforms._autograd_grad
load_decompositions = predispatch.lazy_load_decompositions

# ---- autograd
disable_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_disable
enable_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_enable
refusal_of_saved_tensors_hooks = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
set_grad_enabled = torch._C._set_grad_enabled

# ---- the rest
LOG_API_USAGE = (torch._C._log_api_usage_once, torch._C._log_api_usage_metadata)
CONFIGURATION = (torch._C._get_privateuse1_backend_name, torch._C._accelerator_getAccelerator,
                 torch._C._is_tracing)     # questions whose answers do not change while a program runs
is_warn_always = torch._C._get_warnAlways
set_deterministic_algorithms = torch._C._set_deterministic_algorithms
group_tensors = torch._C._group_tensors_by_device_and_dtype
TensorBase = torch._C.TensorBase
OPERATION_MODULES = ("torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special", "torch._C._nested")
VARIABLE_FUNCTIONS = ("torch", "torch._C._VariableFunctions")
variable_functions = torch._C._VariableFunctions
nn_functions = torch._C._nn

__all__ = ["while_loop"]
