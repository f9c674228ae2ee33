"""Names of the program in sentences about what is left of its functions after a break.

The rest of a caller and of the functions that it has called is one function, whose last parameter ``__call`` holds the
rest of the next inner function and its arguments, in turn. Values that an expression had computed are ``__stack_0``
and so on. Nobody has written these: here they become names of the user's.
"""
from __future__ import annotations

import re
from collections.abc import Iterable

from sot.bytecode.frame_layout import CALL, SLOT
from sot.guards.guards import CodeGuard, Guard
from sot.guards.origin import Arg, Item, Origin, same_key

PART = r"(?:\[[^\[\]]*\]|\.\w+)*"       # of a value: items and attributes of it
STACK = re.compile(rf"__stack_\d+{PART}")
REST = re.compile(rf"(?<!\w){CALL}(?!\w){PART}")
Names = dict[str, str]


def names_in(guards: Iterable[Guard]) -> Names:
    """What to say for the parts of ``__call``: the parameter of which function each is."""
    names: Names = {}
    for guard in guards:
        if isinstance(guard, CodeGuard) and is_inner(guard.origin):
            prefix, code = str(guard.origin).removesuffix("[0]"), guard.parts[0]
            for i, name in enumerate(code.co_varnames[:code.co_argcount], 1):
                inner = guard.name.replace("<locals>.", "")
                names[f"{prefix}[{i}]"] = f"a value computed in {inner}" if name.startswith(SLOT) else (
                    f"{inner}'s {name}")
    return dict(sorted(names.items(), key=lambda item: -len(item[0])))


def said(sentence: str, names: Names) -> str:
    """The sentence in the program's own names."""
    if "__" not in sentence:
        return sentence
    for part, name in names.items():
        sentence = sentence.replace(part, name)
    sentence = STACK.sub("a value computed before the break", sentence)
    return REST.sub("a value of the function that goes on after the break", sentence)


def is_inner(origin: Origin | None) -> bool:
    """Is it the function that the rest of another one goes on in?"""
    return isinstance(origin, Item) and same_key(origin.key, 0) and is_call(origin.base)


def is_call(origin: object) -> bool:
    """Is it such a function with its arguments?"""
    while isinstance(origin, Item):
        origin = origin.base
    return isinstance(origin, Arg) and origin.name == CALL


def is_structure(guard: Guard) -> bool:
    """Does it say which rest of which function this is, and nothing about a value of the program?"""
    origin = getattr(guard, "origin", None)
    return is_inner(origin) or is_call(origin) and not isinstance(origin, Item)
