"""Passes over ATen graphs: each does what it says, and results stay what they were."""
from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sot.graph.kernels import ir
from sot.graph.kernels.schedule import schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import passes
from sot.graph.rewrite.passes import InvalidGraph

aten = torch.ops.aten


def traced(fn, *args):
    return make_fx(fn, tracing_mode="fake", _allow_non_fake_inputs=True)(*args)


def operators(gm) -> list[str]:
    return [n.target._schema.name[6:] for n in gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]


# A program for each rule, in which it must apply, and what is left of it.
PROOFS = {
    "a view as it is": (lambda x: aten.view(aten.expand(aten.permute(x, [0, 1]), [3, 4]), [3, 4]) + 2, ["add"]),
    "times one": (lambda x: aten.mul(x, 1.0) + 2, ["add"]),
    "divided by one": (lambda x: aten.div(x, 1) + 2, ["add"]),
    "to the power of one": (lambda x: aten.pow(x, 1) + 2, ["add"]),
    "twice the same relu": (lambda x: aten.relu(aten.relu(x)) + 2, ["relu", "add"]),
    "minus zero": (lambda x: aten.sub(x, 0) * 2, ["mul"]),
    "plus zero, of whole numbers": (lambda x: aten.add(x.isnan().int(), 0) * 2, ["isnan", "_to_copy", "mul"]),
    "of the type that it is": (lambda x: aten._to_copy(x, dtype=torch.float32) * 2, ["mul"]),
    "twice the same absolute value": (lambda x: aten.abs(aten.abs(x)) + 2, ["abs", "add"]),
}


@pytest.mark.parametrize("rule", passes.RULES, ids=lambda r: r.name)
def test_a_rule_applies_and_keeps_results(rule):
    program, left = PROOFS[rule.name]
    gm = traced(program, torch.randn(3, 4))
    assert passes.rewrite(gm.graph)
    gm.recompile()
    assert operators(gm) == left
    special = torch.tensor([float("nan"), -0.0, float("inf"), 1e-40]).expand(3, 4).contiguous()
    for x in (torch.randn(3, 4), special):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0, equal_nan=True)


def test_plus_zero_stays_where_zero_has_a_sign():
    gm = traced(lambda x: aten.add(x, 0) * 2, torch.randn(3))
    assert passes.rewrite(gm.graph) == 0


def test_a_copy_in_another_layout_stays():
    gm = traced(lambda x: aten._to_copy(x, memory_format=torch.channels_last) * 2, torch.randn(2, 3, 4, 5))
    assert passes.rewrite(gm.graph) == 0


# Parts of a concatenation, the axis, and what is left of cat(parts) * 2.
CONCATENATED = {
    "a cache at its first token": (lambda x: [torch.empty(0), x], 0, ["empty", "mul"]),
    "two that have elements": (lambda x: [x, torch.empty(0), x * 3], 1, ["empty", "mul", "cat", "mul"]),
    "an empty part of the same rank": (lambda x: [x[:, :0], x], -1, ["slice", "mul"]),
    "a part of another type": (lambda x: [torch.empty(0, dtype=torch.float64), x], 0, ["empty", "cat", "mul"]),
    "a single part of another layout": (lambda x: [torch.empty(0), x.t()], 0, ["empty", "t", "cat", "mul"]),
    "none that has elements": (lambda x: [x[:0], x[:0]], 0, ["slice", "slice", "cat", "mul"]),
}


@pytest.mark.parametrize("name", CONCATENATED)
def test_parts_without_elements_are_left_out(name):
    parts, dim, left = CONCATENATED[name]
    x, program = torch.randn(3, 4), lambda x: torch.cat(parts(x), dim) * 2
    gm = traced(program, x)
    changed = passes.concatenations(gm.graph)
    gm.recompile()
    assert [name for name in operators(gm) if name != "detach"] == left
    assert bool(changed) == (name not in ("a part of another type", "none that has elements"))
    torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def test_a_concatenation_that_is_returned_has_memory_of_its_own():
    gm = traced(lambda x: torch.cat([torch.empty(0), x]), torch.randn(3))
    assert passes.run(gm)["concatenations"] == 1
    x = torch.randn(3)
    assert gm(x).data_ptr() != x.data_ptr() and torch.equal(gm(x), x)


# A program for each pair of operators, and what is left of it.
CHAINED = {
    "views": (lambda x: aten.view(aten.view(x, [2, 6]), [4, 3]) + 1, ["view", "add"]),
    "a view of a matrix with one row more": (lambda x: aten.view(aten.unsqueeze(x, 0), [4, 3]) + 1, ["view", "add"]),
    "permutations": (lambda x: aten.permute(aten.permute(aten.view(x, [1, 3, 4]), [2, 0, 1]), [2, 1, 0]) + 1,
                     ["view", "permute", "add"]),
    "a permutation and back": (lambda x: aten.permute(aten.permute(x, [1, 0]), [1, 0]) + 1, ["add"]),
    "permutations and views": (lambda x: aten.view(aten.permute(x, [0, 1]), [12]) + 1, ["view", "add"]),
}


@pytest.mark.parametrize("name", CHAINED)
def test_two_operators_in_a_row_are_one(name):
    program, left = CHAINED[name]
    gm = traced(program, torch.randn(3, 4))
    passes.run(gm)
    assert operators(gm) == left
    x = torch.randn(3, 4)
    torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def test_what_depends_on_constants_is_computed_once():
    table = torch.arange(6.0)

    def f(x):
        return x * aten.exp(aten.view(aten.neg(table), [2, 3])), table * 2
    gm = traced(f, torch.randn(2, 3))
    assert passes.run(gm)["constant_folding"] == 3
    assert operators(gm) == ["mul", "mul"], "what is given out is made anew in every call"
    x = torch.randn(2, 3)
    first, second = gm(x), gm(x)
    torch.testing.assert_close(first, f(x))
    assert first[1].data_ptr() != second[1].data_ptr()


def test_a_rule_does_not_change_types():
    gm = traced(lambda x: aten.mul(x, 1.0) + 2, torch.arange(3))
    assert passes.rewrite(gm.graph) == 0


def test_what_is_not_used_goes_and_what_draws_stays():
    def f(x):
        x.sin().cos()
        torch.rand(3)
        return x + 1
    gm = traced(f, torch.randn(3))
    assert passes.run(gm)["dead_code"] == 2
    assert operators(gm) == ["rand", "add"]


def test_what_is_computed_twice_is_computed_once():
    gm = traced(lambda x, y: (x @ y).sin() + (x @ y).cos(), torch.randn(3, 3), torch.randn(3, 3))
    passes.run(gm)
    assert operators(gm) == ["mm", "sin", "cos", "add"]


def test_two_results_are_never_one_tensor():
    gm = traced(lambda x: ((x + 1).t(), (x + 1)[0], x.sin(), x.sin()), torch.randn(3, 3))
    passes.run(gm)
    assert len({r.untyped_storage().data_ptr() for r in gm(torch.randn(3, 3))}) == 4


def test_random_numbers_are_not_shared():
    gm = traced(lambda x: torch.rand_like(x) - torch.rand_like(x), torch.randn(3))
    passes.run(gm)
    assert gm(torch.ones(3)).abs().sum() > 0


def test_the_verifier_names_the_pass_that_broke_the_graph():
    def misplaced(graph):
        *_, last, output = graph.nodes
        graph.inserting_before(next(iter(graph.nodes))).__enter__()
        new = graph.call_function(aten.neg.default, (last,))
        output.args = (new,)
        return 1

    def untyped(graph):
        *_, last, output = graph.nodes
        with graph.inserting_before(output):
            output.args = (graph.call_function(aten.neg.default, (last,)),)
        return 1

    def shorter(graph):
        *_, output = graph.nodes
        output.args = (next(iter(graph.nodes)),)
        return 1
    for broken, message in ((misplaced, "misplaced"), (untyped, "no fake value"), (shorter, "different tensors")):
        gm = traced(lambda x: x.sum(0), torch.randn(3, 4))
        with pytest.raises(InvalidGraph, match=f"after the pass {broken.__name__}.*{message}|{message}"):
            passes.run(gm, {broken.__name__: broken})


def test_every_stage_is_printed_on_request(caplog):
    """The graph before and after passes, and kernels as text that reads back, before and after scheduling."""
    gm = traced(lambda x: (x.sin() * 2 + 1,), torch.randn(3))
    with caplog.at_level("DEBUG", logger="sot.passes"):
        passes.run(gm)
        schedule(lower(gm, "cpu"))
    stages = {record.getMessage().partition("\n")[0]: record.getMessage() for record in caplog.records
              if record.name == "sot.passes"}
    assert list(stages) == ["before the passes", "lowered: 3 kernels, one an operator",
                            "scheduled: 1 kernels, 0 calls of operators, 24 bytes moved, 12 allocated at most"]
    _, _, text = list(stages.values())[-1].partition("\n")
    kernel = ir.parse(text.partition("\n\n")[0])
    assert [s.op for s in kernel.body] == ["load", "sin", "const", "mul", "const", "add"]


def test_graphs_are_printed_on_request(caplog):
    with caplog.at_level("DEBUG", logger="sot.passes"):
        passes.run(traced(lambda x: aten.mul(x, 1) + 1, torch.randn(3)))
    assert "rewrite changed 1 nodes" in caplog.text and "aten.add.Tensor" in caplog.text
