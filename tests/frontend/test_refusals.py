"""What is refused, with which words, and when: bad targets, settings and backends."""

import functools

import pytest
from torch import nn
from translating import X, scale

import sot
from sot.backends import BackendError, BackendUnavailableError, UnknownBackendError
from sot.frontend import api


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
