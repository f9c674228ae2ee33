"""Look at a ``.pt2`` archive before torch reads it: torch unpickles some of its parts, loads shared libraries, and
evaluates the expressions of symbolic sizes. A model needs none of the first two, and only arithmetic of the third.
"""
from __future__ import annotations

import ast
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sot.deploy.errors import LoadError

WEIGHTS = ("weight_", "tensor_")        # what parts that hold plain numbers are called
FUNCTIONS = frozenset("""
    Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv IntTrueDiv FloatTrueDiv Where ModularIndexing PowByNatural FloatPow
    Abs ToFloat TruncToInt TruncToFloat CeilToInt FloorToInt RoundToInt floor ceiling Pow Mul Add Integer Symbol
    Eq Ne Ge Gt Le Lt Not And Or
""".split())
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
        return next((f"{name} has the expression {text!r}, which is no arithmetic"
                     for text in expressions(json.loads(archive.read(info))) if not is_arithmetic(text)), None)
    if folder == "extra" or not folder or folder == ".data":
        return None
    return f"{name} is nothing that a model needs"


def config_problem(config: Any, name: str) -> str | None:
    for weight, entry in config.get("config", {}).items():
        if entry.get("use_pickle") or not str(entry.get("path_name")).startswith(WEIGHTS):
            return f"{weight} in {name} is a Python object, which can run code when it is read"
    return None


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
    names = {id(node.args[0]) for node in ast.walk(tree)
             if isinstance(node, ast.Call) and is_symbol(node)}
    return all(isinstance(node, ARITHMETIC) and is_harmless(node, id(node) in names) for node in ast.walk(tree))


def is_harmless(node: ast.AST, is_name: bool) -> bool:
    """``is_name``: is it the text that a symbol is named by?"""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float) or is_name and str(node.value).isidentifier()
    return not isinstance(node, ast.Name) or not node.id.startswith("_")


def is_symbol(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "Symbol" and bool(node.args)
