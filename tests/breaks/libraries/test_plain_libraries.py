"""A library in plain Python inside a model: after a few captures without a graph, Python runs it."""
import importlib
import sys

import pytest
import torch

import sot

ALGEBRA = '''
import threading
STATE = threading.local()       # capture stops where it is read
STATE.depth = 0

class Node:
    def __init__(self, value, children=()):
        self.value, self.children = value, children

def level():
    return STATE.depth

''' + "\n".join(f'''
def rule_{i}(node):
    STATE.depth += 1
    found = node.value * {i} % 7 + level()
    STATE.depth -= 1
    return found
''' for i in range(30)) + f'''
RULES = [{", ".join(f"rule_{i}" for i in range(30))}]

def simplified(n):
    return sum(rule(Node(n + i)) for i, rule in enumerate(RULES))

def check(x):
    for size in x.shape:
        level(), level(), level()
    STATE.depth = 0
    return x

def scaled(x, n):
    return x * simplified(n) + 1
'''


@pytest.fixture
def algebra(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "plain_algebra"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(ALGEBRA)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield importlib.import_module("plain_algebra")
    sys.modules.pop("plain_algebra")


X = torch.arange(3.0)


@pytest.mark.slow
def test_its_functions_are_not_captured_one_by_one(algebra, backend):
    def f(x, n):
        return x.sin() * algebra.simplified(n) + x

    g = sot.to_static(f, backend=backend)
    for n in (1, 2, 2, 3):
        assert g(X, n).equal(f(X, n))
    assert len({capture.name for capture in g.captures if capture.place.file == algebra.__file__}) <= 12
    assert len(backend.graphs) >= 1


@pytest.mark.slow
def test_its_functions_are_captured_where_they_are_given_tensors(algebra, backend):
    def f(x, n):
        for i in range(3):
            x = x + algebra.simplified(n + i)
        return algebra.scaled(x, n)

    g = sot.to_static(f, backend=backend)
    for n in (1, 1, 2):
        assert g(X, n).equal(f(X, n))
    nodes = [node.target.__name__ for graph in backend.graphs for node in graph.graph.nodes
             if node.op == "call_function"]
    assert "mul" in nodes and "add" in nodes


def test_a_function_without_graphs_is_left_to_python_though_it_is_given_tensors(algebra, backend):
    def f(x):
        return (algebra.check(x.sin()) + 1).cos() if algebra.STATE.depth == 0 else x

    g = sot.to_static(f, backend=backend)
    for n in range(2, 10):
        assert g(torch.ones(n, 3)).equal(f(torch.ones(n, 3)))
    library = [capture.name for capture in g.captures if capture.place.file == algebra.__file__]
    assert library.count("check") <= 4 and backend.graphs


def test_a_library_with_graphs_is_captured_on(algebra, backend):
    f = sot.to_static(algebra.scaled, backend=backend)
    for n in (1, 1, 2):
        assert f(X, n).equal(algebra.scaled(X, n))
    assert backend.graphs
