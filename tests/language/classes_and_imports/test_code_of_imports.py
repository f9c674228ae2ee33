"""A module that a translated function imports: what it runs once, when it is imported, is not captured."""
import sys

import pytest
import torch
from harness import Counter

import sot

MODULE = """
import torch

def table(n):
    rows = []
    for row in [torch.ones(2) * i for i in range(n)]:
        print("row", row[0].item())
        rows.append(torch.sin(row) + row)
    return rows

ROWS = table(3)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "a_table_of_rows.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("a_table_of_rows", None)


def test_only_the_function_is_captured(module, fresh, capsys):
    @sot.to_static(backend=(backend := Counter()))
    def f(x):
        y = torch.cos(x)
        import a_table_of_rows
        return y + a_table_of_rows.ROWS[1]

    x = torch.ones(2)
    assert torch.equal(f(x), torch.cos(x) + torch.sin(x) + x)
    assert capsys.readouterr().out == "row 0.0\nrow 1.0\nrow 2.0\n"
    functions = {node.name for graph in backend.graphs for node in graph.graph.nodes if node.op == "call_function"}
    assert functions == {"cos", "add"}


def test_a_translated_function_is_captured_there_too(tmp_path, monkeypatch, fresh):
    (tmp_path / "a_module_that_calls.py").write_text(
        "import torch, sot\n"
        "from a_backend_of_tests import backend\n"
        "f = sot.to_static(lambda x: torch.sin(x) + 1, backend=backend)\n"
        "RESULT = f(torch.ones(2))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    held = type(sys)("a_backend_of_tests")
    held.backend = Counter()
    monkeypatch.setitem(sys.modules, "a_backend_of_tests", held)
    try:
        import a_module_that_calls
        assert torch.equal(a_module_that_calls.RESULT, torch.sin(torch.ones(2)) + 1)
        assert len(held.backend.graphs) == 1
    finally:
        sys.modules.pop("a_module_that_calls", None)
