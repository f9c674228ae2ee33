"""The function of a file that a line belongs to. A frame knows only its name, which two classes may share."""
from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from typing import NamedTuple

MODULE = "<module>"     # the name of the code of a file outside of its functions


class Scope(NamedTuple):
    """A function, by the line where it begins; line 1 for code outside all functions."""

    file: str
    line: int
    name: str


def scope_of(file: str, line: int, function: str) -> Scope:
    """The innermost function that contains a line. Comprehensions and lambdas belong to the function around them.

    Arguments:
        function: its name, in case the source of the file is missing.
    """
    found = None
    for first, last, scope in scopes("".join(linecache.getlines(file)), file):
        if first <= line <= last:
            found = scope       # inner functions come after outer ones
    return found or Scope(file, line, function)


@functools.lru_cache(maxsize=256)
def scopes(text: str, file: str) -> list[tuple[int, int, Scope]]:
    """The functions of a file with their first and last lines (decorators included), and the file itself."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if not text:
        return []
    return [(1, text.count("\n") + 1, Scope(file, 1, MODULE)), *functions(tree, file, "")]


def functions(node: ast.AST, file: str, prefix: str) -> Iterator[tuple[int, int, Scope]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + child.name
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield first, child.end_lineno or first, Scope(file, child.lineno, name)
            yield from functions(child, file, f"{name}.")
        else:
            yield from functions(child, file, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
