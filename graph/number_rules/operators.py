"""The rule of an operation. An operator that the program calls itself (``torch.ops.aten.elu(x, v)``,
``torch._C._nn.elu(x, v)``) has that of the function of its name, with arguments by the operator's schema. One without
such a function, and a form that the rule does not cover, is computed by the operator itself, which reads a tensor
(``sot/torch_compat/operators/with_numbers.py``).
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from keyword import iskeyword
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.graph.number_rules.rules import RULES, NotWritten, Rule, in_place, is_of_lists, only_if, takes_tensors
from sot.torch_compat import functions
from sot.torch_compat.inductor.own_functions import traced_by_its_arguments
from sot.torch_compat.operators.with_numbers import (
    arguments_of,
    changes_only_first,
    floats_of,
    gives_tensors,
    names_of,
    numbers_of,
    operator_of_program,
    overload_with_numbers,
    own_name,
)

NAMED_OTHERWISE = {"cross_entropy": "cross_entropy_loss"}      # functions, and their operators
OF_NO_OPERATOR = frozenset(("inplace", "out", "size_average", "reduce"))    # parameters of functions only
WITHOUT_EFFECT = frozenset(("cudnn_enabled", "cudnn_enable"))
REDUCTIONS = "none", "mean", "sum"
SIZED_BY_NUMBERS = frozenset(("arange", "range"))


def rule_of(target: Any) -> Rule | None:
    if not isinstance(target, str) and not getattr(target, "__hash__", None):
        return None
    return RULES.get(target) or rule_of_program(operator_of_program(target)) or rule_of_operator(target)


@functools.cache
def rule_of_program(operator: torch._ops.OpOverload | None) -> Rule | None:
    """The rule of an operator that a program or a library has registered."""
    if operator is None or not (floats := floats_of(operator)):
        return None
    names = names_of(operator)
    return Rule(with_tensors(operator), {names[i]: () for i in floats}, operator, in_double=True,
                arguments=arguments_of(operator))


@functools.cache
def rule_of_operator(target: Any) -> Rule | None:
    """The rule of an operator of torch's own, or of a builtin function, which calls the operator of its name."""
    if isinstance(target, BuiltinFunctionType) and functions.calls_operator(target):
        target = getattr(torch.ops.aten, target.__name__, None)
    if not isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return None
    operator = target if isinstance(target, torch._ops.OpOverload) else overload_with_numbers(target)
    name = (target if operator is None else operator.overloadpacket).__name__
    by_place, by_name = known_rules()
    if operator is None:
        return by_place.get(name)
    known = by_place.get(name) or by_name.get(name)
    if operator.namespace != "aten" or is_of_lists(target) or name in SIZED_BY_NUMBERS or not numbers_of(operator) or (
            known is None and takes_tensors(target)):
        return None
    if known is not None:
        return by_schema(operator, known)
    return changing(operator) if operator._schema.is_mutable else of_kernel(operator)


@functools.cache
def known_rules() -> tuple[dict[str, Rule], dict[str, Rule]]:
    """The rules by the name of an operator: those of builtin functions and methods, whose arguments are in the order of
    the schema, and of functions of Python.
    """
    by_place, by_name = dict[str, Rule](), dict[str, Rule]()
    for target, known in RULES.items():
        name = target if isinstance(target, str) else target.__name__
        found = by_name if isinstance(target, FunctionType) else by_place
        found[NAMED_OTHERWISE.get(name, name)] = known
    return by_place, by_name


def of_kernel(operator: torch._ops.OpOverload) -> Rule | None:
    """The rule by which the operator itself reads a tensor. Its results have the same metadata for all numbers.
    Compilers write a call by names of arguments, which words of Python cannot be.
    """
    if not may_read(operator) or any(map(iskeyword, names_of(operator))):
        return None
    call = named_as(operator, "by_itself", functools.partial(by_itself, operator))
    return Rule(call, dict.fromkeys(numbers_of(operator), ()), in_double=True, arguments=arguments_of(operator))


def changing(operator: torch._ops.OpOverload) -> Rule | None:
    """The rule of an operator in place, by that of the one that is not."""
    plain = getattr(torch.ops.aten, operator.overloadpacket.__name__.rstrip("_"), None)
    plain = getattr(plain, operator._overloadname, None)
    known = None if plain is None or not changes_only_first(operator) else rule_of_operator(plain)
    if known is None:
        return None

    def change(*args: Any, **kwargs: Any) -> Tensor:
        return in_place(known.function, args[0], args[1:], kwargs)
    return replace(known, function=named_as(operator, "in_place", change), arguments=arguments_of(operator))


def by_schema(operator: torch._ops.OpOverload, known: Rule) -> Rule:
    """The rule ``known`` for the arguments of an operator."""
    parameters = parameters_for(operator, known)
    numbers = {name: known.numbers.get(parameters.get(name, ""), ()) for name in numbers_of(operator)}
    within = {name: known.within[p] for name, p in parameters.items() if p in known.within}
    ordered = tuple(name for p in known.ordered for name, q in parameters.items() if p == q)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return known.function(**translated(operator, known, parameters, args, kwargs))
        except NotWritten:
            return by_itself(operator, *args, **kwargs)
    return replace(known, function=named_as(operator, "by_rule", call), numbers=numbers, within=within,
                   ordered=ordered if len(ordered) == len(known.ordered) else (), arguments=arguments_of(operator))


def parameters_for(operator: torch._ops.OpOverload, known: Rule) -> dict[str, str]:
    """The parameters of a rule by the arguments of an operator: those of the same name, or else at the same place."""
    names, parameters = names_of(operator), [*known.names]
    found = {name: name for name in names if name in parameters}
    for name, parameter in zip(names, parameters, strict=False):
        if name not in found and parameter not in names and parameter not in OF_NO_OPERATOR:
            found[name] = parameter
    return found


def translated(operator: torch._ops.OpOverload, known: Rule, parameters: Mapping[str, str], args: tuple,
               kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an operator as those of the rule."""
    given = {**dict(zip(names_of(operator), args, strict=False)), **kwargs}
    numbers, defaults = numbers_of(operator), arguments_of(operator)
    found = dict[str, Any]()
    for name, value in given.items():
        parameter = parameters.get(name)
        varies = name in numbers and isinstance(value, Tensor)
        if parameter is None or varies and parameter not in known.numbers:
            only_if(name in WITHOUT_EFFECT or not isinstance(value, Tensor) and value == defaults[name])
        elif parameter == "reduction" and isinstance(value, int):
            found[parameter] = REDUCTIONS[value]
        else:
            found[parameter] = value
    return found


def by_itself(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The result of the operator. It must not change statistics that are given to it: schemas do not say so."""
    given = {**dict(zip(names_of(operator), args, strict=False)), **kwargs}
    only_if(may_read(operator) and given.get("running_mean") is None)
    return with_tensors(operator)(*args, **kwargs)


def may_read(operator: torch._ops.OpOverload) -> bool:
    """Whether the operator may run with a number that is read. Backward runs it again, so it must not draw."""
    return gives_tensors(operator) and not operator._schema.is_mutable and (
        torch.Tag.nondeterministic_seeded not in operator.tags)


def named_as(operator: torch._ops.OpOverload, how: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under a name of its own, by which caches know it."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)
    call.__name__ = call.__qualname__ = f"{own_name(operator)}_{how}"
    return traced_by_its_arguments(call)
