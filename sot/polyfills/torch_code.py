"""Python that says what parts of torch do, without what they do for torch.compile's sake."""
from __future__ import annotations

import torch
from torch._functorch import eager_transforms

from sot.execute.builtins.registry import polyfills


@polyfills(eager_transforms._autograd_grad)
def gradients_in_a_transform(outputs, inputs, grad_outputs=None, retain_graph=False, create_graph=True):
    if grad_outputs is None:
        outputs = tuple(out for out in outputs if out.requires_grad)
    else:
        pairs = [(out, g) for out, g in zip(outputs, grad_outputs, strict=True) if out.requires_grad]
        outputs, grad_outputs = tuple(out for out, _ in pairs), tuple(g for _, g in pairs)
    if not outputs:
        return tuple(torch.zeros_like(x) for x in inputs)
    found = torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def through_mode(function, types, args, kwargs):
    mode = torch._C._pop_torch_function_stack()
    try:
        return mode.__torch_function__(function, types, args, kwargs)
    finally:
        torch._C._push_on_torch_function_stack(mode)
