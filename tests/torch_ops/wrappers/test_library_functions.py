"""Functions of torch in Python that are one node."""
import pytest
import torch
from harness import Programs, check
from torch.overrides import TorchFunctionMode

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
whole = Programs()


@whole
def sums(x):
    mask = x > 0.2
    return torch.masked.sum(x, 1, mask=mask), torch.masked.mean(x, 1, mask=mask), torch.masked.amax(x, 0, mask=mask)


@whole
def softmax(x):
    return torch.masked.softmax(x, 1, mask=x > 0.5), torch.masked.log_softmax(x, dim=-1, mask=x > -0.5)


@whole
def norms(x):
    return torch.masked.normalize(x, 2.0, 1, mask=x > 0.5), torch.masked.var(x, 1, mask=x > -0.5)


@whole
def without_a_mask(x):
    return torch.masked.sum(x, 1), torch.masked.prod(x, 0, mask=torch.tensor([True, False, True, True]))


@pytest.mark.parametrize("leaf", [False, True])
@whole.each
def test_masked(fn, leaf):
    check(fn, X.clone().requires_grad_(leaf), graphs=1, breaks=0)


class Names(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_see_what_the_functions_call():
    def fn(x):
        with Names() as mode:
            y = torch.masked.sum(x, 1, mask=x > 0.2)
        return y, mode.names
    check(fn, X)
