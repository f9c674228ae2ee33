"""The description that ``save`` stores beside the programs: arguments, result, sizes and conditions of each method.

``load`` passes all of it to Python, and a file may contain anything. So it is checked completely before that.
"""
from __future__ import annotations

from typing import Any

import torch

from sot.deploy.errors import LoadError
from sot.deploy.sizes import ALLOWED, is_number

CONSTANTS = (bool, int, float, str, type(None))
DEEPEST = 100       # greatest depth of results, and of the terms of conditions
RESERVED = {*dir(torch.nn.Module), "methods", "programs", "provenance"} - {"forward"}


def check_metadata(data: Any) -> None:
    """Raises LoadError for a description that ``save`` does not write."""
    require(isinstance(data, dict) and isinstance(data.get("methods"), dict) and data["methods"], "methods", data)
    require(isinstance(data.get("name"), str), "name", data)
    require(isinstance(data.get("training"), bool), "training", data)
    source = data.get("provenance")
    require(isinstance(source, dict) and all(isinstance(text, str) for text in source.values()), "provenance", data)
    for name, layout in data["methods"].items():
        require(name.isidentifier() and not name.startswith("__") and name not in RESERVED, f"a method {name!r}", data)
        require(isinstance(layout, dict), name, data)
        check_layout(layout)


def check_layout(layout: dict[str, Any]) -> None:
    for part in ("positional", "keyword"):
        require(are_texts(layout.get(part)), part, layout)
    names = [*layout["positional"], *layout["keyword"]]
    constants = layout.get("constants")
    require(len({*names}) == len(names), "arguments", layout)
    require(isinstance(constants, dict) and {*constants} <= {*names}
            and all(type(value) in CONSTANTS for value in constants.values()), "constants", layout)
    require(isinstance(layout.get("program"), str), "program", layout)
    require(is_shape(layout.get("result")), "result", layout)
    sizes, conditions = layout.get("sizes"), layout.get("conditions")
    require(isinstance(sizes, list) and all(map(is_description, sizes)), "sizes", layout)
    require(isinstance(conditions, list) and all(map(is_condition, conditions)), "conditions", layout)


def require(holds: Any, what: str, where: Any) -> None:
    if not holds:
        shown = where.get(what) if isinstance(where, dict) and what in where else None
        raise LoadError(f"its description is not one that sot.save writes: {what}"
                        + (f" is {str(shown)[:80]}" if shown is not None else ""))


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_description(value: Any) -> bool:
    """Whether it is the description of a tensor, or None."""
    return value is None or isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(
        getattr(torch, str(value.get("dtype")).removeprefix("torch."), None), torch.dtype) and isinstance(
        value.get("shape"), list) and all(type(size) in (int, str) for size in value["shape"]) and are_ranges(
        value.get("ranges", [None for _ in value["shape"]]), len(value["shape"]))


def are_ranges(value: Any, count: int) -> bool:
    """Whether these are the least and the greatest size of each of so many dimensions, or None."""
    return isinstance(value, list) and len(value) == count and all(limits is None or isinstance(limits, list) and (
        [*map(type, limits)] in ([int, int], [int, type(None)])) for limits in value)


def is_shape(value: Any, depth: int = 0) -> bool:
    """Whether it is a ``Shape``, as structure.py writes it."""
    if value is None:
        return True
    if depth > DEEPEST or not isinstance(value, list) or len(value) < 2 or not isinstance(value[-1], list):
        return False
    kind, *more, parts = value
    named = kind == "named" and len(more) == 2 and isinstance(more[0], str) and are_texts(more[1]) and all(
        name.isidentifier() for name in (more[0], *more[1])) and len(more[1]) == len(parts)
    if kind == "text":
        return len(more) == 1 and isinstance(more[0], str) and not parts
    return (named or kind in ("list", "tuple", "dict", "record") and not more) and all(
        is_shape(part, depth + 1) for part in parts)


def is_condition(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and is_term(value[0]) and are_texts(value[1:])


def is_term(term: Any, depth: int = 0) -> bool:
    """Whether it is arithmetic with sizes of arguments that is quick to evaluate."""
    if isinstance(term, dict):
        place = term.get("size")
        return isinstance(place, list) and len(place) == 2 and all(type(n) is int and n >= 0 for n in place)
    if isinstance(term, list):
        known = bool(term) and isinstance(term[0], str) and term[0] in ALLOWED
        return known and depth < DEEPEST and all(is_term(part, depth + 1) for part in term[1:])
    return is_number(term)
