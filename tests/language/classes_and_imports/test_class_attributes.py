"""Attributes that a program sets on classes: counters, single instances, switches."""
from __future__ import annotations

import abc
import contextlib
import io

import pytest
import torch
from harness import Programs, check, same

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


class Base(abc.ABC):
    scale = 2
    cache = None
    calls = 0


class Derived(Base):
    def run(self, x):
        Base.calls += 1
        return x * self.scale


class Single:
    made = None

    def __new__(cls, *args):
        if cls.made is None:
            cls.made = super().__new__(cls)
        return cls.made


class Layer(torch.nn.Module):
    forwards = 0
    last = None

    def forward(self, x):
        type(self).forwards += 1
        Layer.last = x * 2
        return Layer.last + Layer.forwards


@pytest.fixture(autouse=True)
def as_before():
    """Each test finds the classes as they were."""
    kept = [(cls, dict(vars(cls))) for cls in (Base, Derived, Single, Layer)]
    yield
    for cls, held in kept:
        for name in [*vars(cls)]:
            if name not in held:
                delattr(cls, name)
        for name in ("scale", "cache", "calls", "made", "forwards", "last"):
            if name in held:
                setattr(cls, name, held[name])


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
@program.each
def test_with_backends(fn, backend):
    assert not same(sot.to_static(fn, backend=backend)(X.clone()), fn(X.clone()), "result")


@program
def set_and_restored(x):
    Base.scale, before = 9, Base.scale
    try:
        return Derived().run(x), Derived.scale, before
    finally:
        Base.scale = before
        Base.calls = 0


@program
def added_and_deleted(x):
    Derived.scale = 5
    y = Derived().run(x), "scale" if hasattr(Derived, "scale") else None
    del Derived.scale
    Base.calls = 0
    return y, Derived.scale, Derived().scale * x


@program
def inherited(x):
    Base.extra = x * 2
    y = Derived.extra + Derived().extra
    Derived.extra = 1
    z = Base.extra, Derived.extra
    del Derived.extra
    same_ = Derived.extra is Base.extra
    del Base.extra
    return y, z, same_


@program
def single_instances(x):
    a, b = Single(), Single()
    a.x = x * 2
    Single.made = None
    return a is b, b.x


@program
def by_the_builtin(x):
    setattr(Base, "cache", {"x": x + 1})
    Base.cache["y"] = x
    y = getattr(Derived, "cache")
    Base.cache = None
    return y


def counted(x):
    Derived.calls += 1
    return x * 2


def counts(translate):
    translated, seen = translate(counted), []
    for _ in range(4):
        seen.append((translated(X), Derived.calls, "calls" in vars(Derived)))
    del Derived.calls
    return seen


def test_counters():
    assert not same(counts(lambda fn: sot.to_static(fn, backend="eager")), counts(lambda fn: fn), "result")


def test_a_module_that_counts():
    want = [Layer()(X) for _ in range(4)], Layer.forwards, Layer.last
    Layer.forwards, Layer.last = 0, None
    translated = sot.to_static(Layer(), backend="eager")
    got = [translated(X) for _ in range(4)], Layer.forwards, Layer.last
    assert not same(got, want, "result")


def test_an_exception_after_a_change():
    def run(x):
        Base.scale = 7
        raise ValueError(f"{Derived.scale}")
    for call in (run, sot.to_static(run, backend="eager")):
        Base.scale = 2
        with pytest.raises(ValueError, match="7"):
            call(X)
        assert Base.scale == 7


def test_a_break_after_a_change():
    def run(x):
        Base.scale = 3
        y = x * Derived.scale
        if y.sum() > 0:
            Derived.scale = 4
        return y * Derived.scale
    want = run(X), vars(Base)["scale"], vars(Derived)["scale"]
    del Derived.scale
    Base.scale = 2
    got = sot.to_static(run, backend="eager")(X), vars(Base)["scale"], vars(Derived)["scale"]
    assert not same(got, want, "result")


def test_what_reads_the_class_itself():
    def run(x):
        Base.scale = 3
        print(sorted(k for k in vars(Base) if not k.startswith("_")), vars(Base)["scale"], Base.__dict__["scale"])
        Base.scale = 2
        return x * Base.__dict__["scale"]
    shown = []
    for call in (run, sot.to_static(run, backend="eager")):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            shown.append((call(X), call(X), out.getvalue()))
    assert not same(shown[1], shown[0], "result")


def test_methods_and_properties_are_left_to_python():
    class Own:
        @property
        def k(self):
            return 1

        def run(self, x):
            return x * self.k

    def replaced(x):
        Own.run = lambda self, x: x * 7
        return Own().run(x)
    assert not same(sot.to_static(replaced, backend="eager")(X), X * 7, "result")
