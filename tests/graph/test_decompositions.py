"""Which operators are taken apart: torch's rules, one's own before them, and switches."""
from __future__ import annotations

import pytest
import torch
from compiling import check_compiled, counts

from sot.graph.rewrite import decompositions
from sot.graph.rewrite.decompositions import KEPT, name_of, table

aten = torch.ops.aten


def test_composite_operators_have_rules_and_kept_ones_none():
    rules = table("")
    assert {aten.native_layer_norm.default, aten._softmax.default, aten.gelu.default} <= rules.keys()
    assert not {name_of(op) for op in rules} & KEPT.keys()


def test_random_numbers_are_left_to_eager():
    assert aten.native_dropout.default not in table("")


def test_switches_take_rules_away_and_give_them_back():
    off = table("-aten.gelu, +aten.var_mean")
    assert aten.gelu.default not in off
    assert "aten.var_mean" in {name_of(op) for op in off} - {name_of(op) for op in table("")}
    with pytest.raises(ValueError, match="SOT_DECOMPOSE: 'aten.gelu' must begin with"):
        table("aten.gelu")


def test_the_environment_switches(monkeypatch):
    monkeypatch.setenv("SOT_DECOMPOSE", "-aten._softmax")
    assert aten._softmax.default not in table()
    made = check_compiled(lambda x: x.softmax(-1) * 2, torch.randn(3, 4))
    assert counts(made) == [(1, 1)], "the operator is called, and what follows is a kernel"


def test_a_rule_of_ones_own_comes_first():
    @decompositions.rule(aten.cosh)
    def cosh(x):
        return (x.exp() + (-x).exp()) / 2
    try:
        made = check_compiled(lambda x: x.cosh(), torch.randn(5))
        code = "".join(line.partition("#")[0] for line in made[0].source.splitlines())
        assert "exp(" in code and "cosh(" not in code
    finally:
        decompositions.forget(aten.cosh)
    assert aten.cosh.default not in table("")


def test_gradients_of_ones_own_are_respected():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    made = check_compiled(lambda x: Straight.apply(x * 2) + 1, torch.randn(6, requires_grad=True))
    assert len(made) == 2
