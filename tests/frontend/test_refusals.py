"""What is refused, with which words, and when: bad targets, settings and backends."""

import functools
import sys

import pytest
import torch
from torch import nn
from translating import X, scale

import sot
from sot.backends import BackendError, BackendUnavailableError, UnknownBackendError
from sot.checking.calls import is_strict
from sot.frontend import api, autoload


class Plain:
    pass


def a_generator(x):
    yield x


async def a_coroutine(x):
    return x


async def an_async_generator(x):
    yield x


class CallsAsGenerator:
    def __call__(self, x):
        yield x


@pytest.mark.parametrize("fn, uses", [
    *((fn, (sot.explain,)) for fn in (a_generator, a_coroutine, an_async_generator)),
    *((fn, (sot.to_static, sot.explain)) for fn in (CallsAsGenerator(), functools.partial(a_generator, X)))])
def test_what_suspends_is_refused_with_its_place_and_a_remedy(fn, uses):
    for use in uses:
        with pytest.raises(TypeError, match=r"cannot translate the .*(generator|coroutine).* \(.*test_refusals.py:\d+\)"
                                            r".*[Tt]ranslate (the function|its callees)") as refused:
            use(fn)
        assert isinstance(refused.value, sot.SotError)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "not 3"),
        ("inductor", r"backend='inductor'"),
        (property(scale), "put @property above"),
        (Plain, "the class Plain, which is not a torch.nn.Module"),
        (nn.Module, "has no forward"),
        (sot.not_to_static(scale), "marked not_to_static"),
        (type("Own", (nn.ReLU,), {"__call__": lambda self, x: x})(), "overrides __call__"),
    ],
)
def test_other_targets_are_refused_by_name(target, message):
    with pytest.raises(TypeError, match=message) as refused:
        sot.to_static(target)
    assert isinstance(refused.value, sot.SotError)


def test_not_to_static_and_ignore_module_refuse_what_they_cannot_mark():
    for use in (lambda: sot.not_to_static(3), lambda: sot.not_to_static(Plain), lambda: sot.ignore_module(3),
                lambda: sot.ignore_module(["no name"])):
        with pytest.raises(api.TargetError):
            use()


def test_settings_are_refused_when_the_decorator_is_made(backend, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UnknownBackendError, match="unknown backend 'eagre'. Did you mean 'eager'.*Known: .*inductor"):
        sot.to_static(backend="eagre")
    with pytest.raises(BackendUnavailableError, match="needs a CUDA device"):
        sot.to_static(scale, backend="triton")
    with pytest.raises(TypeError, match="a backend must be a name or a callable"):
        sot.to_static(scale, backend=3)
    with pytest.raises(TypeError, match="dynamic must be None, True or False, not 'yes'"):
        sot.to_static(scale, dynamic="yes")
    with pytest.raises(TypeError, match="full_graph must be True or False, not 'yes'"):
        sot.to_static(scale, full_graph="yes")
    with pytest.raises(TypeError, match="mark_dynamic needs a tensor and its dimensions, not 3"):
        sot.mark_dynamic(3, 0)
    with pytest.raises(sot.SotError, match="not the class Linear: pass an instance"):
        sot.save(nn.Linear, "linear", input_spec=[sot.InputSpec([None, 3])])


@pytest.mark.parametrize(("bad", "message"), [(lambda gm, inputs: 3, "returned 3"),
                                              (lambda gm, inputs: 1 / 0, "raised ZeroDivisionError")])
def test_a_backend_that_fails_is_named(bad, message, backend):
    with pytest.raises(BackendError, match=message):
        sot.to_static(scale, backend=bad)(X)


def test_a_compiled_graph_that_returns_no_tuple_is_refused(backend):
    with pytest.raises(TypeError, match="the backend has compiled returned int instead of a tuple or list"):
        sot.to_static(scale, backend=lambda gm, inputs: lambda *values: 3)(X)


def test_full_graph_raises_where_capture_would_break(backend):
    with pytest.raises(sot.CaptureError, match=r"as a Python number: item.*test_refusals.py:\d+"):
        sot.to_static(lambda x: x + len([0] * int(x.sum().item())), backend=backend, full_graph=True)(X)


# ---- what SOT_STRICT and full_graph refuse
class Cleaning:
    def __del__(self):
        pass


def reads_frames(x):
    y = x + 1
    sys._getframe()
    return y * 2


def counts_references(x):
    y = x + 1
    return y * (sys.getrefcount(y) > 0)


def makes_what_cleans_up(x):
    y = x + 1
    Cleaning()
    return y * 2


LEFT_TO_PYTHON = [(reads_frames, "frames", 2), (counts_references, "getrefcount", 2),
                  (makes_what_cleans_up, "__del__", 2)]


@pytest.mark.parametrize(("fn", "why", "line"), LEFT_TO_PYTHON)
def test_strict_mode_does_not_refuse_what_is_left_to_python_on_purpose(fn, why, line, backend, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    translated = sot.to_static(fn, backend=backend)
    assert torch.equal(translated(X), fn(X))
    stop = translated.captures[0].stopped
    assert why in stop.message and stop.place.line == fn.__code__.co_firstlineno + line


@pytest.mark.parametrize("value", ["true", "ON", "yes", "false", "Off", "0"])
def test_a_variable_takes_the_usual_words_for_on_and_off(value, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", value)
    assert is_strict() is (value in ("true", "ON", "yes"))


@pytest.mark.parametrize("name", ["SOT_STRICT", "SOT_NATIVE"])
def test_another_word_is_refused(name, monkeypatch):
    monkeypatch.setenv(name, "maybe")
    with pytest.raises(ValueError, match=f"{name}='maybe': it is 1 for on or 0 for off"):
        sot.to_static(scale)


@pytest.mark.parametrize("name", ["SOT_ENABLE", "SOT_REPLACE_TORCH_COMPILE"])
def test_a_program_runs_untranslated_if_a_variable_has_another_word(name, monkeypatch):
    torchs = torch.compile
    monkeypatch.setenv(name, "maybe")
    with pytest.warns(UserWarning, match=f"SOT is not enabled: {name}='maybe'"):
        autoload.start()
    monkeypatch.setenv(name, "false")
    autoload.start()
    assert torch.compile is torchs


def test_strict_mode_does_not_refuse_calls_beyond_the_limit_of_captures(backend, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    monkeypatch.setenv("SOT_ENTRIES", "1")
    translated = sot.to_static(scale, backend=backend)
    with pytest.warns(UserWarning, match="captured 1 time"):
        assert all(torch.equal(translated(x), scale(x)) for x in (X, X.double(), X.int()))


def test_strict_mode_raises_a_failure_of_capture(backend, monkeypatch):
    def fails(*args):
        raise KeyError("a defect")
    monkeypatch.setattr("sot.driver.exits.run", fails)
    assert torch.equal(sot.to_static(scale, backend=backend)(X), scale(X))
    monkeypatch.setenv("SOT_STRICT", "1")
    with pytest.raises(KeyError, match="a defect"):
        sot.to_static(scale, backend=backend)(X)


@pytest.mark.parametrize(("fn", "why", "line"), LEFT_TO_PYTHON)
def test_full_graph_raises_where_python_would_run_the_function(fn, why, line, backend):
    place = rf"test_refusals.py:{fn.__code__.co_firstlineno + line}"
    with pytest.raises(sot.CaptureError, match=rf"full_graph=True, but Python runs {fn.__name__}: .*{why}.*{place}"):
        sot.to_static(fn, backend=backend, full_graph=True)(X)


def test_full_graph_raises_at_the_limit_of_captures(backend, monkeypatch):
    monkeypatch.setenv("SOT_ENTRIES", "1")
    translated = sot.to_static(scale, backend=backend, full_graph=True)
    translated(X)
    with pytest.raises(sot.CaptureError, match="captured 1 times with different guards"):
        translated(X.double())


def test_full_graph_raises_the_exceptions_of_the_program(backend):
    def fails(x):
        raise ValueError(str(x.ndim))
    with pytest.raises(ValueError, match=str(X.ndim)):
        sot.to_static(fails, backend=backend, full_graph=True)(X)
