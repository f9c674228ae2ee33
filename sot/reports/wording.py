"""Replaces internal names by names of the program in sentences about resume code.

The resume code of a caller and of its inlined callees is one function. Its last parameter ``__call`` holds the rest of
the next inner function with its arguments, and so on. Values that an expression had computed are ``__stack_0`` and so
on. The user did not write these names, so they are replaced here.
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from types import CodeType

from sot.bytecode.frame_layout import CALL, SLOT
from sot.guards.containers import same_key
from sot.guards.guards import CodeGuard, Guard
from sot.guards.origin import Arg, Item, Origin
from sot.reports.expressions import names_of_slots

ITEM = r"\[(?:'[^']*'|\"[^\"]*\"|[^\[\]'\"]|\[[^\[\]]*\])*\]"
PART = rf"(?:{ITEM}|\.\w+)*"       # of a value: items and attributes
STACK = re.compile(rf"{SLOT}\d+(?P<part>{PART})")
REST = re.compile(rf"(?<!\w){CALL}(?!\w){PART}")
PARTS_OF_MODULES = re.compile(r"\._(?:modules|parameters|buffers)\['([\w.]+)'\]")
GLOBAL = re.compile(r"([\w.]+) globals\['(\w+)'\]")
Names = dict[str, str]


def names_in(guards: Iterable[Guard], code: CodeType | None = None) -> Names:
    """The names for the parts of ``__call`` (each is a parameter of a function), and for values that were computed
    before the break after which ``code`` continues.
    """
    names: Names = names_of_slots(code) if code is not None else {}
    for guard in guards:
        if isinstance(guard, CodeGuard) and is_inner(guard.origin):
            prefix, called = str(guard.origin).removesuffix("[0]"), guard.parts[0]
            computed = names_of_slots(called)
            for i, name in enumerate(called.co_varnames[:called.co_argcount], 1):
                inner = guard.name.replace("<locals>.", "")
                names[f"{prefix}[{i}]"] = f"{inner}'s {computed.get(name, name)}" if name in computed or (
                    not name.startswith(SLOT)) else f"a value computed in {inner}"
    return dict(sorted(names.items(), key=lambda item: -len(item[0])))


def said(sentence: str, names: Names) -> str:
    """The sentence with the program's own names, and with globals and paths of modules as the program writes them."""
    sentence = PARTS_OF_MODULES.sub(r".\1", GLOBAL.sub(as_written, sentence))
    if "__" not in sentence:
        return sentence
    for part, name in names.items():
        sentence = re.sub(rf"{re.escape(part)}(?!\d)", lambda _, name=name: name, sentence)    # type: ignore[misc]
    sentence = STACK.sub(lambda found: part_of("a value computed before the break", found["part"]), sentence)
    return REST.sub("a value of the function that continues after the break", sentence)


def as_written(found: re.Match[str]) -> str:
    """A global of the main program by its name, and one of another module behind the module's name."""
    module, name = found.groups()
    return name if module == "__main__" else f"{module}.{name}"


def part_of(whole: str, path: str) -> str:
    """A description of ``.shape[0]`` or a similar part of a value."""
    if not path:
        return whole
    return f"{path[1:]} of {whole}" if path.startswith(".") else f"{path} of {whole}"


def is_inner(origin: Origin | None) -> bool:
    """Whether it is the function in which resume code continues."""
    return isinstance(origin, Item) and same_key(origin.key, 0) and is_call(origin.base)


def is_call(origin: object) -> bool:
    """Whether it is such a function with its arguments."""
    while isinstance(origin, Item):
        origin = origin.base
    return isinstance(origin, Arg) and origin.name == CALL


def is_structure(guard: Guard) -> bool:
    """Whether it only identifies the resume code of a function, and says nothing about a value of the program."""
    origin = getattr(guard, "origin", None)
    return is_inner(origin) or is_call(origin) and not isinstance(origin, Item)
