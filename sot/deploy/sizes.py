"""The sizes that a saved method accepts, as described in its file, and the errors for calls with other sizes."""
from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from sot.deploy.arguments import Dimensions, Key
from sot.deploy.errors import FewSizesError, SaveError
from sot.deploy.module import Condition
from sot.deploy.numbers import Leaf
from sot.frontend.input_spec import InputSpecError
from sot.guards.guards import RelationGuard
from sot.guards.origin import Dim
from sot.guards.tensor_guards import ValuesGuard
from sot.guards.terms import OF_SYMBOLS, Term, function_of, leaves
from sot.reports.records import GuardRecord
from sot.torch_compat.exporting.asked import asked_of

ALLOWED = OF_SYMBOLS - {"**", "math.prod"} | {"math.log", "math.log2", "math.log10"}
LARGEST = 1 << 40
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
LARGE = range(1000, 1064)       # sizes to try; no example is so large
Described = list[dict[str, Any] | None]     # for each leaf of the arguments: the tensor's name, dtype and shape


def described(program: Any, names: list[str | None], dimensions: Dimensions) -> Described:
    """The required inputs of a program. A dimension is a size, or a name if it may differ: that of the input_spec, if
    it has one. Dimensions that the model needs to be equal have the same name.
    """
    labels: dict[str, str] = {}
    found: Described = []
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [nodes[str(name)].meta.get("val") if str(name) in nodes else None
              for name in program.graph_signature.user_inputs]
    for where, value in zip(names, values, strict=True):
        if where is None or not isinstance(value, torch.Tensor):
            continue
        for i, size in enumerate(value.shape):
            key = dimensions.keys.get((where, i))
            if key is not None and not key.startswith("dimension "):
                labels.setdefault(str(size), key)
    for where, value in zip(names, values, strict=True):
        if where is None or not isinstance(value, torch.Tensor):
            found.append(None)
            continue
        shape = [size if isinstance(size, int) else labels.get(str(size), str(size)) for size in value.shape]
        ranges = [None if isinstance(size, int) else range_of(program, size) for size in value.shape]
        found.append({"name": where, "dtype": str(value.dtype), "shape": shape, "ranges": ranges})
    return found


def range_of(program: Any, size: torch.SymInt) -> list[int | None] | None:
    """The least and the greatest size that the graph of a program accepts; None if it accepts all. torch says that it
    is at least 2 because the examples are not 0 or 1, and accepts these.
    """
    found = next((found for symbol, found in program.range_constraints.items() if str(symbol) == str(size)), None)
    least, most = (int(found.lower), found.upper) if found is not None else (0, math.inf)
    least = least if least > 2 else 0
    return None if least == 0 and most > LARGEST else [least, None if most > LARGEST else int(most)]


def bounded(program: Any, names: list[str | None], dimensions: Dimensions,
            conditions: Iterable[Condition]) -> list[Key]:
    """The dimensions for which a program accepts no large size, and not because a line of the model asks."""
    asked = {(str(names[position]), i) for condition in conditions for position, i in sizes_in(condition.term)
             if isinstance(condition.term, tuple) and condition.term[0] != "!="}
    return [key for description in described(program, names, dimensions) if description is not None
            for i, limits in enumerate(description["ranges"]) if limits is not None and limits[1] is not None
            and (description["name"], i) not in asked
            and (key := dimensions.keys.get((description["name"], i))) is not None]


def check(method: str, expected: Described, given: Iterable[Any]) -> None:
    """Raises InputSpecError, which names arguments and dimensions, if a tensor does not fit the file."""
    sizes: dict[str, tuple[int, str]] = {}
    for description, tensor in zip(expected, given, strict=True):
        if description is None:
            continue
        problem = next(problems(description, tensor, sizes), None)
        if problem is not None:
            raise InputSpecError(f"{method}: {problem}")


def problems(expected: Mapping[str, Any], tensor: Any, sizes: dict[str, tuple[int, str]]) -> Iterator[str]:
    where, shape = expected["name"], expected["shape"]
    if not isinstance(tensor, torch.Tensor):
        yield f"{where} must be a tensor, not {type(tensor).__name__}"
    elif str(tensor.dtype) != expected["dtype"]:
        yield f"{where} must be of dtype {expected['dtype'][6:]}, not {str(tensor.dtype)[6:]}"
    elif tensor.dim() != len(shape):
        yield f"{where} must have {len(shape)} dimensions, not {tensor.dim()}"
    else:
        for i, (size, expectation) in enumerate(zip(tensor.shape, shape, strict=True)):
            here = f"dimension {i} of {where}"
            if isinstance(expectation, int):
                if size != expectation:
                    yield f"{here} is {size}; the model was saved with {expectation}"
            elif str(expectation).isidentifier():
                known, there = sizes.setdefault(expectation, (size, here))
                if known != size:
                    named = "" if re.fullmatch(r"s\d+", expectation) else f" ({expectation})"
                    yield f"{here} is {size}, and {there} is {known}: they must be equal{named}"


def check_ranges(method: str, expected: Described, given: Iterable[Any]) -> None:
    """Raises InputSpecError for sizes that torch's operators do not take, or for which they need another graph."""
    for description, tensor in zip(expected, given, strict=True):
        for i, limits in enumerate(description.get("ranges", ()) if description is not None else ()):
            least, most = limits or (0, None)
            if not (least <= tensor.shape[i] and (most is None or tensor.shape[i] <= most)):
                sizes = f"from {least} to {most}" if least else f"up to {most}"
                sizes = f"of {least} or more" if most is None else sizes
                where = f"dimension {i} of {(description or {})['name']}"
                raise InputSpecError(f"{method}: {where} is {tensor.shape[i]}, and the file is for sizes {sizes}: with "
                                     f"others the model computes differently, or raises")


# ---- conditions -------------------------------------------------------------------------------------------
def is_about_sizes(term: Term) -> bool:
    if isinstance(term, tuple):
        return term[0] in ALLOWED and all(map(is_about_sizes, term[1:]))
    if isinstance(term, Leaf):
        return term.kind == "size" or term.kind == "rounded" and is_about_sizes(term.key)
    return is_number(term)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST


def sizes_in(term: Term) -> Iterator[tuple[int, int]]:
    """The sizes in a term: each an argument's position and a dimension."""
    if isinstance(term, tuple):
        for part in term[1:]:
            yield from sizes_in(part)
    elif isinstance(term, Leaf) and term.kind == "size":
        yield term.key
    elif isinstance(term, Leaf) and term.kind == "rounded":
        yield from sizes_in(term.key)


def as_data(term: Term) -> Any:
    """A term over sizes as JSON."""
    if isinstance(term, tuple):
        return [*map(as_data, term)]
    if isinstance(term, Leaf):
        return as_data(term.key) if term.kind == "rounded" else {"size": [*term.key]}
    return term


# ---- conditions that torch.export asked for ---------------------------------------------------------------
def asked_by_operators(program: Any, names: list[str | None], asked: list[Condition],
                       of_operators: Iterable[Condition]) -> Iterator[Condition]:
    """The conditions on sizes of which only torch knows, and under which sizes in the graph are those of the program.
    Raises FewSizesError for a condition that few sizes meet.
    """
    lines: dict[Any, Condition] | None = None
    known = {truths_of(condition.term) for condition in asked}
    places = {f"L[{name.partition('[')[0]!r}]{''.join(name.partition('[')[1:])}": i
              for i, name in enumerate(names) if name is not None}
    for text, term in asked_of(program, lambda path, dim: Leaf("size", (places[path], dim))):
        if term is not None and is_taken_for_granted(term):
            continue
        text = re.sub(r"L\['(\w+)'\](\S*?)\.size\(\)(\[\d+\])", r"\1\2.shape\3", text)
        if term is None or not is_about_sizes(term):
            raise SaveError(f"torch.export asks whether {text}, and a file has no such condition")
        if (truths := truths_of(term)) in known:
            continue
        if all(truths[1]):      # holds for small sizes, as many others do
            yield Condition(term, text, "")
            continue
        if lines is None:
            lines = {truths_of(condition.term): condition for condition in of_operators}
        found = lines.get(truths, Condition(term, text, ""))
        if term[0] == "==" and len(truths[0]) == 1 and not any(map(partial(holds_for_one, term), LARGE)):
            where = f", at {found.line}" if found.line else ""
            raise FewSizesError(f"an operator takes a size only as a constant{where}: the file would be for "
                                f"{found.text} only. Use constant sizes in input_spec, or another operator")
        yield Condition(term, found.text, found.line)


def is_taken_for_granted(term: Term) -> bool:
    """Whether the file need not check it: limits of one size are in the description of arguments. In a file operators
    find out themselves whether a size is 0 or 1, and how strides and numbers of elements compare.
    """
    symbol, left, right = term if isinstance(term, tuple) and len(term) == 3 else ("", None, None)
    if isinstance(left, int) and symbol in MIRRORED:
        symbol, left, right = MIRRORED[symbol], right, left
    products = [has_product(left), has_product(right)]
    if symbol == "==":
        return products[0] and (products[1] or right == 0)
    return symbol == "!=" or any(products) or isinstance(right, int) and (
        isinstance(left, Leaf) or (symbol, right) in ((">", 0), (">", 1), (">=", 1), (">=", 2)))


def has_product(term: Term) -> bool:
    """Whether sizes are factors, as in strides."""
    return isinstance(term, tuple) and (
        term[0] == "*" and term[1] != -1 and any(True for _ in sizes_in(term)) or any(map(has_product, term[1:])))


def truths_of(term: Term) -> tuple[tuple[tuple[int, int], ...], tuple[bool, ...]]:
    """The sizes in a condition, and whether it holds for some small ones: torch rearranges terms."""
    places = tuple(sorted({*sizes_in(term)}))
    values = range(1, {1: 64, 2: 9, 3: 5}.get(len(places), 3))
    tables = (dict(zip(places, sizes, strict=True)) for sizes in itertools.islice(
        itertools.product(values, repeat=len(places)), 64))
    return places, tuple(holds(as_data(term), table.__getitem__) for table in tables)


def holds_for_one(term: Term, size: int) -> bool:
    """Whether a condition on one size holds for it."""
    return holds(as_data(term), lambda place: size)


def value_of(term: Any, size: Callable[[tuple[int, int]], int]) -> Any:
    """The value of a term that was read from a file. ``size``: of a dimension of an argument, by their numbers."""
    if isinstance(term, dict):
        position, dimension = term["size"]
        return size((position, dimension))
    if isinstance(term, list):
        if term[0] not in ALLOWED:
            raise InputSpecError(f"the file has the condition {term}, which is not arithmetic")
        return function_of(term[0])(*(value_of(part, size) for part in term[1:]))
    return term


def holds(term: Any, size: Callable[[tuple[int, int]], int]) -> bool:
    try:
        return bool(value_of(term, size))
    except (ArithmeticError, ValueError):       # of the logarithm of zero
        return False


def check_conditions(method: str, conditions: Iterable[Any], given: list[Any]) -> None:
    """Raises InputSpecError for sizes with which the program would take another branch than the graph."""
    for term, text, line in conditions:
        if not holds(term, lambda place: given[place[0]].shape[place[1]]):
            asks = f"as the program asks at {line}" if line else "as an operator asks"
            raise InputSpecError(f"{method}: it was saved for {text}, {asks}, and is called with other sizes. Save "
                                 f"another file for them" + (", or change the line" if line else ""))


# ---- errors of saving ---------------------------------------------------------------
def refuse_values(guards: Iterable[GuardRecord], arguments: Iterable[str]) -> None:
    """Raises SaveError if the capture is right only for some values of an argument."""
    for record in guards:
        name = str(getattr(record.guard, "origin", ""))
        if isinstance(record.guard, ValuesGuard) and name.partition("[")[0].partition(".")[0] in arguments:
            raise SaveError(f"what it computes depends on the values of {name}, at {line_of(record)}. Compute with "
                            f"tensors there (torch.where, a mask), or pass {name} as a number, which is a constant of "
                            f"the file")


def explained(error: Exception, guards: Iterable[GuardRecord]) -> str | None:
    """Which dimension cannot differ, at which line, and the remedy, from the message of torch.export; None if the
    message is about something else.
    """
    fixed = re.search(r"L\['(\w+)'\](\S*)\.size\(\)\[(\d+)\][^\n]*specialized it to be a constant \((\d+)\)",
                      str(error))
    if fixed is None:
        return None
    name, path, dim, size = fixed.groups()
    asked = next((record for record in guards if is_about(record.guard, f"{name}{path}", int(dim))), None)
    of_operator = asked is not None and getattr(asked.guard, "of_operator", False)
    takes = "an operator takes it only as a constant" if of_operator else f"the model takes it for {size}"
    other = ("make the tensor with an operator that takes any size (torch.arange)" if of_operator else
             f"compute with {name}{path}.shape[{dim}]")
    return (f"dimension {dim} of {name}{path} cannot differ: {takes}" + (f", at {line_of(asked)}" if asked else "")
            + f". Use the size {size} there in input_spec, or {other}")


def is_about(guard: Any, tensor: str, dim: int) -> bool:
    return isinstance(guard, RelationGuard) and guard.symbol == "==" and isinstance(guard.right, int) and any(
        isinstance(origin, Dim) and origin.index == dim and str(origin.base) == tensor
        for origin in leaves(guard.left))


def line_of(record: GuardRecord) -> str:
    return line_at(record.file, record.line)


def line_at(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()
    return f"{file}:{line}" + (f" ({code})" if code else "")
