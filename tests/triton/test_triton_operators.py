"""torch's database of operators through kernels: results, and gradients where there are any, are eager's.

``kernel_sources/operators.txt`` lists operators for which kernels are made, forward or backward; each is checked on its
first sample. All of torch's operators compile: those without kernels are called.
"""
from __future__ import annotations

import pytest
import torch
from compiling import check_compiled
from operators import NAMES, operators


def test_at_least_250_operators_are_checked():
    assert len(set(NAMES)) >= 250
    assert set(NAMES) <= operators().keys()


# Their results have nothing to do with each other, and save nothing: each is computed as it is, not compiled.
APART = {"lu_unpack", "split_with_sizes", "unsafe_split"}


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_eagers(name):
    operator = operators()[name]
    kind = torch.float32 if torch.float32 in operator.dtypes else next(iter(operator.dtypes))
    differentiable = operator.supports_autograd and kind.is_floating_point
    sample = next(iter(operator.sample_inputs("cpu", kind, requires_grad=differentiable)))
    made = check_compiled(lambda *args: operator.op(*args, **sample.kwargs), sample.input, *sample.args,
                          rtol=1e-3, atol=1e-4)
    assert sum(m.cost.kernels for m in made) >= 1 or name in APART
