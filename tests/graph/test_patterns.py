"""Patterns of graphs: what a hole stands for, and which nodes may change a tensor."""
import pytest
import torch
import torch.nn.functional as F
from torch.fx import symbolic_trace

from sot.graph.rewrite.patterns import holes, matches, may_change, op


def test_one_hole_is_one_value_and_sums_have_no_order():
    x, y = holes("x y")
    square = op("add", op("mul", x, x), y)
    for fn, fits in ((lambda a, b: a * a + b, True), (lambda a, b: b + a * a, True), (lambda a, b: a * b + b, False)):
        *_, last, _ = symbolic_trace(fn).graph.nodes
        assert bool(list(matches(square, last))) == fits


@pytest.mark.parametrize(("fn", "changes"), [
    (lambda x: x.add_(1), True), (lambda x: torch.relu_(x), True), (lambda x: F.relu(x, True), True),
    (lambda x: torch.add(x, 1, out=x), True), (lambda x: x.__iadd__(1), True), (lambda x: F.relu(x), False),
    (lambda x: x + 1, False), (lambda x: x.softmax(-1), False), (lambda x: x[0], False), (lambda x: -x, False),
    (lambda x: F.batch_norm(x, x, x), True), (lambda x: torch.nn.init.ones_(x), True),
])
def test_what_may_change_a_tensor_is_known(fn, changes):
    nodes = [n for n in symbolic_trace(fn).graph.nodes if n.op in ("call_function", "call_method")]
    assert any(map(may_change, nodes)) == changes
