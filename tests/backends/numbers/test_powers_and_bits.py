"""Powers and bits of whole numbers with a number that varies, in compiled graphs; and operations that PyTorch does not
have for a dtype, but compilers do.
"""
import operator

import pytest
import torch
from harness import outcome, same

import sot

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
OPERATIONS = {
    "power": operator.pow, "power of a number": lambda x, n: n ** x, "power in place": lambda x, n: x.clone().pow_(n),
    "float power": lambda x, n: torch.pow(x, exponent=n), "shift": operator.lshift, "shifted": lambda x, n: n << x,
    "and": operator.and_, "or": operator.or_, "exclusive or": operator.xor, "remainder": operator.mod,
    "quotient": operator.floordiv, "in between": lambda x, n: torch.lerp(x, x, n), "gcd": lambda x, n: x.gcd(x + n),
}
ALONE = {
    "not": operator.invert, "erfinv": torch.erfinv, "pool": lambda x: torch.nn.functional.avg_pool1d(x[None], 2),
    "triangle": lambda x: torch.linalg.det(torch.outer(x, x)), "hardtanh": torch.nn.functional.hardtanh,
    "softmax": lambda x: x.softmax(0), "product": lambda x: x[None] @ x[:, None], "sort": lambda x: x.sort().values,
}
DTYPES = torch.float32, torch.float16, torch.int64, torch.int8, torch.bool


def agree(backend, fn, *calls):
    captured = sot.to_static(fn, backend=backend)
    for call in calls:
        want, got = outcome(fn, call, {}), outcome(captured, call, {})
        assert type(got.raised) is type(want.raised), call
        assert not same(got.result, want.result), call
    return sot.translation_of(captured).captures


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_number_that_varies(name, dtype, backend):
    for x in (torch.arange(4).to(dtype), torch.tensor(3).to(dtype)):
        agree(backend, OPERATIONS[name], *((x, n) for n in (2, 3, 4, 5, 0, -1, 300)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_number_of_a_tensor(name, dtype, backend):
    x = torch.arange(4).to(dtype)
    agree(backend, lambda x, t: OPERATIONS[name](x, t.item()), *((x, torch.tensor(n)) for n in (2, 3, 0, -1, 300)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ALONE)
def test_what_is_not_implemented_raises(name, dtype, backend):
    agree(backend, ALONE[name], (torch.arange(4).to(dtype),))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("name", ["power", "power of a number", "power in place"])
def test_powers_have_two_captures(name, dtype):
    x = torch.arange(4).to(dtype)
    assert len(agree("aot_eager", OPERATIONS[name], *((x, n) for n in (2, 3, 4, 5)))) == 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", [lambda y: y.mul_(0.5), lambda y: y.add_(1.5), lambda y: y.sub_(torch.ones(4)),
                                    lambda y: operator.itruediv(y, 2)])
def test_a_result_that_does_not_fit_the_dtype_raises(change, backend):
    agree(backend, lambda x: change(x * 2), (torch.arange(4),), (torch.ones(4),))
