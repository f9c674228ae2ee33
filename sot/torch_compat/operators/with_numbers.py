"""Operators that take floats, with a tensor in place of these. torch has symbols for integers among the arguments of
an operator, but makes a float a constant of the compiled graph, which is then compiled again for each value.

``taking_tensor`` registers another operator, which a compiler calls as it is. It reads the tensor when it runs. Its
result on fakes and its gradient are those that the program has registered, which get symbols in place of the floats.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton
from torch._library.utils import fill_defaults
from torch._subclasses.fake_tensor import FakeTensorMode

from sot.torch_compat.compilers import imported
from sot.torch_compat.op_effects import TORCHS_OWN
from sot.torch_compat.operators import gradients_of_torch

ANY = 0.5       # where nothing depends on the number
LIBRARY: list[torch.library.Library] = []


def operator_of_program(target: Any) -> torch._ops.OpOverload | None:
    """The operator that a program or a library has registered, if the target is one, or the only one of its name."""
    if isinstance(target, torch._ops.OpOverloadPacket) and target.overloads() == ["default"]:
        target = target.default
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in TORCHS_OWN:
        return None
    return target


@functools.cache
def floats_of(operator: torch._ops.OpOverload) -> tuple[int, ...]:
    """The places of the floats among the arguments of an operator that computes its result on fakes by a function of
    Python.
    """
    if fake_of(operator) is None:
        return ()
    kinds = [str(argument.type) for argument in operator._schema.arguments]
    return tuple(i for i, kind in enumerate(kinds) if kind in ("float", "Optional[float]"))


def names_of(operator: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in operator._schema.arguments]


def fake_of(operator: torch._ops.OpOverload) -> Callable[..., Any] | None:
    entry = singleton._data.get(operator._schema.name)      # torch 2.11 has no ``get``, and ``find`` makes an entry
    kernel = entry.fake_impl.kernel if entry is not None else None
    return kernel.func if kernel is not None else None


def kernel_of(target: Any) -> Callable[..., Any] | None:
    """The Python function by which ``torch.library.custom_op`` has defined an operator."""
    operator = operator_of_program(target)
    made = OPDEFS.get(operator._schema.name) if operator is not None else None
    return made._init_fn if made is not None else None


def formula_of(operator: torch._ops.OpOverload) -> Any:
    """What the program has registered for gradients, if it is known."""
    made = OPDEFS.get(operator._schema.name)
    return made if made is not None and made._backward_fn is not None else None


def is_independent(operator: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any],
                   is_float: Callable[[Any], bool]) -> bool:
    """Whether the metadata of a result does not depend on the floats, for which ``is_float`` holds, and the gradient
    of a tensor needs no more than the registered formula. The registered function is called with symbols for them.
    """
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors) and formula_of(operator) is None:
        return False
    function, symbols = fake_of(operator), imported("torch.fx.experimental.symbolic_shapes")
    env = symbols.ShapeEnv()

    def given(value: Any) -> Any:
        if is_float(value):
            return env.create_unbacked_symfloat()
        if not isinstance(value, torch.Tensor):
            return value
        sizes, strides = ([n if isinstance(n, int) else n.node.require_hint() for n in numbers]
                          for numbers in (value.shape, value.stride()))
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    try:
        with FakeTensorMode(shape_env=env), torch.no_grad():
            made = function(*map(given, args), **{key: given(v) for key, v in kwargs.items()})  # type: ignore[misc]
            results = made if isinstance(made, (tuple, list)) else (made,)
            return all(r is None or isinstance(r, torch.Tensor) and not any(map(symbols.free_unbacked_symbols, r.shape))
                       for r in results)
    except Exception:  # noqa: BLE001 - the program's code needs the number
        return False


@functools.cache
def taking_tensor(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator whose first arguments are a tensor of numbers and the places of these numbers among the arguments
    of ``operator``, which follow.
    """
    library, names, own = library_of_numbers(), names_of(operator), own_name(operator)
    taken, _, result = str(operator._schema).partition("(")[2].rpartition(" -> ")
    library.define(f"{own}(Tensor numbers, int[] places, {taken} -> {result}", tags=tuple(operator.tags))

    def filled(numbers: Sequence[Any], places: Sequence[int], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        given = dict(zip(names, args, strict=False)) | kwargs
        given.update(zip([names[i] for i in places], numbers, strict=True))
        return fill_defaults(operator._schema, *divided(operator, given))

    def run(numbers: torch.Tensor, places: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = filled(numbers.tolist(), places, args, kwargs)
        return operator(*args, **kwargs)

    def fake(numbers: torch.Tensor, places: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = filled([ANY] * len(places), places, args, kwargs)
        return operator(*args, **kwargs)
    library.impl(own, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"sot_numbers::{own}", fake, lib=library)
    if (formula := formula_of(operator)) is not None:
        add_gradient(f"sot_numbers::{own}", formula, filled, library)
    elif operator.namespace in TORCHS_OWN and not any(a.kwarg_only and "Tensor" in str(a.type)
                                                      for a in operator._schema.arguments):
        gradients_of_torch.add_gradient(operator, own, taken.rpartition(")")[0], filled, library)
    return getattr(torch.ops.sot_numbers, own).default


def library_of_numbers() -> torch.library.Library:
    if not LIBRARY:
        LIBRARY.append(torch.library.Library("sot_numbers", "FRAGMENT"))  # noqa: TOR901
    return LIBRARY[0]


def own_name(operator: torch._ops.OpOverload) -> str:
    overload = operator._overloadname
    return operator._schema.name.replace("::", "_") + ("" if overload == "default" else f"_{overload}")


def arguments_of(operator: torch._ops.OpOverload) -> dict[str, Any]:
    """The arguments of an operator, with their defaults."""
    return {a.name: a.default_value for a in operator._schema.arguments}


def gives_tensors(operator: torch._ops.OpOverload) -> bool:
    """Whether all results are new tensors."""
    returns = operator._schema.returns
    return bool(returns) and all(str(r.type) == "Tensor" and r.alias_info is None for r in returns)


def changes_only_first(operator: torch._ops.OpOverload) -> bool:
    """Whether it is an operator in place, with no other effect."""
    written = [a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments]
    return written[:1] == [True] and sum(written) == 1 and len(operator._schema.returns) == 1


def overload_with_numbers(packet: torch._ops.OpOverloadPacket) -> torch._ops.OpOverload | None:
    """The overload that takes numbers, if there is one, besides those that take memory for the result."""
    found = [o for o in (getattr(packet, name) for name in packet.overloads()) if numbers_of(o)
             and not any(a.is_out for a in o._schema.arguments)]
    return found[0] if len(found) == 1 else None


@functools.cache
def numbers_of(operator: torch._ops.OpOverload) -> frozenset[str]:
    """The arguments of an operator that are numbers, or may be."""
    kinds = "float", "number", "Optional[float]", "Optional[number]"
    return frozenset(a.name for a in operator._schema.arguments if str(a.type) in kinds)


def divided(operator: torch._ops.OpOverload, given: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The given arguments, of which the first ones have no gaps: those by position, and those by keyword only."""
    only = {a.name for a in operator._schema.arguments if a.kwarg_only}
    by_place = [a for a in operator._schema.arguments if a.name not in only]
    args = [given.get(a.name, a.default_value) for a in by_place]
    return tuple(args), {name: value for name, value in given.items() if name in only}


def add_gradient(name: str, formula: Any, filled: Callable[..., tuple[tuple, dict]],
                 library: torch.library.Library) -> None:
    """The program's formula as that of the operator, with symbols in place of the numbers when a compiler traces it."""
    def remember(ctx: Any, inputs: tuple, output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
        numbers, places, *args = inputs
        read = [numbers[i].item() for i in range(len(places))]
        given, kwargs = filled(read, places, tuple(args), keyword_only_inputs or {})
        more = {"keyword_only_inputs": kwargs} if keyword_only_inputs is not None else {}
        if formula._setup_context_fn is not None:
            formula._setup_context_fn(ctx=ctx, inputs=given, output=output, **more)

    def backward(ctx: Any, *grads: Any) -> Any:
        before = ctx.needs_input_grad
        ctx.needs_input_grad = before[2:]
        try:
            made = formula._backward_fn(ctx, *grads)
        finally:
            ctx.needs_input_grad = before
        return (None, None, *(made if isinstance(made, tuple) else (made,)))
    torch.library.register_autograd(name, backward, setup_context=remember, lib=library)
