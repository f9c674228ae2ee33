"""``sot.enable()``: what is translated, what is left alone, and that what is left alone is so for good."""
import importlib
import json
import re
import sys
import textwrap

import pytest
import torch
from translating import X

import sot
from sot import _hook
from sot.driver.whole_program import program_of

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Imports a package out of source text, from a folder of installed packages or one of the user's."""
    made = []

    def install(name, text, folder="site-packages"):
        home = tmp_path / folder / name
        home.mkdir(parents=True)
        (home / "__init__.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(home.parent))
        made.append(name)
        return importlib.import_module(name)
    yield install
    for name in made:
        sys.modules.pop(name)


def names():
    return [c.name for c in captures() if c.name not in ("names", "captures")]


def captures():
    return program_of(_hook.get_callback()).translator.captures


# ---- without tensors --------------------------------------------------------------------------------------
def tokens(text):
    # Python steps the iterator: a break a round, and a look at each word.
    return [m.group(0).lower() for m in re.finditer(r"\w+", text) if m.group(0) not in ("the", "and")]


def test_a_function_that_breaks_and_has_no_tensor_is_soon_left_to_python(backend):
    with sot.enable(backend=backend):
        for _ in range(5):
            assert tokens("A few words " * 60) == ["a", "few", "words"] * 60
        assert _hook.is_skipped(tokens.__code__, _hook.get_callback())
        count = len(captures())
        for _ in range(20):
            tokens("A few words")
        assert len(captures()) == count
    assert backend.graphs == []


def test_one_that_is_called_with_ever_new_values_is_not_captured_for_each(backend):
    def describe(n, table):
        return f"{n}: {sorted(table)}" if n % 2 else str(n + len(table))

    with sot.enable(backend=backend):
        for i in range(40):
            assert describe(i, {i: 1}) == (f"{i}: [{i}]" if i % 2 else str(i + 1))
        assert names().count(describe.__qualname__) == 1
        assert not [c for c in captures()
                    if c.stopped and c.stopped.reason.name == "RECOMPILE_LIMIT"]


def test_one_that_is_captured_whole_is_left_to_python_too(backend):
    def step(n):
        return n + 1

    with sot.enable(backend=backend):
        n = 0
        for _ in range(5):
            n = step(n)
        assert n == 5 and _hook.is_skipped(step.__code__, _hook.get_callback())


def test_the_standard_library_is_never_looked_into_on_its_own(backend):
    with sot.enable(backend=backend):
        json.JSONEncoder(indent=2).encode({"a": [1, 2]})
        assert not [c for c in captures() if "/json/" in c.place.file]


def test_a_package_without_tensors_is_left_alone_after_one_look(package, backend):
    library = package("no_tensors", """
        def area(w, h):
            return w * h

        def words(text):
            return [w for w in iter(text.split())]
    """)
    with sot.enable(backend=backend):
        for i in range(5):
            assert (library.area(i, 2), library.words("a b")) == (2 * i, ["a", "b"])
        assert [name for name in names() if name in ("area", "words")].count("area") == 1
        assert _hook.is_skipped(library.area.__code__, _hook.get_callback())


def test_a_package_with_tensors_is_translated(package, backend):
    library = package("with_tensors", "def double(x):\n    return x * 2\n")
    with sot.enable(backend=backend):
        assert torch.equal(library.double(X), X * 2)
    assert len(backend.graphs) == 1


# ---- with tensors -----------------------------------------------------------------------------------------
def test_a_function_that_breaks_before_it_works_on_tensors_stays_translated(backend):
    def step(x, stream):
        next(stream)
        for _ in range(2):
            next(stream)
        return x.sin() + 1

    with sot.enable(backend=backend):
        for _ in range(20):
            assert torch.equal(step(X, iter("abc")), X.sin() + 1)
        assert not _hook.is_skipped(step.__code__, _hook.get_callback())
    assert len(backend.graphs) == 1


def test_what_a_function_calls_has_its_own_turn(backend):
    def train(x):
        return (x * 2).relu()

    def main(lines):
        for line in lines:
            tokens(line)
        return [train(X) for _ in range(3)][-1]

    with sot.enable(backend=backend):
        assert torch.equal(main(["some text"] * (20)), (X * 2).relu())
    assert len(backend.graphs) == 1 and [n for n in backend.graphs[0].graph.nodes if n.op == "call_method"]


# ---- include, exclude -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("include", "exclude", "captured"), [
    ((), (), {"one", "two"}),
    ("first", (), {"one"}),
    (["first", "second"], "second", {"one"}),
    ((), ["first"], {"two"}),
    ("firs", (), set()),
])
def test_lists_of_modules(package, backend, include, exclude, captured):
    first = package("first", "def one(x):\n    return x + 1\n", folder="mine")
    second = package("second", "def two(x):\n    return x + 2\n", folder="mine too")
    with sot.enable(backend=backend, include=include, exclude=exclude):
        assert torch.equal(first.one(X), X + 1) and torch.equal(second.two(X), X + 2)
        assert {name for name in names() if name in ("one", "two")} == captured


def test_modules_themselves_can_be_given(package, backend):
    first = package("first", "def one(x):\n    return x + 1\n", folder="mine")
    with sot.enable(backend=backend, exclude=[first]):
        first.one(X)
    assert backend.graphs == []


def test_what_is_no_module_is_refused():
    with pytest.raises(sot.SotError, match="a module or its dotted name, not 'not a name'"):
        sot.enable(include="not a name")
