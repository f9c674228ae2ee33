"""Tensors made of others by DLPack."""
import pytest
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

import sot


def of_a_tensor(x):
    y = torch.from_dlpack(x)
    y.add_(1)
    return y, x * 1, y is x, y._is_view()


def by_a_capsule(x):
    return from_dlpack(to_dlpack(x * 2)) + 1


def before_a_change(x):
    y = torch.from_dlpack(x)
    x.mul_(3)
    return y * 1, y._version, x._version


def of_views(x):
    return torch.from_dlpack(x[:, :1]) + 1, torch.from_dlpack(x.T).stride(), x.__dlpack_device__()[0] == 1


def a_capsule_used_twice(x):
    capsule = to_dlpack(x * 2)
    y = torch.from_dlpack(capsule)
    try:
        torch.from_dlpack(capsule)
    except (RuntimeError, ValueError) as e:
        return y, type(e).__name__


def of_one_that_requires_grad(x):
    try:
        torch.from_dlpack(x.clone().requires_grad_())
    except BufferError as e:
        return str(e), x * 2


def with_options(x):
    return torch.from_dlpack(x.bool()), torch.from_dlpack(x, copy=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [of_a_tensor, by_a_capsule, before_a_change, of_views, a_capsule_used_twice,
                                of_one_that_requires_grad, with_options])
def test_the_memory_is_shared(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for _ in range(3):
        mine, its = torch.ones(2, 3), torch.ones(2, 3)
        assert str(translated(mine)) == str(fn(its))
        assert torch.equal(mine, its) and mine._version == its._version
    if backend == "eager" and fn in (of_a_tensor, by_a_capsule, before_a_change, of_views):
        assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def test_a_capsule_that_is_returned_can_be_used():
    translated = sot.to_static(lambda x: to_dlpack(x * 2), backend="eager")
    for _ in range(2):
        assert torch.equal(from_dlpack(translated(torch.ones(2))), torch.full((2,), 2.0))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("alias", [torch.from_dlpack, lambda x: torch.from_numpy(x.numpy()),
                                   lambda x: torch.from_dlpack(x[1:]), torch.clone],
                         ids=["DLPack", "NumPy", "a part", "a copy"])
def test_arguments_have_the_same_memory_in_two_storages(alias, backend):
    def changed(x, y):
        x.mul_(3)
        y.add_(1)
        return x * 2, y * 2

    translated = sot.to_static(changed, backend=backend)
    for make in alias, torch.clone, alias:
        mine, its = torch.ones(4), torch.ones(4)
        assert str(translated(mine, make(mine))) == str(changed(its, make(its)))
        assert torch.equal(mine, its)
