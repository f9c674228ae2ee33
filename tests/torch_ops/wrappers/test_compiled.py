"""``torch.compile`` called by a translated program: the original is followed, in the same graph."""
import types

import pytest
import torch

import sot

X = torch.arange(6.0).reshape(2, 3)
LINEAR = torch.nn.Linear(3, 3).requires_grad_(False)


def double(x, by=2):
    return x.sin() * by


class Cached:
    compiled = None

    def scaled(self, x):
        return x * 3

    def __call__(self, x):
        if self.compiled is None:
            self.compiled = torch.compile(self.scaled, backend="eager")
        return self.compiled(x) + 1


def a_function(x):
    return torch.compile(double, backend="eager")(x, by=3) + 1


def a_decorator_with_options(x):
    @torch.compile(backend="eager", fullgraph=True)
    def shifted(y):
        return y + x
    return shifted(x), callable(shifted), isinstance(shifted, types.FunctionType)


def a_plain_decorator(x):
    @torch.compile
    def shifted(y):
        return y + x
    return shifted.__call__(x)


def a_module(x):
    return torch.compile(LINEAR, dynamic=False, backend="eager")(x)


def compiled_twice(x):
    return torch.compile(torch.compile(double), mode="default")(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [a_function, a_decorator_with_options, a_plain_decorator, a_module, compiled_twice])
def test_the_original_is_followed(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    with torch.compiler.set_stance("force_eager"):
        want = str(fn(X))
    for _ in range(3):
        assert str(translated(X)) == want
    assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def test_a_compiled_method_that_is_kept_is_made():
    mine, its = Cached(), Cached()
    translated = sot.to_static(lambda call, x: call(x), backend="eager")
    for _ in range(3):
        assert torch.equal(translated(mine, X), its(X))
    assert type(mine.compiled) is type(its.compiled)
    assert torch.equal(mine.compiled(X), X * 3)


def test_wrong_options_are_refused_by_torch():
    def wrong(x):
        return torch.compile(double, mode="default", options={})(x)

    for call in wrong, sot.to_static(wrong, backend="eager"):
        with pytest.raises(RuntimeError, match="mode or options"):
            call(X)
