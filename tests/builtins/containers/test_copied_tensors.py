"""``copy.copy`` and ``copy.deepcopy`` of tensors."""
import copy

import pytest
import torch

import sot


def shares_memory(x):
    y = copy.copy(x)
    y[0] = 7
    return x * 1, y


def attributes(x):
    x.tag = [1]
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    shallow.tag.append(2)
    return shallow.tag is x.tag, deep.tag, deep.tag is x.tag, x * 1


def of_a_result(x):
    z = x * 2
    y = copy.copy(z)
    z.add_(1)
    return y, y is z


def of_a_view(x):
    y = copy.copy(x[0])
    y.mul_(3)
    return x + 0, y, y._is_view()


def in_containers(x):
    return copy.copy([x])[0] is x, copy.copy({"a": x})["a"] is x, x * 1


def a_leaf(x):
    x.requires_grad_()
    y = copy.copy(x)
    (y * 2).sum().backward()
    return y.grad, x.grad, y.is_leaf


def without_the_history(x):
    y = copy.copy(x.requires_grad_() * 2)
    return y.requires_grad, y.grad_fn, y.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [shares_memory, attributes, of_a_result, of_a_view, in_containers, a_leaf,
                                without_the_history])
def test_copies(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for _ in range(3):
        mine, its = (torch.tensor([[1.0, 2], [3, 4]]) for _ in range(2))
        assert str(translated(mine)) == str(fn(its))
        assert torch.equal(mine, its) and mine._version == its._version
    if backend == "eager":
        assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def test_attributes_that_are_set_between_calls_are_copied():
    translated = sot.to_static(lambda x: (copy.copy(x), copy.deepcopy(x)), backend="eager")
    x = torch.ones(2)
    translated(x)
    x.tag = "kept"
    assert [y.tag for y in translated(x)] == ["kept", "kept"]


def test_a_copy_of_a_tensor_with_hooks_warns():
    def copied(x):
        x.register_hook(lambda g: g * 2)
        return copy.copy(x) * 2

    translated = sot.to_static(copied, backend="eager")
    for _ in range(2):
        with pytest.warns(UserWarning, match="backward hook"):
            translated(torch.ones(2, requires_grad=True))
