"""Saved branches and loops on tensors, in methods that also compute with their sizes."""
import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import SaveError


def divided(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)) / x.shape[1]


def of_a_size(x):
    return torch.cond(x.sum() > 0, lambda x: x * x.shape[1], lambda x: x - x.shape[0], (x,))


def shaped(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)).reshape(x.shape[0], x.shape[1] * 4)


def branching(x):
    if x.sum() > 0:
        x = x * x.shape[0]
    return x / x.shape[1]


def looping(x):
    step, y = torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5 + y.shape[1]), (torch.tensor(0), x))
    return y / x.shape[0] + step


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.mean() > 0, lambda x: self.one(x), lambda x: self.other(x) * x.shape[1], (x,))
        return y.sum(1) / x.shape[1] ** 0.5


@pytest.mark.parametrize("function", [divided, of_a_size, shaped, branching, looping, Gated()], ids=[
    "divided", "of a size", "shaped", "branching", "looping", "gated"])
def test_sizes_beside_a_branch_or_loop_may_differ(function, tmp_path):
    loaded = sot.load(sot.save(function, tmp_path / "m", input_spec=[InputSpec((None, None, 4))]))
    for sign in 1, -1:
        for shape in (3, 5, 4), (2, 9, 4):
            x = sign * torch.rand(shape)
            torch.testing.assert_close(loaded(x), function(x), rtol=0, atol=1e-6)


def test_a_method_that_is_captured_for_one_size_is_refused(tmp_path):
    """torch.export would take the number for a constant of the program, and the sizes for free."""
    def f(x):
        x.t_()
        return x.sum(0) / x.shape[0]

    with pytest.raises(SaveError, match="captured for one size only, because of a change of the shape of an input"):
        sot.save(f, tmp_path / "m", input_spec=[InputSpec((None, None))])
