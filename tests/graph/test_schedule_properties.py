"""Random programs through the scheduler: whatever is fused, inlined, split or grouped, results stay what they are.

Every kernel is evaluated by the NumPy reference, before and after scheduling, and compared with eager.
"""
from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import torch
from compiling import kernels, leaves, run_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels import ir
from sot.graph.kernels.parallel import grouping, row_loops, splitting
from sot.graph.kernels.schedule import cost, schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import decompositions, passes

SHAPES = [(4, 6), (6, 4), (1, 6), (4, 1), (2, 3, 4), (24,), ()]
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin, "square": torch.square, "relu": torch.relu, "negative": torch.neg,
    "half": lambda x: x.half().float(), "whole": lambda x: (x * 3).int().float(),
    "transposed": lambda x: x.transpose(0, -1) if x.dim() else x, "flipped": lambda x: x.flip(0) if x.dim() else x,
    "flat": lambda x: x.reshape(-1), "a part": lambda x: x[..., 1:] if x.dim() and x.shape[-1] > 1 else x,
    "every second": lambda x: x[::2] if x.dim() else x, "copied": lambda x: x.clone().contiguous(),
    "twice": lambda x: torch.cat([x, x * 2], -1) if x.dim() else x,
    "padded": lambda x: torch.nn.functional.pad(x, (1, 0), value=2.0) if x.dim() else x,
    "sum": lambda x: x.sum(-1) if x.dim() else x, "sum, kept": lambda x: x.sum(0, keepdim=True) if x.dim() else x,
    "largest": lambda x: x.amax(-1, keepdim=True) if x.dim() else x, "all": lambda x: x.mean(),
    "softmax": lambda x: x.softmax(-1) if x.dim() else x, "running sum": lambda x: x.cumsum(-1) if x.dim() else x,
    "variance": lambda x: x.var(0, correction=0) if x.dim() else x,
    "looked up": lambda x: x[torch.tensor([0, -1, 0])] if x.dim() else x,
    "collected": lambda x: torch.zeros_like(x).index_add(0, torch.zeros(len(x), dtype=torch.long), x) if x.dim() else x,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add, "product": torch.mul, "difference": torch.sub, "larger": torch.maximum,
    "choice": lambda a, b: torch.where(a > b, a, b * 0.5), "matrix product": torch.matmul,
}
Step = tuple[str, int, int]


def program(steps: list[Step]) -> Callable[..., list[Tensor]]:
    """Each step makes a value of one or two earlier ones; the last three are given out."""
    def run(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for name, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if name in UNARY:
                values.append(UNARY[name](a))
            elif fits(name.removeprefix("two: "), a, b):
                values.append(BINARY[name.removeprefix("two: ")](a, b))
        return [value + 0 for value in values[-3:]]
    return run


def fits(name: str, a: Tensor, b: Tensor) -> bool:
    if name == "matrix product":
        return a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]
    try:
        return len(torch.broadcast_shapes(a.shape, b.shape)) <= 3
    except RuntimeError:
        return False


names = st.sampled_from([*UNARY, *(f"two: {name}" for name in BINARY)])
steps_of = st.lists(st.tuples(names, st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(steps=steps_of, shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
       wide=st.sampled_from([4, 1 << 15]), programs=st.sampled_from([1, row_loops.PROGRAMS]))
def test_a_scheduled_program_means_what_it_meant(steps, shapes, wide, programs):
    run = program(steps)
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i, shape in enumerate(shapes)]
    graph = make_fx(run, decompositions.table(), tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    passes.run(graph)
    plain = lower(graph, "cpu")
    with mock.patch.object(splitting.split, "__defaults__", (wide,)), \
            mock.patch.object(row_loops.with_row_loops, "__defaults__", (programs,)):
        scheduled = schedule(plain)
    expected = run(*inputs)
    for result in (run_reference(plain, inputs), run_reference(scheduled, inputs)):
        torch.testing.assert_close(leaves(result), expected, rtol=1e-3, atol=1e-3, equal_nan=True)
    for kernel in kernels(scheduled):
        ir.verify(kernel)
        assert str(ir.parse(str(kernel))) == str(kernel)
    if wide == 1 << 15:      # nothing is split
        assert cost(scheduled).bytes <= cost(plain).bytes
        assert cost(scheduled).kernels <= cost(plain).kernels
    assert all(grouping.fits(step) for step in scheduled.steps if isinstance(step, grouping.Group))
