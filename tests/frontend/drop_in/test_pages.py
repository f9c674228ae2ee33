"""The pages on torch.compile tell the truth: a row for each argument and function, and the breaks that they list."""
import inspect
import re
from pathlib import Path

import pytest
import torch
from harness import same

import sot

DOCS = Path(__file__).resolve().parents[3] / "docs"
MIGRATION = (DOCS / "from-torch-compile.md").read_text(encoding="utf-8")
BREAKS = (DOCS / "compiling-backends.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \|.*?\| (\d) \| (\d) \| .*\|$", BREAKS, re.M)


def names_in_first_column():
    rows = re.findall(r"^\| (`[^|]*) \|", MIGRATION, re.M)
    return {name.rpartition(".")[2] for row in rows for name in re.findall(r"`([^`]*)`", row)}


def test_each_argument_has_a_row():
    assert set(inspect.signature(torch.compile).parameters) - names_in_first_column() == set()
    assert set(inspect.signature(sot.compile).parameters) - names_in_first_column() == set()


def test_each_function_of_torch_compiler_has_a_row():
    written = names_in_first_column()
    patterns = [re.compile(name.replace("*", ".*")) for name in written]
    missing = [name for name in torch.compiler.__all__ if not any(p.fullmatch(name) for p in patterns)]
    assert [name for name in missing if name != "config"] == []


def compiling(gm, inputs):
    """A backend that does not run the graph as it is, but through torch.fx's interpreter."""
    return lambda *args: torch.fx.Interpreter(gm).run(*args)


@pytest.mark.parametrize("name, eager, compiled", ROWS)
def test_a_function_of_the_list_breaks_as_it_says_and_is_right(name, eager, compiled):
    names = {"__name__": "page"}
    exec(compile(re.search(r"```python\n(.*?)```", BREAKS, re.S).group(1), "<page>", "exec"), names)
    f, x = names[name], names["x"]
    for backend, graphs in (("eager", eager), (compiling, compiled)):
        torch.manual_seed(3), names["generator"].manual_seed(3)
        want = f(x)
        torch.manual_seed(3), names["generator"].manual_seed(3)
        translated = sot.to_static(f, backend=backend)
        assert same(translated(x), want) is None
        assert len(translated.graphs) <= int(graphs)


def test_the_list_has_every_function_of_the_page():
    assert [row[0] for row in ROWS] and {row[0] for row in ROWS} == set(re.findall(r"^def (\w+)\(x\)", BREAKS, re.M))
