"""The kernel IR: its text, its rules, what building simplifies, and its meaning beside torch's."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sot.graph.kernels import index as ix
from sot.graph.kernels import ir, reference
from sot.graph.kernels.ir import Builder, InvalidKernel, Kernel, Memory, Store
from sot.graph.kernels.ops import OPS, REDUCTIONS

MEAN = """
kernel mean over p0:3 | r0:4
buffer x f32 12
buffer y f32 3
v0:f32 = load x[4*p0 + r0]
v1:f32 = sum v0
v2:f32 = const 0.25
v3:f32 = mul v1 v2
store y[p0] v3
""".strip()

PICKED = """
kernel picked over p0:4
buffer where i64 4
buffer x f32 8
buffer y f32 4
v0:i64 = load where[p0]
v1:i64 = inside v0 of 8
v2:i64 = index p0
v3:i64 = const 2
v4:b1 = lt v2 v3
v5:f32 = load x[v1] if v4 else -inf
store y[p0] v5
""".strip()


@pytest.mark.parametrize("text", [MEAN, PICKED])
def test_text_is_read_back(text):
    kernel = ir.parse(text)
    ir.verify(kernel)
    assert str(kernel) == text
    assert ir.parse(str(kernel)) == kernel


def test_the_reference_evaluates_a_reduction():
    x, y = np.arange(12, dtype=np.float32), np.zeros(3, np.float32)
    reference.run(ir.parse(MEAN), {"x": x, "y": y})
    np.testing.assert_array_equal(y, x.reshape(3, 4).mean(1))


def test_the_reference_evaluates_a_masked_and_a_dependent_load():
    memory = {"where": np.array([7, 0, 3, 3]), "x": np.arange(8, dtype=np.float32), "y": np.zeros(4, np.float32)}
    reference.run(ir.parse(PICKED), memory)
    np.testing.assert_array_equal(memory["y"], [7, 0, -np.inf, -np.inf])
    memory["where"][0] = 8
    with pytest.raises(IndexError, match="out of range for an axis of 8"):
        reference.run(ir.parse(PICKED), memory)


# ---- every operation means what torch means ----
TORCH = {"neg": torch.neg, "abs": torch.abs, "not": torch.bitwise_not, "round": torch.round, "add": torch.add,
         "sub": torch.sub, "mul": torch.mul, "div": torch.div, "rem": torch.fmod, "idiv": lambda a, b: torch.div(
             a, b, rounding_mode="trunc"), "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
         "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift, "where": torch.where}


@pytest.mark.parametrize("name", [name for name in OPS if name != "uniform"])     # its bits are in test_random
def test_an_operation_is_torchs(name):
    op = OPS[name]
    kind = torch.float32 if "f32" in op.takes else torch.int64
    torch.manual_seed(0)
    args = [(torch.randn(50) * 3).to(kind) for _ in range(op.arity)]
    if name == "idiv":
        args = [torch.tensor([-2**63, -2**63, 2**63 - 1, -7, 7, -6]), torch.tensor([3, -2, -2, 2, -3, 2])]
    if kind is torch.float32:
        args = [torch.cat([a, torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])]) for a in args]
    elif name in ("shl", "shr"):
        args[1] = args[1].abs() + 1
    if name == "where":
        args[0] = args[1] > 0
    function = TORCH.get(name) or getattr(torch, name)
    got = reference.apply(name, *(a.numpy() for a in args))
    torch.testing.assert_close(torch.from_numpy(np.asarray(got)), function(*args), equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_torchs(name):
    x = torch.randn(5, 7)
    x[2, 3] = float("nan")
    functions = {"max": torch.amax, "min": torch.amin}
    expected = functions.get(name, getattr(torch, name))(x, 1)
    got = REDUCTIONS[name](x.numpy(), axis=1)
    torch.testing.assert_close(torch.from_numpy(got), expected, equal_nan=True)


# ---- building ----
def builder() -> Builder:
    b = Builder({"p0": 4})
    b.load("x", ix.index("p0"), "f32")
    return b


def test_equal_statements_are_one():
    b = builder()
    assert b.emit("exp", "v0") == b.emit("exp", "v0")
    assert b.load("x", ix.index("p0"), "f32") == "v0"


def test_constants_are_computed_when_building():
    b = builder()
    total = b.emit("mul", b.const(3, "f32"), b.emit("add", b.const(1, "f32"), b.const(0.1, "f32")))
    assert b.by_name[total].value == np.float32(3) * (np.float32(1) + np.float32(0.1))


def test_zero_and_negative_zero_are_two_constants():
    b = builder()
    assert b.const(0.0, "f32") != b.const(-0.0, "f32")
    assert b.const(float("nan"), "f32") == b.const(float("nan"), "f32")


def test_what_changes_nothing_is_left_out():
    b = builder()
    yes = b.const(True, "b1")
    assert b.emit("mul", "v0", b.const(1, "f32")) == "v0"
    assert b.emit("where", yes, "v0", b.const(5, "f32")) == "v0"
    assert b.cast("v0", "f32") == "v0"
    narrow = b.cast("v0", "bf16")
    assert b.cast(b.cast(narrow, "f32"), "bf16") == narrow
    assert b.cast(narrow, "f32") != "v0", "rounding is not undone"


def test_a_load_that_is_never_made_is_its_default():
    b = builder()
    assert b.by_name[b.load("x", ix.index("p0"), "f32", b.const(False, "b1"), 2.0)].value == 2.0


# ---- rules ----
def valid() -> Kernel:
    return ir.parse(MEAN)


def replaced(old: str, new: str) -> str:
    assert old in MEAN
    return MEAN.replace(old, new)


@pytest.mark.parametrize(("text", "message"), [
    (replaced("mul v1 v2", "mul v1 v9"), "uses v9, not defined yet"),
    (replaced("v2:f32 = const 0.25", "v2:i64 = const 1"), "is not defined for f32, i64"),
    (replaced("4*p0 + r0", "4*p0 + r0 + 1"), "leaves its buffer"),
    (replaced("store y[p0] v3", "store y[p0] v0"), "stored to one place many times"),
    (replaced("v1:f32 = sum", "v1:f32 = conjure"), "is not known"),
    (replaced("store y[p0] v3", "store z[p0] v3"), "unknown buffer"),
    (replaced("v3:f32 = mul", "v3:f64 = mul"), "has a wrong type"),
    (replaced("| r0:4", "").replace("+ r0", ""), "no axis is reduced"),
])
def test_a_kernel_that_breaks_a_rule_is_refused(text, message):
    with pytest.raises(InvalidKernel, match=message):
        ir.verify(ir.parse(text))


def test_two_stores_to_a_buffer_are_refused():
    kernel = valid()
    with pytest.raises(InvalidKernel, match="twice"):
        ir.verify(dataclasses.replace(kernel, stores=kernel.stores * 2))


@pytest.mark.parametrize("text", ["kernel x", "kernel k over p0:4\nv0 = load x[p0]",
                                  "kernel k over p0:4\nv0:f32 = load x"])
def test_text_that_is_no_kernel_is_refused(text):
    with pytest.raises(InvalidKernel, match="not"):
        ir.parse(text)


def test_renumbering_keeps_the_meaning_and_drops_unused_buffers():
    kernel = dataclasses.replace(valid(), buffers={**valid().buffers, "unused": Memory("f32", 3)})
    kept = ir.renumbered(dataclasses.replace(
        kernel, body=tuple(dataclasses.replace(s, name=s.name.replace("v", "w"), args=tuple(
            a.replace("v", "w") for a in s.args)) for s in kernel.body),
        stores=(Store("y", ix.index("p0"), "w3"),)))
    assert kept == valid()
