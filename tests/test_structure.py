"""The rules of the code's layout: which folder may import which, how large a file, a class, a function and a folder
may be, where private parts of torch and versions of Python may be named, and that tables are complete.

``python tests/support/structure.py`` prints the figures.
"""
from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
import structure

CHECKOUT = Path(__file__).resolve().parents[1]
FILES_IN_A_FOLDER, LINES_OF_A_FILE, LINES_OF_A_CLASS, LINES_OF_A_FUNCTION = 15, 500, 250, 60
PRIVATE = re.compile(r"\b(?:torch|from torch)\._(?:C|dynamo|subclasses|functorch|inductor|guards|logging|export|"
                     r"higher_order_ops|prims_common|library|dispatch)\b")
# Imported when they are needed, and only then, by name. Each costs seconds or is not installed everywhere.
LATE = {
    "sot/support/collector.py": "the imports of others, without the garbage collector",
    "sot/__init__.py": "the public names, so that `import sot` is quick",
    "sot/frontend/autoload.py": "torch runs it in every process, translated or not",
    "sot/frontend/command_line/cache.py": "torch, which the help and errors of a command do not need",
    "sot/frontend/command_line/commands.py": "torch, which the help and errors of a command do not need",
    "sot/frontend/drop_in/replacement.py": "sot.compile, in programs that may never call torch.compile",
    "sot/frontend/environment.py": "the translator, which a program that captures nothing does not need",
    "sot/frontend/pytest_plugin.py": "pytest imports it in every project",
    "sot/guards/symbols.py": "sympy",
    "sot/reports/model.py": "jinja2, for who saves a page",
    "sot/reports/recording.py": "the report, for who asks for one",
    "sot/reports/views/marked_source.py": "rich, for who prints an explanation",
    "sot/support/cache_folder.py": "filelock, for who writes to the cache",
    "sot/support/progress.py": "rich, for work that takes long on a terminal",
    "sot/torch_compat/build_native.py": "filelock, for who compiles",
    "sot/torch_compat/exporting/archive.py": "torch.export",
    "sot/torch_compat/compilers.py": "the compiler of torch.compile",
    "sot/torch_compat/dynamo/modules.py": "the compiler of torch.compile",
    "sot/torch_compat/dynamo/state.py": "the compiler of torch.compile",
    "sot/torch_compat/hooks.py": "the compiler of torch.compile",
    "sot/torch_compat/subclasses/collectives.py": "functional collectives: for programs of several processes",
    "backends/selection.py": "Triton",
    "backends/triton/device.py": "a module of Triton's that differs from version to version",
}

ROOMS = structure.rooms_of(CHECKOUT)
TESTS = sorted((CHECKOUT / "tests").rglob("*.py"))
PROGRAMS = [path for folder in ("examples", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py")]
SOURCES = sorted(p for p in (CHECKOUT / "sot" / "csrc").rglob("*") if p.suffix in (".c", ".cpp", ".h"))


def of(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


# ---- who imports whom ---------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_folder_imports_from_those_before_it_only_for_type_checkers_too():
    assert [f"{room} imports {i.source}.{i.name}" for room, i in structure.upward(ROOMS)] == []


def test_every_folder_has_its_place_in_the_order():
    folders = {room.name.split(".")[1] for room in ROOMS.values() if room.name.count(".") > 1}
    assert folders == set(structure.ORDER)


@pytest.mark.slow
def test_imports_are_at_the_top_of_a_file():
    inside = {f"{of(room.path)}:{node.lineno}" for room in ROOMS.values()
              if re.search(r"^\s+(?:from|import)\b", room.text, re.MULTILINE) for function in ast.walk(room.tree)
              if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(function)
              if isinstance(node, ast.Import | ast.ImportFrom)}
    assert inside == set()


def test_few_modules_are_imported_late():
    assert {of(room.path) for room in ROOMS.values() if re.search(r"\bimport_(module|large)\(", room.text)} == set(
        LATE)


@pytest.mark.parametrize("what, places", [
    (PRIVATE, ("sot/torch_compat/",)),
    (re.compile(r"\bsys\.(?:version_info|hexversion)\b|\bplatform\.python_version_tuple\b"),
     ("sot/torch_compat/", "sot/bytecode/")),
], ids=["private parts of torch", "versions of Python"])
def test_what_differs_from_version_to_version_has_one_place(what, places):
    found = [f"{of(room.path)}:{number}" for room in ROOMS.values()
             if not of(room.path).startswith(places) and what.search(room.text)
             for number, line in enumerate(code_of(room.text), 1) if what.search(line)]
    assert found == []


def code_of(text: str) -> list[str]:
    """The lines of a file without comments and texts."""
    tree = ast.parse(text)
    lines = [line.partition("  #")[0] for line in text.splitlines()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for number in range(node.lineno - 1, node.end_lineno):
                lines[number] = "" if node.lineno != node.end_lineno else (
                    lines[number][:node.col_offset] + lines[number][node.end_col_offset:])
    return lines


# ---- sizes ------------------------------------------------------------------------------------------------------
def test_a_file_fits_into_a_head():
    paths = [*(room.path for room in ROOMS.values()), *TESTS, *SOURCES]
    sizes = {of(path): path.read_text().count("\n") for path in paths}
    assert {path: size for path, size in sizes.items() if size > LINES_OF_A_FILE} == {}


@pytest.mark.parametrize("kinds, limit", [
    ((ast.ClassDef,), LINES_OF_A_CLASS), ((ast.FunctionDef, ast.AsyncFunctionDef), LINES_OF_A_FUNCTION),
], ids=["class", "function"])
def test_a_class_and_a_function_fit_on_a_screen(kinds, limit):
    assert [where for room in ROOMS.values() for size, where in room.definitions(*kinds) if size > limit] == []


def test_a_folder_has_few_files():
    files = Counter(of(path.parent) for path in [*(room.path for room in ROOMS.values()), *TESTS, *PROGRAMS])
    assert {folder: n for folder, n in files.items() if n > FILES_IN_A_FOLDER} == {}


def test_no_two_test_files_share_a_name():
    """pytest imports them by that name alone."""
    names = Counter(path.name for path in TESTS if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_and_folder_says_what_it_is():
    assert [of(room.path) for room in ROOMS.values() if not ast.get_docstring(room.tree)] == []
    assert [of(path) for path in SOURCES if not path.read_text().lstrip().startswith(("/*", "//"))] == []


# ---- tables are complete ------------------------------------------------------------------------------------------
# Elsewhere: each opcode has a reader and a writer (bytecode/test_bytecode.py), a handler and a stack effect
# (bytecode/test_opcodes.py); each reason for a break has a page (frontend/test_docs.py); each rewrite is proved
# (graph/test_rewrites.py).
def test_every_operation_of_kernels_is_written_in_triton():
    expressions = pytest.importorskip("sot.backends.triton.source.expressions")
    ops = pytest.importorskip("sot.graph.kernels.ops")
    assert set(ops.OPS) == set(expressions.ROWS)
    assert set(ops.REDUCTIONS) == set(expressions.REDUCE) == set(expressions.COMBINE)
    assert set(ops.SCANS) == set(expressions.SCAN)
    assert set(ops.DTYPES) == set(expressions.TYPES)


# ---- tests end ----------------------------------------------------------------------------------------------------
def waits_for_ever(call: ast.Call) -> bool:
    """Is this a call that waits for a process or a thread, with no limit? The work of a collective has its group's."""
    name = ast.unparse(call.func)
    limited = any(keyword.arg == "timeout" for keyword in call.keywords)
    runs = name in ("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output")
    waits = name.endswith((".communicate", ".wait", ".join")) and not call.args and name != "work.wait"
    return (runs or waits) and not limited


@pytest.mark.slow
def test_a_test_waits_for_a_limited_time():
    assert [f"{of(path)}:{node.lineno}" for path in TESTS for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and waits_for_ever(node)] == []
