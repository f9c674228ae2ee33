"""What a translation tells of itself, how it ends, and how all of them are switched off and on."""
import functools
import gc
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import torch
from torch import nn
from translating import X, scale

import sot
from sot import _hook
from sot.frontend.api import TargetError


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()


class Holder:
    k = 2

    def method(self, x):
        return x.relu() * self.k

    def on_class(cls, x):
        return x.relu() * cls.k

    def static(x):
        return x.relu() * 2


def translated_method():
    return type("Translated", (Holder,), {"method": sot.to_static(Holder.method, backend="eager")})().method


def translated_class_method():
    method = sot.to_static(classmethod(Holder.on_class), backend="eager")
    return type("Translated", (Holder,), {"on_class": method}).on_class


def translated_static_method():
    method = sot.to_static(staticmethod(Holder.static), backend="eager")
    return type("Translated", (Holder,), {"static": method}).static


def translated_class():
    return sot.to_static(type("Translated", (Layer,), {}), backend="eager")().forward


KINDS = {
    "function": lambda: sot.to_static(scale, backend="eager"),
    "lambda": lambda: sot.to_static(lambda x: x.relu() * 2, backend="eager"),
    "partial": lambda: sot.to_static(functools.partial(scale, k=2), backend="eager"),
    "method": translated_method,
    "bound method": lambda: sot.to_static(Holder().method, backend="eager"),
    "class method": translated_class_method,
    "static method": translated_static_method,
    "class": translated_class,
    "module": lambda: sot.to_static(Layer(), backend="eager"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def fresh():
    sot.reset()
    yield
    sot.enable_to_static(True)
    assert _hook.get_callback() is None


# ---- what was captured ------------------------------------------------------------------------------------
@each_kind
def test_before_the_first_call_there_is_nothing_and_it_says_so(kind):
    target = KINDS[kind]()
    translation = sot.translation_of(target)
    assert (translation.code, translation.bytecode, translation.graphs, translation.guards) == ("", "", [], [])
    explanation = translation.explain()
    assert "It has not been called yet." in str(explanation) and explanation.report.coverage is None


@each_kind
def test_after_it_code_graphs_and_guards_are_there(kind):
    target = KINDS[kind]()
    wanted = target(X)
    translation = sot.translation_of(target)
    graph, = translation.graphs
    assert graph.operations and "relu" in graph.module.code
    assert any("float32 tensor of shape (3,)" in str(guard) for guard in translation.guards)
    compile(translation.code, "<code>", "exec")
    assert "def entry(" in translation.code and "RETURN_VALUE" in translation.bytecode
    explanation = translation.explain()
    assert explanation.graphs == [graph] and not explanation.breaks and "1 graph" in explanation.summary()
    assert explanation.report.graphs[0].operations
    assert torch.equal(target(X), wanted)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "module"])
def test_what_is_called_has_all_of_it_itself(kind):
    target = KINDS[kind]()
    target(X)
    assert target.code == sot.translation_of(target).code and len(target.graphs) == 1 and target.guards
    assert "1 graph" in str(target.explain()) and len(target.captures) == 1


def test_the_code_says_what_its_names_stand_for_and_where_python_goes_on():
    log = []

    def f(x, table):
        table["y"] = y = x.relu()
        log.append(1)
        sot.graph_break()
        return y + 1

    translated = sot.to_static(f, backend="eager")
    translated(X, {})
    for text in ("# a0: x", "# a1: table", "a variable of an outer function", "['y'] = o0", "because sot.graph_break()",
                 "in f; then Python runs line "):
        assert text in translated.code
    assert translated.code.count("def entry(") == 2


def test_the_repr_of_the_programs_objects_does_not_run_for_it():
    class Rude:
        def __repr__(self):
            raise RuntimeError("not now")

    rude = Rude()

    def f(x, items):
        items.append(rude)
        return x + 1

    translated, items = sot.to_static(f, backend="eager"), []
    assert torch.equal(translated(X, items), X + 1) and items == [rude] and "def entry" in translated.code


def test_what_is_not_translated_has_no_translation():
    for target in (scale, Layer(), Layer, Holder().method, 3, None, sot.not_to_static(Layer())):
        assert sot.translation_of(target) is None


def test_the_class_and_its_instances_have_the_translation_of_forward():
    cls = sot.to_static(type("Translated", (Layer,), {}), backend="eager")
    model = cls()
    model(X)
    assert sot.translation_of(cls) is sot.translation_of(model) is cls.forward
    assert len(cls.forward.graphs) == 1


# ---- rollback -----------------------------------------------------------------------------------------------
@each_kind
def test_rollback_gives_the_original_back_and_leaves_it_to_python(kind):
    target = KINDS[kind]()
    wanted, translation = target(X), sot.translation_of(target)
    original = translation.rollback()
    assert translation.captures == [] and translation.code == ""
    assert torch.equal(target(X), wanted) and translation.captures == []
    if kind == "module":
        assert original is target and sot.translation_of(target) is None and "_compiled_call_impl" not in vars(target)
    else:
        assert original is getattr(target, "__wrapped__", original)
    sot.enable_to_static(False)
    sot.enable_to_static(True)
    target(X)
    assert translation.captures == []


def test_what_is_rolled_back_can_be_translated_again(backend):
    once = sot.to_static(scale)
    again = sot.to_static(once.rollback(), backend=backend)
    assert torch.equal(again(X), scale(X)) and len(backend.graphs) == 1


def test_rollback_of_a_module_leaves_a_newer_translation_alone(backend):
    model = sot.to_static(Layer())
    old = sot.translation_of(model)
    sot.to_static(model, backend=backend)
    old.rollback()
    model(X)
    assert len(backend.graphs) == 1


# ---- enable_to_static ---------------------------------------------------------------------------------------
@each_kind
def test_everything_is_switched_off_and_on(kind):
    target = KINDS[kind]()
    translation = sot.translation_of(target)
    sot.enable_to_static(False)
    wanted = target(X)
    assert translation.captures == []
    sot.enable_to_static(True)
    assert torch.equal(target(X), wanted) and len(translation.captures) == 1
    with sot.enable_to_static(False):
        assert torch.equal(target(X), wanted)
    target(X)
    assert len(translation.captures) == 1       # what was captured is kept


def test_what_is_translated_while_off_begins_off(backend):
    with sot.enable_to_static(False):
        translated = sot.to_static(scale, backend=backend)
        translated(X)
        assert backend.graphs == []
    translated(X)
    assert len(backend.graphs) == 1


def test_blocks_nest(backend):
    translated = sot.to_static(scale, backend=backend)
    with sot.enable_to_static(False):
        with sot.enable_to_static(True):
            translated(X)
        assert len(backend.graphs) == 1
        translated(X.double())
    assert len(backend.graphs) == 1


def test_the_whole_program_is_switched_off_too(backend):
    def f(x):
        return x.relu() * 3

    with sot.enable(backend=backend):
        with sot.enable_to_static(False):
            f(X)
            assert backend.graphs == []
        f(X)
        assert len(backend.graphs) == 1


def test_off_is_off_inside_of_a_call_that_is_translated(backend):
    def f(x):
        y = x + 1
        with sot.enable_to_static(False):
            inner(y)
        return y * 2

    inner = sot.to_static(scale)
    translated = sot.to_static(f, backend=backend)
    for _ in range(2):
        assert torch.equal(translated(X), (X + 1) * 2)
    assert inner.captures == []


def test_an_input_spec_is_not_checked_while_off():
    translated = sot.to_static(scale, input_spec=[sot.InputSpec((7,))])
    with sot.enable_to_static(False):
        assert torch.equal(translated(X), scale(X))


def test_it_takes_true_or_false():
    with pytest.raises(ValueError, match="enable_to_static needs True or False, not 'off'"):
        sot.enable_to_static("off")


@pytest.mark.slow
def test_a_translation_that_is_gone_is_not_kept_by_the_switch():
    gc.collect()
    before = len(sot.frontend.api.everything.members)
    translated = sot.to_static(scale)
    assert len(sot.frontend.api.everything.members) == before + 1
    del translated
    gc.collect()
    assert len(sot.frontend.api.everything.members) == before


# ---- decorators and type hints ------------------------------------------------------------------------------
def doubling(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2
    return wrapper


def test_decorators_above_and_below(backend):
    @doubling
    @sot.to_static(backend=backend)
    @doubling
    def f(x: torch.Tensor, k: int = 3) -> torch.Tensor:
        """Adds."""
        return x + k

    for _ in range(2):
        assert torch.equal(f(X), (X + 3) * 4)
    assert len(backend.graphs) == 1
    assert (f.__name__, f.__doc__) == ("f", "Adds.")
    assert typing.get_type_hints(f) == {"x": torch.Tensor, "k": int, "return": torch.Tensor}
    assert typing.get_type_hints(f.__wrapped__) == typing.get_type_hints(f)
    assert len(sot.translation_of(f.__wrapped__).graphs) == 1


def test_hints_that_are_strings_are_resolved_where_the_function_is():
    namespace = {"torch": torch, "sot": sot}
    exec("from __future__ import annotations\n@sot.to_static\ndef f(x: torch.Tensor) -> torch.Tensor: return x + 1",
         namespace)
    assert typing.get_type_hints(namespace["f"]) == {"x": torch.Tensor, "return": torch.Tensor}


def test_caches_and_contexts_around_it(backend):
    @functools.lru_cache
    @sot.to_static(backend=backend)
    def cached(k):
        return torch.arange(3.0) * k

    assert cached(2) is cached(2) and torch.equal(cached(2), torch.tensor([0.0, 2.0, 4.0]))

    @torch.no_grad()
    @sot.to_static(backend=backend)
    def quiet(x):
        return x * 2

    assert not quiet(X.clone().requires_grad_()).requires_grad


# ---- as a user does it --------------------------------------------------------------------------------------
PROGRAM = """
import torch, sot

@sot.to_static
def f(x):
    return x.sin() + 1

f(torch.ones(3))
print(f.code)
print(f.bytecode)
print(*f.guards, sep="\\n")
print(f.graphs[0].module.code)
print(f.explain())
plain = f.rollback()
f(torch.ones(3))
print(len(f.captures), plain.__name__)
"""


@pytest.mark.slow
def test_a_program_prints_what_was_captured(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(Path(sot.__file__).parent.parent)}, timeout=300)
    assert done.returncode == 0 and done.stderr == ""
    for text in ("# f, at program.py:4 in f", "def entry(a0, results):", "UNPACK_SEQUENCE",
                 "x is a float32 tensor of shape (3,) on cpu", "x.sin()", "f: 1 graph, 2 operations, no breaks",
                 "0 f\n"):
        assert text in done.stdout, text


def test_targets_are_refused_as_before():
    with pytest.raises(TargetError, match="not a torch.nn.Module"):
        sot.to_static(Holder)
