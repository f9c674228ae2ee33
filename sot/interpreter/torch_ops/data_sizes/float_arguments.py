"""Which arguments of a tensor operation may be floats that vary, and what is guarded of them."""
from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from sot.graph.number_rules import Rule, is_of_lists, is_operand, knows_nan, rule_of, takes_tensors
from sot.guards.draws import is_drawn
from sot.guards.terms import leaves
from sot.torch_compat.op_effects import limits
from sot.torch_compat.operators.with_numbers import is_independent
from sot.values.base import Const, NotConstant, Value
from sot.values.numbers import DynamicNumber, applied, compare, is_dynamic, is_finite, is_nan, operands, within

if TYPE_CHECKING:
    from sot.values.protocols import Machine


def with_number_places(m: Machine, name: str, target: Any, args: list[Value], kwargs: dict[str, Value]
                       ) -> tuple[list[Value], dict[str, Value], Collection[int | str]]:
    """The arguments of a tensor operation, and those of them that may be floats of the graph, by position or name: all,
    or those of a rule. Guards keep such a number on its side of the rule's special values, or make it one of them.
    """
    if name in m.assumptions.needs_numbers:
        return args, kwargs, ()
    given = by_place(args, kwargs)
    if takes_tensors(target) or is_of_lists(target) and (m.assumptions.interprets or not m.of_compilers):
        return args, kwargs, {p for p, v in given.items() if is_operand(target, p) or fits(m, target, v, given)}
    if not any(is_dynamic(v) and v.pytype is float for v in given.values()):
        return args, kwargs, ()
    rule = rule_of(target)
    if rule is None or rule.of_program is not None and not may_vary(m, rule.of_program, args, kwargs) or (
            not is_ordered(m, rule, args, kwargs, given)):
        return args, kwargs, ()
    found = set[int | str]()
    for place, number in rule.places(args, kwargs):
        value = given[place]
        if is_dynamic(value) and value.pytype is float:
            if (known := special_value(m, value, rule.numbers[number])) is not None:
                given[place] = Const(known)
            elif fits(m, target, value, given) and (
                    number not in rule.within or within(m, value, *rule.within[number])):
                found.add(place)
    return [given[i] for i in range(len(args))], {key: given[key] for key in kwargs}, found


def by_place(args: list[Value], kwargs: dict[str, Value]) -> dict[int | str, Value]:
    """The arguments by position or name."""
    given: dict[int | str, Value] = dict(enumerate(args))
    given.update(kwargs)
    return given


def with_floats(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]
                ) -> tuple[list[Value], dict[str, Value]]:
    """The arguments of a tensor operation, with floats for the integers that ``may_be_floats``."""
    given = by_place(args, kwargs)
    for place in may_be_floats(target, args, kwargs):
        if within(m, given[place], -1 << 63, (1 << 63) - 1) and (
                made := applied(m, "float", given[place])) is not None:
            given[place] = made
    return [given[i] for i in range(len(args))], {key: given[key] for key in kwargs}


def may_be_floats(target: Any, args: list[Value], kwargs: dict[str, Value]) -> list[int | str]:
    """The integers that vary, by position or name, where an operation has a rule for floats. On a tensor of floats it
    computes the same with both.
    """
    given = by_place(args, kwargs)
    fakes = [fake for v in given.values() if isinstance(fake := getattr(v, "fake", None), torch.Tensor)]
    rule = None if takes_tensors(target) or fakes and not fakes[0].is_floating_point() else rule_of(target)
    return [] if rule is None else [place for place, _ in rule.places(args, kwargs)
                                    if is_dynamic(given[place]) and given[place].pytype is int]


def is_ordered(m: Machine, rule: Rule, args: list[Value], kwargs: dict[str, Value], given: Mapping[int | str, Value]
               ) -> bool:
    """Guard that the operation does not refuse the order of two numbers, if it does not now."""
    if not rule.ordered:
        return True
    places = rule.given(args, kwargs)
    low, high = (given[places[name]] if name in places else Const(rule.default(name)) for name in rule.ordered)
    if not (is_dynamic(low) or is_dynamic(high)):
        return True
    return operands(low, high) is not None and bool(compare(m, "<=", low, high).real)


def fits(m: Machine, target: Any, value: Value, given: Mapping[int | str, Value]) -> bool:
    """Guard that torch does with a tensor what it does with this float. It refuses a float that is too large for a
    type, where a tensor becomes infinite. A random number cannot be guarded.
    """
    if m.assumptions.interprets or not is_dynamic(value) or value.pytype is not float:
        return True
    if any(map(is_drawn, leaves(value.term))):      # type: ignore[attr-defined]
        return True
    tensors = [fake.dtype for v in given.values() if isinstance(fake := getattr(v, "fake", None), torch.Tensor)]
    dtypes = {torch.float32, *tensors, *(v.real for v in given.values() if v.pytype is torch.dtype)} - {torch.bool}
    (example, _), _ = operands(value, Const(0)) or ((0, 0), 0)
    if not math.isfinite(example) and all(d.is_floating_point or d.is_complex for d in dtypes):
        return not (knows_nan(target) and is_nan(m, value).real) and not is_finite(m, value).real
    least, most = zip(*map(limits, dtypes), strict=True)
    return within(m, value, float(max(least)), min(map(below, most)))


def below(limit: float) -> float:
    """The largest float that is not above a limit."""
    return float(limit) if float(limit) <= limit else math.nextafter(float(limit), 0)


def may_vary(m: Machine, operator: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether the floats of an operator of the program may vary: its result has the same metadata for all of them."""
    if not any(is_dynamic(v) and v.pytype is float for v in (*args, *kwargs.values())):
        return False
    try:
        given = [example_of(v) for v in args]
        named = {key: example_of(v) for key, v in kwargs.items()}
    except NotConstant:
        return False
    return is_independent(operator, given, named, lambda v: isinstance(v, DynamicNumber))


def example_of(value: Value) -> Any:
    """What an operation on fakes gets: a float that varies as it is."""
    if isinstance(value, DynamicNumber) and value.varies:
        return value if value.pytype is float else value.example
    fake = getattr(value, "fake", None)
    return fake if fake is not None else value.constant()


def special_value(m: Machine, value: Value, special: tuple[float, ...]) -> float | None:
    """The special value that a number is; None if it is between two of them. Both are guarded."""
    for known in special:
        if compare(m, "==", value, Const(known)).real:
            return known
        if compare(m, "<", value, Const(known)).real:
            return None
    return None


def is_code_for_numbers(target: Any, args: list[Value], kwargs: Mapping[str, Value]) -> bool:
    """Whether a Python function of torch is followed as code of the program is: it gets a float that varies and has no
    rule, but the operations that it calls may have one.
    """
    if not any(is_dynamic(v) and v.pytype is float for v in (*args, *kwargs.values())):
        return False
    asked = target.__name__ if target.__module__ == "torch._tensor" else target     # a method
    return not takes_tensors(asked) and rule_of(asked) is None
