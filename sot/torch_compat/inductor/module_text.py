"""The part of a module that Inductor has written which a call needs, as a module that does not import Inductor.

Inductor's imports take about a second, and its modules need few of its names at run time: a namespace with functions of
torch (``extern_kernels``) and compiled kernels, which are extension modules. ``short_form`` keeps the statements that
``call`` needs, and records the rest as facts: which function of torch, which file. A module that needs more is refused.
"""
from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import BuiltinFunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

CALL, NAMESPACE = "call", "extern_kernels"
COMPILERS = ("torch._inductor", "torch._dynamo", "torch._functorch")
FUNCTIONS: Any = torch._C._VariableFunctions     # a program may have replaced those of ``torch``
# Operators of C++, which are there without an import.
OPERATORS = ("torch.ops.aten.", "torch.ops.mkldnn.", "torch.ops.inductor._alloc_from_pool.",
             "torch.ops.inductor._reinterpret_tensor.")
ADDRESS_OF_DATA = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"     # kernels read it when they are loaded


def assert_tensor_metadata(tensor: torch.Tensor | None, size: tuple[Any, ...], stride: tuple[Any, ...],
                           dtype: torch.dtype, operator: str | None = None) -> None:
    """Whether a result is what the fake kernel of its operator said. Raises RuntimeError, AssertionError."""
    if tensor is None:
        return
    if tensor.dtype is not dtype:
        raise RuntimeError(f"{operator or 'an operator'} gave {tensor.dtype}, and its fake kernel {dtype}")
    torch._C._dynamo.guards.assert_size_stride(tensor, size, stride, operator)


# Functions of Inductor's that are written again here, because to import them imports it.
REPLACED = {"assert_tensor_metadata": assert_tensor_metadata}


class Refused(Exception):
    """The module needs something that only Inductor has."""


@dataclass
class Needs:
    """What a module is given: functions of torch by name, and for each kernel its file, with the name and checksum."""

    functions: list[str] = field(default_factory=list)
    kernels: dict[str, tuple[str, str, str]] = field(default_factory=dict)


# ---- writing ----


def short_form(source: str, module: dict[str, Any]) -> tuple[str, Needs]:
    """The short module, and what it needs. ``module`` has the names of the long one, which has been run."""
    defined = dict(_definitions(ast.parse(source)))
    reached: dict[str, None] = {}
    left, needs = [CALL], Needs()
    while left:
        name = left.pop()
        if name in reached or name not in defined:
            continue
        reached[name] = None
        statement = defined[name]
        if name == NAMESPACE or name in REPLACED:
            continue
        if isinstance(module.get(name), torch.Tensor):
            raise Refused(f"{name} is a constant of the graph")
        if is_kernel(module.get(name)):
            needs.kernels[name] = _file_of(module[name])
            continue
        _refuse_compilers(statement)
        left += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    names = [name for name in reached if name not in {NAMESPACE, *REPLACED, *needs.kernels}]
    body = [*{id(statement): statement for name, statement in defined.items() if name in names}.values()]
    tree = ast.Module(body, [])
    _refuse_unknown(tree, {*defined, *needs.kernels})
    _refuse_operators(tree)
    needs.functions = sorted({node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                              and isinstance(node.value, ast.Name) and node.value.id == NAMESPACE})
    for name in needs.functions:
        if getattr(module[NAMESPACE], name, None) is not getattr(FUNCTIONS, name, None):
            raise Refused(f"{NAMESPACE}.{name}")
    return ast.unparse(tree), needs


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The names that the statements of a module define, each with the statement."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], statement) for alias in statement.names)
        elif isinstance(statement, ast.Assign):
            yield from ((node.id, statement) for target in statement.targets for node in ast.walk(target)
                        if isinstance(node, ast.Name))


def is_kernel(value: Any) -> bool:
    """Whether this is a function of an extension module that Inductor has compiled."""
    owner = getattr(value, "__self__", None)
    file = getattr(owner, "__file__", None)
    return isinstance(value, BuiltinFunctionType) and isinstance(owner, ModuleType) and isinstance(file, str) and (
        file.endswith((".so", *EXTENSION_SUFFIXES)) and owner.__name__.endswith(f".{value.__name__}"))


def _file_of(kernel: Any) -> tuple[str, str, str]:
    file = kernel.__self__.__file__
    return file, kernel.__self__.__name__, checksum(Path(file))


def checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _refuse_compilers(statement: ast.stmt) -> None:
    if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(COMPILERS):
        raise Refused(ast.unparse(statement))
    if isinstance(statement, ast.Import) and any(alias.name.startswith(COMPILERS) for alias in statement.names):
        raise Refused(ast.unparse(statement))


def _refuse_unknown(tree: ast.Module, defined: set[str]) -> None:
    """Refuse a module that reads a name which nothing defines, such as one that Inductor sets from outside."""
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in {*defined, *stored, *vars(builtins), NAMESPACE}:
            raise Refused(node.id)


def _refuse_operators(tree: ast.Module) -> None:
    """Refuse operators that Python registers when Inductor is imported, and those of libraries."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    for text in [ast.unparse(node) for node in attributes if id(node) not in inner]:
        if text.startswith(COMPILERS) or f"{text}.".startswith("torch.ops.") and not f"{text}.".startswith(OPERATORS):
            raise Refused(text)


# ---- running ----


def call_of(source: str, needs: Needs, file: str) -> Callable[[list[Any]], Any] | None:
    """The function of a short module; None if a kernel is no longer there as it was."""
    names: dict[str, Any] = {NAMESPACE: SimpleNamespace(**{name: getattr(FUNCTIONS, name) for name in needs.functions}),
                             "__name__": f"sot_{Path(file).stem}", "__file__": file, **REPLACED}
    for name, (path, module_name, expected) in needs.kernels.items():
        if not Path(path).exists() or checksum(Path(path)) != expected:
            return None
        names[name] = _kernel(path, module_name)
    exec(compile(source, file, "exec"), names)
    return names[CALL]


def _kernel(path: str, module_name: str) -> Callable[..., Any]:
    guards: Any = torch._C._dynamo.guards
    os.environ[ADDRESS_OF_DATA] = str(guards._torchinductor_pyobject_tensor_data_ptr)
    module = sys.modules.get(module_name)
    if module is None:
        loader = ExtensionFileLoader(module_name, path)
        spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return getattr(module, module_name.rpartition(".")[2])
