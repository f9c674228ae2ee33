"""Which function of a file a line belongs to: frames know their own name only, and two classes may have one."""
from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from typing import NamedTuple


class Scope(NamedTuple):
    """A function, by the line where it begins; line 1 for what is outside of all functions."""

    file: str
    line: int
    name: str


def scope_of(file: str, line: int, function: str) -> Scope:
    """The innermost function that is defined around a line; comprehensions and lambdas belong to the one around them.

    Arguments:
        function: its name, if the source of the file is not there.
    """
    found = None
    for first, last, scope in scopes("".join(linecache.getlines(file)), file):
        if first <= line <= last:
            found = scope       # the inner ones come after the outer ones
    return found or Scope(file, line, function)


@functools.lru_cache(maxsize=256)
def scopes(text: str, file: str) -> list[tuple[int, int, Scope]]:
    """The functions of a file with their first and last lines, decorators included, and the file itself."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if not text:
        return []
    return [(1, text.count("\n") + 1, Scope(file, 1, "<module>")), *functions(tree, file, "")]


def functions(node: ast.AST, file: str, prefix: str) -> Iterator[tuple[int, int, Scope]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = prefix + child.name
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield first, child.end_lineno or first, Scope(file, child.lineno, name)
            yield from functions(child, file, f"{name}.")
        else:
            yield from functions(child, file, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
