"""Gradients of operators of torch's own that take a tensor in place of numbers (``with_numbers.py``): backward runs the
operator itself, with the numbers, and goes backward through it.

A compiler traces one operator that does this. The gradient of that one is not known to the compiler, which refuses a
graph that needs it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sot.torch_compat.subclasses.collectives import TRACED

AUTOGRAD = [key for name, key in vars(torch._C.DispatchKey).items() if name.startswith("Autograd")]
Filled = Callable[[Sequence[Any], Sequence[int], tuple, dict[str, Any]], tuple[tuple, dict]]


def add_gradient(operator: torch._ops.OpOverload, own: str, taken: str, filled: Filled, library: torch.library.Library,
                 ) -> None:
    """``own`` is the operator that takes a tensor, ``taken`` the text of the arguments of ``operator``, and ``filled``
    gives these arguments with the numbers.
    """
    name = f"sot_numbers::{own}_backward"
    library.define(f"{own}_backward(Tensor[] grads, int[] wanted, Tensor numbers, int[] places, {taken}) -> Tensor[]")

    def gradients(grads: Sequence[torch.Tensor], wanted: Sequence[int], numbers: torch.Tensor, places: Sequence[int],
                  *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        create = torch.is_grad_enabled()
        given, kwargs = filled(numbers.tolist(), places, args, kwargs)
        return backward_through(operator, list(given), kwargs, wanted, grads, create)

    def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        with recording_gradients(), torch.no_grad():
            return gradients(*args, **kwargs)

    def fake(grads: Any, wanted: Sequence[int], numbers: Any, places: Any, *args: Any, **kwargs: Any) -> list:
        return [torch.empty_like(args[i]) for i in wanted]

    def remember(ctx: Any, inputs: tuple, output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
        ctx.save_for_backward(*(v for v in inputs if isinstance(v, torch.Tensor)))
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in inputs]
        ctx.places = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)]
        ctx.more = keyword_only_inputs or {}

    def backward(ctx: Any, *grads: torch.Tensor) -> tuple:
        given = list(ctx.others)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            given[i] = tensor
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        traced = any(isinstance(v, TRACED) for v in (*grads, *given))
        compute = getattr(torch.ops.sot_numbers, f"{own}_backward") if traced else gradients
        found = dict(zip(wanted, compute(list(grads), wanted, *given, **ctx.more), strict=True))
        return None, None, *(found.get(i) for i in range(len(given) - 2))
    library.impl(f"{own}_backward", run, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake, lib=library)
    torch.library.register_autograd(name, refuse, lib=library)
    torch.library.register_autograd(f"sot_numbers::{own}", backward, setup_context=remember, lib=library)


def backward_through(operator: torch._ops.OpOverload, given: list[Any], kwargs: Mapping[str, Any],
                     wanted: Sequence[int], grads: Sequence[torch.Tensor], create: bool) -> list[torch.Tensor]:
    """The gradients of the arguments at the places ``wanted``, with their own graph if ``create`` is true."""
    with torch.enable_grad():
        for i in wanted:
            given[i] = given[i].view_as(given[i]) if create else given[i].detach().requires_grad_()
        made = operator(*given, **kwargs)
        results = made if isinstance(made, (tuple, list)) else (made,)
        kept = [(r, grad) for r, grad in zip(results, grads, strict=True) if r.requires_grad]     # others: statistics
        return [*torch.autograd.grad([r for r, _ in kept], [given[i] for i in wanted], [grad for _, grad in kept],
                                     create_graph=create)]


def refuse(ctx: Any, *grads: Any) -> Any:
    raise NotImplementedError("the gradient of a gradient of an operator whose numbers are in a tensor")


@contextmanager
def recording_gradients() -> Iterator[None]:
    """A kernel of an operator runs where the dispatcher leaves autograd out."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    recording = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    for key in AUTOGRAD:
        recording = recording | torch._C.DispatchKeySet(key)
    with torch._C._ForceDispatchKeyGuard(included, excluded - recording):
        yield
