"""flex_attention in a captured function: one operator in one graph, however its functions and masks are made."""
from __future__ import annotations

import pytest
import torch
from harness import Counter, Programs, caught
from torch import nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import sot
from sot.support.errors import CaptureError

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without", "ignore:return_lse is deprecated")
programs = Programs()
torch.manual_seed(0)
LENGTH = 128
BIAS, SLOPES, DOCUMENT = torch.randn(LENGTH, LENGTH), torch.randn(2), torch.arange(LENGTH) // 50


def causal(b, h, i, j):
    return i >= j


BEFORE = create_block_mask(causal, 1, None, LENGTH, LENGTH, device="cpu")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.cap = nn.Linear(16, 48), 20.0
        self.slopes = nn.Parameter(torch.randn(2))
        self.register_buffer("positions", torch.arange(LENGTH))
        self.requires_grad_(False)      # flex_attention has no backward pass on CPUs

    def score(self, score, b, h, i, j):
        return score + self.slopes[h] * (self.positions[i] - self.positions[j]) / self.cap

    def forward(self, x):
        query, key, value = self.project(x).chunk(3, -1)
        return flex_attention(query, key, value, score_mod=self.score, block_mask=BEFORE)


ATTENTION = Attention()


@programs
def plain(x):
    return flex_attention(x, x.cos(), x.sin(), scale=0.5).cos()


@programs
def relative_positions(x):
    return flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score + (i - j))


@programs
def captured_tensors(x):
    return flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score + BIAS[i, j] * SLOPES[h])


@programs
def a_tensor_of_the_function(x):
    scale = x.mean()
    return flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: torch.tanh(score / 20) * scale)


@programs
def a_mask_made_outside(x):
    return flex_attention(x, x, x, block_mask=BEFORE)


@programs
def a_mask_made_inside(x):
    mask = create_block_mask(causal, 1, None, LENGTH, LENGTH, device="cpu")
    return flex_attention(x, x, x, block_mask=mask)


@programs
def masks_of_documents(x):
    mask = create_block_mask(and_masks(causal, lambda b, h, i, j: DOCUMENT[i] == DOCUMENT[j]), 1, None, LENGTH, LENGTH,
                             device="cpu")
    return flex_attention(x, x, x, block_mask=mask, score_mod=lambda score, b, h, i, j: score * 2)


@programs
def grouped_queries(x):
    return flex_attention(x, x[:, :1], x[:, :1], enable_gqa=True)


@programs
def with_the_sum_of_exponentials(x):
    return flex_attention(x, x, x, return_lse=True)


@programs
def in_a_module(x):
    return ATTENTION(x)


@programs.each
@pytest.mark.parametrize("compiles", [False, True])
def test_attention_is_one_operator_of_one_graph(fn, compiles):
    counter = Counter()
    backend = "aot_eager" if compiles else counter
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(2, 2, LENGTH, 16)
        want = fn(x)        # torch warns once
        torch.testing.assert_close(translated(x), want, rtol=0, atol=1e-6 if compiles else 0)
    assert len(sot.translation_of(translated).captures) == 1
    if not compiles:
        assert "flex_attention" in str(counter.graphs[0].code)


def test_what_is_captured_is_read_at_each_call():
    bias = torch.zeros(LENGTH)

    def fn(x):
        return flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score + bias[j])
    translated = sot.to_static(fn, backend="aot_eager", full_graph=True)
    x = torch.randn(1, 2, LENGTH, 16)
    for _ in range(3):
        want = fn(x)
        torch.testing.assert_close(translated(x), want)
        bias.copy_(torch.randn(LENGTH))
    assert len(sot.translation_of(translated).captures) == 1


def test_errors_are_pytorchs():
    def fn(x):
        return flex_attention(x, x, x[0])
    x = torch.randn(1, 2, LENGTH, 16)
    assert caught(sot.to_static(fn, backend="eager"), x) == caught(fn, x)


def test_a_function_that_prints_is_left_to_torch():
    def fn(x):
        def score(s, b, h, i, j):
            print("scored")
            return s * 2
        return flex_attention(x, x, x, score_mod=score)
    with pytest.raises(CaptureError, match="writes output, in flex_attention"):
        sot.to_static(fn, backend="eager", full_graph=True)(torch.randn(1, 2, LENGTH, 16))
