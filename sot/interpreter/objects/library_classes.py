"""Classes that a function of a library makes or completes: named tuples, dataclasses, total orders.

The function itself completes the stand-in, whose members are those of the program's class or shells of them. Emitted
code calls it with the class that it makes anew.
"""
from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING

from sot.interpreter.builtins.functional import make_partial
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import Const, NotConstant, Value
from sot.values.classes import CalledClassValue, ClassValue, MemberValue, ReplacedClassValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


# ---- made of constants ------------------------------------------------------------------------------------------
def _made_of_constants(maker: Callable[..., type]) -> None:
    takes_module = "module" in inspect.signature(maker).parameters

    @handles(maker)
    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            for name in ("defaults", "namespace"):      # instances keep them
                if (kept := kwargs.get(name)) is not None:
                    for part in [kept] if kept.pytype is not list else kept.items_list(m) or []:
                        part.constant()
            given = [value.host(m) for value in (*args, *kwargs.values())]
            if holds_made_class(m, given):
                raise Break(Reason.CLASS_BODY, f" by {maker.__name__} of a class that is being made")
            options = dict(zip(kwargs, given[len(args):], strict=True))
            if takes_module:
                options.setdefault("module", m.frames[-1].namespace.get("__name__", "__main__"))
            made = CalledClassValue(maker, tuple(given[:len(args)]), options)
        except (NotConstant, TypeError, ValueError) as e:
            raise Break(Reason.CLASS_BODY, f" by {maker.__name__}: {e}") from None
        m.made_classes[id(made.real)] = made
        return made


def holds_made_class(m: Machine, held: object) -> bool:
    """Whether a constant holds the stand-in of a class of the program, which emitted code must not hold."""
    parts = [*held, *held.values()] if isinstance(held, dict) else held if isinstance(held, (list, tuple, set)) else (
        typing.get_args(held))
    return id(held) in m.made_classes or any(holds_made_class(m, part) for part in parts)


for _maker in (collections.namedtuple, dataclasses.make_dataclass):
    _made_of_constants(_maker)


# ---- completed by a decorator -------------------------------------------------------------------------------------
def completed(m: Machine, function: Callable[..., type], value: Value, kwargs: dict[str, Value]) -> Value:
    """The class that a decorator returns for a class of the program."""
    made = m.made_classes.get(id(value.real)) if isinstance(value, Const) else None
    if made is None or made.written or "__classdictcell__" in made.body or has_mutable_default(made):
        raise Break(Reason.CLASS_BODY, f" by {function.__name__}")
    try:
        options = {name: option.constant() for name, option in kwargs.items()}
        result = function(made.real, **options)
    except Exception as e:  # noqa: BLE001 - Python will raise it
        raise Break(Reason.CLASS_BODY, f" by {function.__name__}: {e}") from None
    if result is not made.real and made.refers_to_itself and REPLACES_CELLS:
        raise Break(Reason.CLASS_BODY, f" by {function.__name__}, whose methods refer to the class")
    if result is made.real:
        made.complete(m, (function, options))
        return made
    replaced = m.made_classes[id(result)] = ReplacedClassValue(result, made, (function, options))
    return replaced


def replaces_cells() -> bool:
    """Whether ``super()`` in a dataclass with slots is that of the class that the decorator returns, as since 3.14."""
    @dataclasses.dataclass(slots=True)
    class Slotted:
        def own(self) -> type:
            return __class__    # type: ignore[name-defined]   # noqa: F821
    return Slotted().own() is Slotted


REPLACES_CELLS = replaces_cells()


def has_mutable_default(made: ClassValue) -> bool:
    """Whether a dataclass would refuse the default of a field. It would not refuse the shell of the default."""
    for name in vars(made.real).get("__annotations__", ()):
        member = made.body.get(name)
        default = member.kwargs.get("default") if isinstance(member, MemberValue) else member
        if default is not None and default.pytype.__hash__ is None:
            return True
    return False


@handles(dataclasses.dataclass)
def dataclass(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        return make_partial(m, functools.partial, [Const(dataclasses.dataclass)], kwargs)
    return completed(m, dataclasses.dataclass, args[0], kwargs)


@handles(functools.total_ordering)
def total_ordering(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return completed(m, functools.total_ordering, args[0], kwargs)


@handles(enum.auto)
def auto(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MemberValue(enum.auto, enum.auto, kwargs)


@handles(dataclasses.field)
def field(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MemberValue(dataclasses.field, dataclasses.Field, kwargs)
