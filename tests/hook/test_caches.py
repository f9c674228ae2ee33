"""Entries of code objects: how many there are, for whom, how long they live, and who may make them at once."""
import gc
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref

import pytest
import torch
from harness import Counter
from torch import nn

import sot
from sot.bytecode.decode import forget
from sot.driver.recompile_limit import RecompileWarning
from sot.frontend.api import StaticFunction, translation_of

X = torch.arange(6.0).reshape(2, 3)


def captures_of(translated):
    return translation_of(translated).captures


# ---- how many ---------------------------------------------------------------------------------------------
def picks(values, x):
    return x * values[0]


def test_the_limit_is_a_setting(monkeypatch):
    monkeypatch.setenv("SOT_ENTRIES", "3")
    translated = sot.to_static(lambda x, mode: x + int(mode), backend="eager")
    with pytest.warns(RecompileWarning, match="was captured 3 times"):
        for n in range(1, 6):
            assert torch.equal(translated(X, str(n)), X + n)
    assert sum(c.graph is not None for c in captures_of(translated)) == 3


@pytest.mark.parametrize("value", ["0", "x", "3,0", "1,2,3"])
def test_a_limit_that_means_nothing_is_refused(monkeypatch, value):
    monkeypatch.setenv("SOT_ENTRIES", value)
    with pytest.raises(ValueError, match="SOT_ENTRIES="):
        sot.to_static(lambda x: x)


def test_the_last_used_entry_is_asked_first():
    translated = sot.to_static(lambda x, mode: x + int(mode), backend="eager")
    for mode in ("1", "22", "333"):
        translated(X, mode)
    code = translation_of(translated).__wrapped__.__code__
    for mode in ("1", "333", "22", "1"):
        translated(X, mode)
        assert sot._hook.get_entries(code)[0].holds((X, mode))
    assert len(captures_of(translated)) == 3


@pytest.mark.parametrize("changes, dynamic, guard, values, remedy", [
    (range(1, 20), False, "k", "1, then 2, then 3, then 4, then 5, then 6, then 7, then 8, now 9 (used in ",
     "dynamic=True"),
    ([f"mode {n}" for n in range(9)], None, "k", "'mode 0', then 'mode 1'", "per value"),
    ([torch.ones(n) for n in range(2, 12)], False, "k", "(2,)", "mark_dynamic"),
    ([torch.ones((1,) * n) for n in range(10)], None, "k", "()", "number of dimensions"),
    ([(1,) * n for n in range(12)], None, "k", "0, then 1, then 2", "number of items"),
])
def test_the_warning_names_the_guard_its_values_and_the_remedy(changes, dynamic, guard, values, remedy):
    def counts(x, k):
        if isinstance(k, torch.Tensor):
            return x.sum() * k
        return x + (sum(k) if isinstance(k, list) else len({*k}) if isinstance(k, str) else x.new_ones(k).sum())

    translated = sot.to_static(counts, backend="eager", dynamic=dynamic)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in changes:
            assert torch.equal(translated(X, k), counts(X, k))
    (warning,) = [w for w in caught if w.category is RecompileWarning]
    text = str(warning.message)
    assert "counts was captured 8 times" in text and "test_caches.py)" in text
    assert f"{guard}" in text.partition("The value that kept changing: ")[2].partition(" (used in ")[0]
    assert values in text and remedy in text and "SOT_ENTRIES" in text
    assert (warning.filename, warning.lineno) == (__file__, counts.__code__.co_firstlineno)


def test_a_value_that_differs_for_the_first_time_has_not_kept_changing():
    def modes(x, k, mode):
        return x * k + len({mode})

    translated = sot.to_static(modes, backend="eager")
    for n in range(8):
        translated(X, 1.0, f"mode {n}")
    with pytest.warns(RecompileWarning, match=r"The value that differs in this call: k == 1\.0, now 2\.0"):
        translated(X, 2.0, "mode 9")


@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
def test_a_translator_at_its_limit_leaves_others_and_plain_calls_alone():
    def fn(x, mode):
        return x + int(mode)

    full, other = (sot.to_static(fn, backend="eager") for _ in range(2))
    for n in range(1, 12):
        assert torch.equal(full(X, str(n)), X + n)
    assert captures_of(full)[-1].fallback
    assert torch.equal(other(X, "1"), X + 1) and captures_of(other)[-1].graph is not None
    assert torch.equal(fn(X, "3"), X + 3)
    count = len(captures_of(full))
    assert torch.equal(full(X, "20"), X + 20) and len(captures_of(full)) == count


# ---- for whom ---------------------------------------------------------------------------------------------
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        sot.graph_break()
        return torch.relu(y) + x


@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
def test_the_limit_holds_for_a_training_step_with_ever_new_models():
    """Each model has an optimizer, whose state has the weights as its keys. The guards that tell programs apart hold:
    one is on ``torch.autograd.grad``, whose name is that of a gradient.
    """
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def trained(step):
        torch.manual_seed(0)
        models = [nn.Linear(3, 2) for _ in range(8)]    # the first step of each makes gradients and state
        optimizers = [torch.optim.SGD(model.parameters(), 0.01, momentum=0.9) for model in models]
        return [step(model, optimizer, X) for model, optimizer in zip(models, optimizers, strict=True) for _ in "123"]

    translated = sot.to_static(step, backend="eager")
    assert all(map(torch.equal, trained(translated), trained(step)))
    assert sum(c.name == step.__qualname__ and not c.fallback for c in translated.captures) == 8


def sine(x):
    return x.sin()


@pytest.mark.filterwarnings("ignore::sot.driver.recompile_limit.RecompileWarning")
@pytest.mark.parametrize(("before", "now"), [([sine], ()), ((sine,), []), ({0: sine}, ())])
def test_at_the_limit_a_container_may_be_of_another_class_than_before(before, now):
    """What earlier captures guard in it may not be there."""
    def fn(x, functions, mode):
        for function in functions.values() if isinstance(functions, dict) else functions:
            x = function(x)
        return x + int(mode)
    translated = sot.to_static(fn, backend="eager")
    assert torch.equal(translated(X, before, "0"), X.sin())
    for n in range(10):
        assert torch.equal(translated(X, now, str(n)), X + n)
    assert torch.equal(translated(X, before, "1"), X.sin() + 1)


def test_layers_behind_breaks_share_one_compiled_graph():
    compiled = []
    for depth in (3, 48):
        layers, backend = nn.ModuleList(Layer() for _ in range(depth)), Counter()

        def forward(x, layers=layers):
            for layer in layers:
                x = layer(x)
            return x

        x = torch.randn(2, 4)
        assert torch.equal(sot.to_static(forward, backend=backend)(x), forward(x))
        compiled.append(len(backend.graphs))
    assert compiled[0] == compiled[1] <= 4


def test_layers_that_are_translated_by_themselves_are_captured_by_themselves():
    layers = [sot.to_static(nn.Linear(3, 3), backend="eager") for _ in range(20)]
    for _ in range(2):
        for layer in layers:
            assert torch.equal(layer(X), nn.functional.linear(X, layer.weight, layer.bias))
    assert all(len(captures_of(layer)) == 1 for layer in layers)


# ---- how long ---------------------------------------------------------------------------------------------
def alive(references):
    """How many of them still exist. Under ``sot.enable()`` a thread of the test runner may hold one for a moment."""
    for _ in range(40):
        gc.collect()
        if found := sum(reference() is not None for reference in references):
            time.sleep(0.05)
        else:
            break
    return found


@pytest.mark.slow
def test_a_thousand_models_leave_nothing_behind():
    run, references = sot.to_static(lambda model, x: model(x) + 1, backend="eager"), []
    for _ in range(1000):
        model = nn.Linear(3, 3)
        run(model, X)
        references += [weakref.ref(model), weakref.ref(model.weight)]
        del model
    assert alive(references) == 0 and len(captures_of(run)) == 1


@pytest.mark.slow
def test_models_that_are_translated_take_their_entries_along():
    references, code = [], nn.Linear.forward.__code__
    before = len(sot._hook.get_entries(code))
    for _ in range(50):
        model = sot.to_static(nn.Linear(3, 3), backend="eager")
        model(X)
        references += [weakref.ref(model), weakref.ref(model.weight), weakref.ref(translation_of(model).translator)]
        del model
    assert alive(references) == 0 and len(sot._hook.get_entries(code)) == before


def make_class(n):
    class Scale:
        def run(self, x):
            return x * n
    return Scale


@pytest.mark.slow
def test_classes_made_in_a_loop_take_their_entries_along():
    run, references = sot.to_static(lambda it, x: it.run(x), backend="eager"), []
    code = translation_of(run).__wrapped__.__code__
    for n in range(30):
        cls = make_class(n)
        assert torch.equal(run(cls(), X), X * n) and torch.equal(run(cls(), X), X * n)
        references += [weakref.ref(cls), weakref.ref(cls.run)]
        del cls
        assert alive(references) == 0 and sot._hook.get_entries(code) == ()
    assert all(c.graph is not None for c in captures_of(run))
    assert not any(state.entries for state in translation_of(run).translator.states)


@pytest.mark.slow
def test_closures_made_in_a_loop_share_an_entry_and_are_freed():
    def make(n):
        weight = torch.full((3,), float(n))
        return lambda x: x * weight, weakref.ref(weight)

    run, references = sot.to_static(lambda fn, x: fn(x) + 1, backend="eager"), []
    for n in range(30):
        fn, weight = make(n)
        assert torch.equal(run(fn, X), X * n + 1)
        references += [weakref.ref(fn), weight]
        del fn, weight
    assert alive(references) == 0 and len(captures_of(run)) == 1


@pytest.mark.slow
def test_a_function_that_a_global_named_is_freed_with_its_entry():
    namespace = {"helper": None, "__name__": "of_a_user"}
    exec("def fn(x): return helper(x)", namespace)
    run, references = sot.to_static(namespace["fn"], backend="eager"), []
    for n in range(12):
        exec(f"def helper(x): return x + {n}", namespace)
        references.append(weakref.ref(namespace["helper"]))
        assert torch.equal(run(X), X + n) and torch.equal(run(X), X + n)
    assert alive(references) == 1 and len(captures_of(run)) == 12


def test_a_guard_on_a_class_that_is_gone_says_so():
    run = sot.to_static(lambda it, x: it.run(x), backend="eager")
    cls = make_class(2)
    run(cls(), X)
    (guard, *_) = [r.guard for r in captures_of(run)[0].guards if type(r.guard).__name__ == "TypeGuard"]
    assert str(guard).endswith("Scale")
    del cls
    gc.collect()
    assert "gone" in str(guard) and "gone" in guard.explain((3, X))


@pytest.mark.slow
def test_a_translator_that_is_switched_off_goes():
    def fn(x):
        return x + 1

    for _ in range(3):
        with sot.enable(backend="eager"):
            fn(X)
            gone = weakref.ref(sot._hook.get_callback())
        assert alive([gone]) == 0 and sot._hook.get_entries(fn.__code__) == ()


def test_code_that_is_freed_is_forgotten():
    run, references = sot.to_static(lambda fn, x: fn(x), backend="eager"), []
    for n in range(20):
        namespace = {}
        exec(f"def fn(x): return x.add({n})", namespace)
        fn = StaticFunction(namespace["fn"], translation_of(run).settings, translation_of(run).translator)
        assert torch.equal(fn(X), X + n)
        references.append(weakref.ref(namespace["fn"].__code__))
        del fn, namespace
    forget()        # decoded code, of which a cache keeps so much and no more
    assert alive(references) == 0
    assert len(translation_of(run).translator.states) == 0


# ---- threads ----------------------------------------------------------------------------------------------
def in_threads(count, work):
    """What ``work(i)`` gave in each of ``count`` threads that begin together."""
    results, start = [None] * count, threading.Barrier(count)

    def run(i):
        start.wait(300)
        try:
            results[i] = work(i)
        except BaseException as error:  # noqa: BLE001 - to be shown
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return results


def test_first_calls_at_once_compile_once():
    backend = Counter()
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    expected = model(X)
    translated = sot.to_static(model, backend=backend)
    results = in_threads(8, lambda i: translated(X))
    assert all(torch.equal(result, expected) for result in results), results
    assert len(backend.graphs) == 1 and len(captures_of(translated)) == 1


def test_calls_in_eight_threads_give_what_python_gives():
    def fn(x, n, seen):
        seen.append(n)
        y = x * n
        if n % 2:
            y = y + 1
        sot.graph_break()
        for _ in range(n % 3):
            y = y.relu() - 1
        return y

    translated = sot.to_static(fn, backend="eager")

    def work(i):
        x, seen, wrong = torch.full((2 + i % 3, 2), float(i)), [], 0
        for n in range(25):
            wrong += not torch.equal(translated(x, n % 6, seen), fn(x, n % 6, []))
        return wrong, seen == [n % 6 for n in range(25)]

    assert in_threads(8, work) == [(0, True)] * 8


def test_enable_counts_for_threads_too():
    def fn(x):
        return x + 1

    def work(i):
        with sot.disable() if i % 2 else sot.enable(backend="eager"):
            own = sot.frontend.global_mode.is_enabled()
        return own, sot.frontend.global_mode.is_enabled(), torch.equal(fn(X), X + 1)

    backend = Counter()
    with sot.enable(backend=backend):
        assert in_threads(4, work) == [(True, True, True), (False, True, True)] * 2
        assert sot.frontend.global_mode.is_enabled() and backend.graphs
    assert in_threads(1, work) == [(True, False, True)]


# ---- the end ----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_program_ends_without_a_word():
    program = """
        import sys, torch, sot
        sot.enable(backend="eager")

        class Late:
            def __del__(self):
                for _ in range(2):
                    plain(torch.ones(2)), translated(torch.ones(3))

        def plain(x):
            return x + 1

        translated = sot.to_static(lambda x: x * 2, backend="eager")
        sys.modules["kept until the end"] = Late()
        print(plain(torch.ones(1)).item())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("2.0\n", "", 0)
