"""Measures how the code is laid out. ``python tests/support/structure.py [checkout]`` prints the figures of a tree.

A room is a file, an arrow an import of one room by another, type-only imports included. An arrow runs upward if it
leads to a folder further down in ``ORDER``; a circle is a set of rooms that import each other in a loop.
"""
from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

# The folders from the ground up: each imports from those before it only.
ORDER = ("support", "torch_compat", "bytecode", "graph", "guards", "polyfills", "values", "interpreter", "reports",
         "backends", "checking", "codegen", "driver", "frontend", "deploy")
PARTS = {folder: place for place, folder in enumerate(ORDER)}


@dataclass(frozen=True)
class Import:
    """One name that a room takes from another; ``typing`` if it does so for type checkers only."""

    source: str
    name: str
    line: int
    typing: bool
    local: bool


@dataclass
class Room:
    """A Python file of the package, by its dotted name."""

    name: str
    path: Path
    rooms: dict[str, Room] = field(repr=False)

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def folder(self) -> str:
        """The first folder below ``sot``; the package's own files have none."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 and parts[1] in PARTS else ""

    @cached_property
    def imports(self) -> list[Import]:
        return [*self._imports(self.tree, False, False)]

    def _imports(self, node: ast.AST, typing: bool, local: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                base = self._base(child)
                for alias in child.names:
                    inner = f"{base}.{alias.name}"
                    if base == "sot" and alias.name.startswith("_"):
                        continue        # an extension module is no room
                    target = inner if inner in self.rooms else base
                    if target in self.rooms and target != self.name:
                        yield Import(target, alias.name, child.lineno, typing, local)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from self._imports(ast.Module(child.body, []), True, local)
            else:
                inside = local or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from self._imports(child, typing, inside)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.path.name == "__init__.py"
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def definitions(self, *kinds: type) -> Iterator[tuple[int, str]]:
        """(lines, where) of each function or class."""
        for node in ast.walk(self.tree):
            if isinstance(node, kinds):
                yield node.end_lineno - node.lineno + 1, f"{self.path}:{node.lineno} {node.name}"  # type: ignore


def rooms_of(checkout: Path) -> dict[str, Room]:
    """The rooms of a checkout's package; ``graph`` and ``backends`` lie beside it."""
    rooms: dict[str, Room] = {}
    for base in ("sot", "graph", "backends"):
        for path in sorted((checkout / base).rglob("*.py")):
            parts = [*path.relative_to(checkout).with_suffix("").parts]
            if parts[:2] in (["sot", "graph"], ["sot", "backends"]):
                continue        # the links
            parts = parts if base == "sot" else ["sot", *parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            rooms[name] = Room(name, path, rooms)
    return rooms


def arrows(rooms: dict[str, Room]) -> set[tuple[str, str]]:
    return {(room.name, i.source) for room in rooms.values() for i in room.imports}


def upward(rooms: dict[str, Room]) -> list[tuple[str, Import]]:
    """The imports of a folder that comes later in the order."""
    return [(room.name, i) for room in rooms.values() if room.folder for i in room.imports
            if rooms[i.source].folder and PARTS[rooms[i.source].folder] > PARTS[room.folder]]


def circles(rooms: dict[str, Room]) -> list[set[str]]:
    """The sets of rooms that reach each other, by Tarjan's algorithm (SIAM J. Comput. 1, 1972), the largest first."""
    after: dict[str, set[str]] = {name: set() for name in rooms}
    for start, end in arrows(rooms):
        after[start].add(end)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in after[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = set()
            while name not in group:
                group.add(stack.pop())
            found.append(group)

    sys.setrecursionlimit(10_000)
    for name in rooms:
        if name not in index:
            visit(name)
    return sorted((group for group in found if len(group) > 1), key=len, reverse=True)


def value_classes(rooms: dict[str, Room]) -> set[str]:
    """The names of the classes of symbolic values: ``Value`` and what inherits from it."""
    bases = {node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
             for room in rooms.values() for node in ast.walk(room.tree) if isinstance(node, ast.ClassDef)}
    found, size = {"Value"}, 0
    while size != len(found):
        size = len(found)
        found |= {name for name, of in bases.items() if of & found}
    return found


def isinstance_over(rooms: dict[str, Room], classes: set[str]) -> Counter[str]:
    """How many classes of values ``isinstance`` is asked for, by room."""
    asked: Counter[str] = Counter()
    for room in rooms.values():
        for node in ast.walk(room.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) == 2:
                names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                asked[room.name] += bool(names & classes)
    return asked


def figures(checkout: Path) -> dict[str, object]:
    """The table of a tree."""
    rooms = rooms_of(checkout)
    functions = [found for room in rooms.values() for found in room.definitions(ast.FunctionDef, ast.AsyncFunctionDef)]
    classes = [found for room in rooms.values() for found in room.definitions(ast.ClassDef)]
    lines = sum(room.lines for room in rooms.values())
    asked = isinstance_over(rooms, value_classes(rooms)).total()
    groups = circles(rooms)
    return {
        "rooms": len(rooms),
        "lines": lines,
        "arrows": len(arrows(rooms)),
        "arrows that run upward": len({(name, i.source) for name, i in upward(rooms)}),
        "modules in the largest circle": len(groups[0]) if groups else 0,
        "files over 500 lines": sum(room.lines > 500 for room in rooms.values()),
        "classes over 250 lines": sum(size > 250 for size, _ in classes),
        "longest function": max(functions)[0],
        "folders over 15 files": sum(n > 15 for n in Counter(room.path.parent for room in rooms.values()).values()),
        "imports inside functions": sum(i.local for room in rooms.values() for i in room.imports),
        "isinstance over values": asked,
        "isinstance over values per 1,000 lines": round(1000 * asked / lines, 1),
    }


if __name__ == "__main__":
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    for title, figure in figures(tree).items():
        print(f"{title:42}{figure}")
