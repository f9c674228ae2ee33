"""A capture that breaks within a library's call without tensor work: Python runs this call as a whole."""
import ast
import importlib
import sys

import pytest
import torch
from harness import check

import sot

TREES = '''
def stop():
    compile("0", "", "eval")        # capture does not follow this

class Visitor:
    def __init__(self):
        self.names = []

    def visit(self, tree):
        stop()
        if isinstance(tree, str):
            self.names.append(tree)
            return 1
        if not tree:
            raise ValueError("an empty tree")
        return sum(self.visit(part) for part in tree) + 1

def size(tree):
    return Visitor().visit(tree)

def names(tree, into):
    visitor = Visitor()
    visitor.visit(tree)
    into += visitor.names
    return into

def each(tree, function):
    stop()
    return [function(len(part)) for part in tree]

def held(holder, tree):
    stop()
    return holder[0] * len(tree)
'''
X = torch.arange(3.0)
TREE = ("a", ("b", ("c", "d")), "e")


@pytest.fixture
def trees(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "plain_trees"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(TREES)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield importlib.import_module("plain_trees")
    sys.modules.pop("plain_trees")


def called_by_python(g):
    """The functions whose calls have been captured: g, and what Python has called."""
    return {capture.name.rpartition(".")[2] for capture in g.captures}


def test_what_it_returns_changes_and_raises(trees):
    def f(x, tree):
        found = ["first"]
        try:
            n = trees.size(tree)
        except ValueError as e:
            return x - 1, str(e), found
        y = x * n
        trees.names(tree, found)
        return y + len(found), found, trees.names(tree, [])

    check(f, X, TREE)
    check(f, X, ((), "a"))


def test_python_runs_the_call_and_the_graphs_around_it_stay(trees, backend):
    def f(x, tree):
        y = x.sin()
        n = trees.size(tree)
        return y * n

    g = sot.to_static(f, backend=backend)
    for _ in range(3):
        assert g(X, TREE).equal(X.sin() * 8)
    assert backend.graphs and "size" in called_by_python(g)
    assert [capture.name for capture in g.captures].count(g.__qualname__) == 2      # up to the call, and after it


def test_a_visitor_of_syntax_trees_breaks_once(backend):
    def f(x, n):
        return x * len(ast.unparse(ast.parse(f"def f(a):\n    return (a + {n}) * [1, 2][0]\n")))

    ast.unparse(ast.parse("1"))     # 3.14 imports a module at the first call
    g = sot.to_static(f, backend=backend)
    for n in (1, 1, 2):
        assert g(X, n).equal(f(X, n))
    assert [capture.name for capture in g.captures].count(g.__qualname__) <= 4      # the text differs once
    assert backend.graphs


@pytest.mark.parametrize("work", ["function", "tensor"])
def test_a_library_that_is_given_tensors_or_functions_is_followed(trees, backend, work):
    def f(x, tree):
        if work == "function":
            return sum(trees.each(tree, lambda n: x.sin() * n))
        return trees.held([x.sin()], tree)

    g = sot.to_static(f, backend=backend)
    for _ in range(3):
        assert g(X, TREE).equal(f(X, TREE))
    assert backend.graphs and not called_by_python(g) & {"each", "held"}


def test_a_library_that_has_computed_before_the_break_is_followed(trees, backend, monkeypatch):
    def noise(n):
        found = torch.full((n,), 2.0)
        trees.stop()
        return found.cos()

    noise.__code__ = noise.__code__.replace(co_filename=trees.__file__)

    def f(x):
        return x + noise(3)

    g = sot.to_static(f, backend=backend)
    for _ in range(3):
        assert g(X).equal(f(X))
    assert backend.graphs and "noise" not in called_by_python(g)
