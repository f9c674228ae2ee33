"""Real models are one graph each, in inference and in training, and the programs of ../shared/cases are captured."""
from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

import pytest
import torch
from harness import Counter

import sot

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"
sys.path.insert(0, str(ROOT / "examples"))

import resnet  # noqa: E402
import text  # noqa: E402

TOLERANCE = 1e-5


def resnet50():
    return resnet.resnet50(), {"x": torch.randn(2, 3, 64, 64)}, lambda out: out.square().mean()


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128)
    return transformers.BertForMaskedLM(config), text.masked_batch(), lambda out: out.loss


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4)
    return transformers.GPT2LMHeadModel(config), text.batch(), lambda out: out.logits.square().mean()


def run(model, inputs, loss):
    torch.manual_seed(1)
    out = model(**inputs)
    tensors = [out] if isinstance(out, torch.Tensor) else [v for v in out.values() if isinstance(v, torch.Tensor)]
    if model.training:
        loss(out).backward()
        tensors += [p.grad for p in model.parameters() if p.grad is not None]
    return [t.detach() for t in tensors] + [b.clone() for b in model.buffers()]


@pytest.mark.slow
@pytest.mark.parametrize("make", [resnet50, bert, gpt2])
@pytest.mark.parametrize("training", [False, True])
def test_a_model_is_one_graph_and_computes_the_same(make, training):
    torch.manual_seed(0)
    model, inputs, loss = make()
    plain = copy.deepcopy(model).train(training)
    backend = Counter()
    translated = sot.to_static(model.train(training), backend=backend)
    with torch.set_grad_enabled(training):
        for _ in range(2):
            wanted, got = run(plain, inputs, loss), run(translated, inputs, loss)
    assert len(wanted) == len(got)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= TOLERANCE * b.abs().max().clamp(min=1e-3) if a.numel() else True
    captures = sot.translation_of(translated).captures
    assert len(backend.graphs) == 1 and not [c.stopped for c in captures if c.stopped]


# Right, and one graph; but the id of a hook that is registered inside is new each time, and so is the capture.

@pytest.mark.skipif(not CASES.exists(), reason="../shared is not there")
def test_the_cases_are_captured_and_none_is_wrong():
    sys.path.insert(0, str(CASES))
    import programs
    import run as runner

    found = {case.name: runner.run(case, runner.TRANSLATORS["sot"])[2] or "" for case in programs.CASES}
    too_slow = re.compile(r"[\d.]+ s, at most")      # how fast it is, is for the benchmarks to say
    wrong = {name: why for name, why in found.items() if why and not too_slow.match(why)}
    assert not wrong
