"""``obj.__class__ = cls`` of objects that existed before and of those that the call makes. Attributes of classes that
the call makes are deleted, as parametrizations do."""
import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import sot


class A:
    k = 1

    def __init__(self):
        self.v = 1

    def f(self):
        return self.k

    @property
    def name(self):
        return "A"


class B(A):
    k = 5

    def f(self):
        return 10 * self.k

    def __getattr__(self, name):
        return "missing " + name


class Slotted:
    __slots__ = ("a",)


def to_another(x, a):
    a.__class__ = B
    return x * a.f(), a.name, type(a).__name__, isinstance(a, B), a.nothing


def there_and_back(x, a):
    before = a.f()
    a.__class__ = B
    a.w, after = x, a.f()
    a.__class__ = A
    return x * before * after, a.k


def to_one_made_here(x, a):
    class C(A):
        @property
        def v(self):
            return 9

        def f(self):
            return 7
    a.__class__ = C
    return x * a.f() * a.v, a.__class__ is C, a.__dict__["v"]


def of_one_made_here(x, a):
    a.other = A()
    a.other.__class__ = B
    return x * a.other.f()


def read_before_and_after(x, a):
    v = a.v
    setattr(a, "__class__", B)
    a.u = a.v + v
    del a.v
    return x * a.u, a.v


def before_a_branch(x, a):
    a.__class__ = B
    if x.sum() > 1:
        return x * 2, a.f()
    return x


def of_another_layout(x, a):
    try:
        a.__class__ = Slotted
    except TypeError as e:
        return str(e), x * 2


def before_an_exception(x, a):
    a.__class__ = B
    raise KeyError(a.f())


def shown(value):
    if isinstance(value, (A, Slotted)):
        return type(value).__name__, {name: shown(v) for name, v in object.__getattribute__(value, "__dict__").items()}
    return str(value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("fn", "captured"), [
    (to_another, True), (there_and_back, True), (to_one_made_here, True), (of_one_made_here, True),
    (read_before_and_after, True), (before_a_branch, False), (of_another_layout, False), (before_an_exception, False)])
def test_another_class(fn, captured, backend):
    translated = sot.to_static(fn, backend=backend)
    for times in 1, 1, 3:
        seen = []
        for call in fn, translated:
            a, got = A(), []
            for _ in range(times):
                try:
                    got.append(shown(call(torch.ones(3), a)))
                except (KeyError, AttributeError) as e:
                    got.append(repr(e))
            seen.append((got, shown(a)))
        assert seen[0] == seen[1]
        if captured and times == 1:
            assert {c.stopped for c in sot.translation_of(translated).captures} == {None}


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).mT


@pytest.mark.parametrize("register", [
    parametrizations.weight_norm, lambda m: parametrize.register_parametrization(m, "weight", Symmetric())],
    ids=["weight_norm", "of the program"])
def test_a_parametrization_is_registered_in_the_graph(register):
    def program(m, x):
        register(m)
        return m(x)

    translated, x = sot.to_static(program, backend="eager"), torch.randn(2, 3)
    mine = nn.Linear(3, 3)
    its = copy.deepcopy(mine)
    want, got = program(mine, x), translated(its, x)
    want.sum().backward()
    got.sum().backward()
    assert torch.equal(want, got) and repr(mine) == repr(its) and [*mine.state_dict()] == [*its.state_dict()]
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(mine.parameters(), its.parameters(), strict=True))
    assert torch.equal(mine(x), its(x))
    assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def deletes_what_it_sets(x):
    class C:
        def f(self):
            return 2
    C.k = 3
    k = C.k
    del C.k
    return x * k, hasattr(C, "k"), sorted(n for n in vars(C) if not n.startswith("__")), C


def deletes_what_the_body_sets(x):
    class Base:
        k = 4

    class C(Base):
        k = 3
    before = C.k
    del C.k
    after = C().k
    C.k = 7
    del C.k
    return x * before * after, "k" in vars(C), C


@pytest.mark.parametrize("fn", [deletes_what_it_sets, deletes_what_the_body_sets])
def test_attributes_of_a_made_class_are_deleted(fn):
    translated, x = sot.to_static(fn, backend="eager"), torch.ones(3)
    for _ in range(2):
        (*got, mine), (*want, its) = translated(x), fn(x)
        assert str(got) == str(want) and "k" not in vars(mine) and mine.__name__ == its.__name__
    assert [c.stopped for c in sot.translation_of(translated).captures] == [None]
