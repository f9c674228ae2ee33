"""Look at a ``.pt2`` archive before torch reads it: torch unpickles some of its parts, loads shared libraries, and
evaluates the expressions of symbolic sizes. A model needs none of the first two, and only arithmetic of the third.
"""
from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sot.deploy.errors import LoadError

WEIGHTS = ("weight_", "tensor_")        # what parts that hold plain numbers are called
FUNCTIONS = frozenset("""
    Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv IntTrueDiv FloatTrueDiv Where ModularIndexing PowByNatural FloatPow
    Abs ToFloat TruncToInt TruncToFloat CeilToInt FloorToInt RoundToInt floor ceiling Pow Mul Add Integer Symbol
    Eq Ne Ge Gt Le Lt Not And Or Float Rational
    Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan
""".split())
FORBIDDEN = ("aten.from_file", "aten.set_", "aten.set.", "aten._print", "aten.resize_", "aten.record_stream",
             "aten.data", "aten._resize_output", "aten.save", "aten.load", "aten.set_data")
# What graphs compute with sizes. No powers, shifts or factorials: a few of these make numbers that fill the memory.
ARITHMETIC_OF = {
    "_operator": {"add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "abs", "eq", "ne", "lt", "le", "gt",
                  "ge", "and_", "or_", "xor", "not_", "invert", "getitem", "index"},
    "math": {"ceil", "floor", "trunc", "sqrt", "log", "log2", "log10", "exp", "isnan", "isinf", "isfinite", "fabs"},
}
# Levels of vmap.
TRANSFORMS = {*(f"torch._functorch.predispatch.{name}" for name in (
    "_add_batch_dim", "_remove_batch_dim", "_vmap_increment_nesting", "_vmap_decrement_nesting")),
    "torch._functorch.vmap.lazy_load_decompositions"}
# The operators of ATen that have the name of a method.
OPERATORS = {f"__{place}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for place in ("", "i")}
LONGEST, LARGEST_POWER = 4000, 16      # an expression's text; an exponent, which is a number
ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Constant, ast.Name, ast.Load,
              ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def inspect_archive(path: Path) -> None:
    """Raises LoadError for what is no archive, and for what could run code."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.partition("/")[2]
                if problem := problem_of(archive, info, name):
                    raise LoadError(f"{path} is not loaded: {problem}")
    except (OSError, zipfile.BadZipFile) as e:
        raise LoadError(f"{path} cannot be read as a .pt2 file: {e}") from e


def problem_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> str | None:
    """Why a part of an archive is refused."""
    folder, _, file = name.rpartition("/")
    if folder in ("data/weights", "data/constants"):
        if file.endswith("_config.json"):
            return config_problem(json.loads(archive.read(info)), name)
        return None if file.startswith(WEIGHTS) else f"{name} holds Python objects, which can run code when read"
    if folder == "data/sample_inputs":
        return f"{name} holds Python objects" if info.file_size else None
    if folder == "models":
        model = json.loads(archive.read(info))
        if (refused := next((t for t in targets(model) if not is_allowed(t)), None)) is not None:
            return f"{name} calls {refused}, which is no operator on tensors that a saved model needs"
        return next((f"{name} has the expression {text!r}, which is no arithmetic"
                     for text in expressions(model) if not is_arithmetic(text)), None)
    if folder == "extra" or not folder or folder == ".data":
        return None
    return f"{name} is nothing that a model needs"


def config_problem(config: Any, name: str) -> str | None:
    for weight, entry in config.get("config", {}).items():
        if entry.get("use_pickle") or not str(entry.get("path_name")).startswith(WEIGHTS):
            return f"{weight} in {name} is a Python object, which can run code when it is read"
    return None


def targets(data: Any) -> Iterator[str]:
    """Every function that the nodes of a graph and its subgraphs call."""
    if isinstance(data, dict):
        if "target" in data and "inputs" in data:
            yield str(data["target"])
        for value in data.values():
            yield from targets(value)
    elif isinstance(data, list):
        for item in data:
            yield from targets(item)


def is_allowed(target: str) -> bool:
    """Is it an operator of ATen that names no file, a higher-order operator, or arithmetic?

    torch finds a target by its attributes, one after the other, from ``torch``, ``math`` or ``operator``. So only
    names of a known form are allowed: ``torch.hub.load`` and ``_operator.call`` would run whatever they are given.
    """
    module, _, name = target.rpartition(".")
    if module in ARITHMETIC_OF:
        return name in ARITHMETIC_OF[module]
    if module == "torch":
        return name.startswith("sym_")
    if target in TRANSFORMS:
        return True
    parts = target.removeprefix("torch.ops.").split(".")
    if not target.startswith("torch.ops.") or any(part.startswith("__") for part in parts[1:]
                                                  if part not in OPERATORS):
        return False
    if parts[0] == "higher_order":
        return len(parts) == 2
    known = len(parts) == 3 and parts[0] in ("aten", "prims", "prim", "sot")
    return known and not ".".join(parts).startswith(FORBIDDEN)


def expressions(data: Any) -> Iterator[str]:
    """Every expression over symbols in the description of a graph."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "expr_str":
                yield str(value)
            else:
                yield from expressions(value)
    elif isinstance(data, list):
        for item in data:
            yield from expressions(item)


def is_arithmetic(text: str) -> bool:
    """Numbers, symbols, operators, and calls of the functions that sizes are made with."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts: dict[int, Callable[[str], bool]] = {id(node.args[0]): str.isidentifier for node in calls if is_symbol(node)}
    texts.update((id(node.args[0]), is_number) for node in calls if is_float(node))
    if len(text) > LONGEST or not all(map(is_small_power, ast.walk(tree))):
        return False
    return all(isinstance(node, ARITHMETIC) and is_harmless(node, texts.get(id(node))) for node in ast.walk(tree))


def is_harmless(node: ast.AST, is_text: Callable[[str], bool] | None) -> bool:
    """``is_text``: what a text must be here, if there may be one: the name of a symbol, the digits of a float."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float) or is_text is not None and is_text(str(node.value))
    return not isinstance(node, ast.Name) or not node.id.startswith("_")


def is_small_power(node: ast.AST) -> bool:
    """No tower of powers, which would take for ever to evaluate."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, exponent = node.left, node.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "Pow" in node.func.id:
        if len(node.args) != 2:
            return False
        base, exponent = node.args
    else:
        return True
    if isinstance(exponent, ast.Call) and len(exponent.args) == 1:     # Integer(2)
        exponent = exponent.args[0]
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    nested = any(isinstance(n, ast.Name) and "Pow" in n.id or isinstance(n, ast.Pow) for n in ast.walk(base))
    return not nested and isinstance(exponent, ast.Constant) and isinstance(exponent.value, int | float) and (
        exponent.value <= LARGEST_POWER)


def is_symbol(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "Symbol" and bool(node.args)


def is_float(node: ast.Call) -> bool:
    """``Float('0.5', precision=53)``"""
    return isinstance(node.func, ast.Name) and node.func.id == "Float" and len(node.args) == 1 and all(
        keyword.arg == "precision" and isinstance(keyword.value, ast.Constant) and keyword.value.value == 53
        for keyword in node.keywords)


def is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,20}(\.\d{0,60})?(e[-+]?\d{1,3})?", text) is not None
