"""Results that torch conjugates where they are read, and their gradients, with backends that trace."""
from __future__ import annotations

import pytest
import torch

import sot

PROGRAMS = {
    "conjugated": lambda x: (torch.complex(x.cumsum(0), x).conj(),),
    "conjugated and transposed": lambda x: (torch.complex(x, x.sin()).mH,),
    "beside others": lambda x: (torch.complex(x.sin(), x).conj(), torch.complex(x, x), x.sum()),
    "conjugated inside": lambda x: ((torch.complex(x, x.sin()).conj() * 2j).imag,),
    "negated": lambda x: (torch.complex(x.cumsum(0), x).conj().imag,),
}


def outcome(function):
    x = torch.arange(6.0).view(3, 2).requires_grad_()
    results = function(x)
    weights = [torch.full_like(r, 1 + 2j if r.is_complex() else 3).resolve_conj() for r in results]
    return results, torch.autograd.grad(results, x, weights)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "triton"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_python(name, backend, fresh):
    expected = outcome(PROGRAMS[name])
    run = sot.to_static(PROGRAMS[name], backend=backend)
    for _ in range(2):
        torch.testing.assert_close(outcome(run), expected)
