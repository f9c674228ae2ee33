"""The models and the text of the demo are what they say, and the demo notices what it should."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import demo
import resnet
import text

EXAMPLES = Path(demo.__file__).parent
NEEDS = {"serving": ("fastapi", "httpx"), "generation": ("transformers",), "export": ("onnxruntime", "onnxscript"),
         "lightning_module": ("lightning",)}
COMPILED = ("aotinductor",)     # these need a C++ compiler
PROGRAMS = {path.stem: path for path in EXAMPLES.rglob("*.py") if path.stem not in ("demo", "resnet", "text")}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_an_example_runs(name, monkeypatch):
    for needed in NEEDS.get(name, ()):
        pytest.importorskip(needed)
    if name in COMPILED and shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.syspath_prepend(PROGRAMS[name].parent)
    monkeypatch.setenv("SOT_CHECK_DIR", "")     # which an example sets: afterwards it is as before
    importlib.import_module(name).main()


def test_resnet50_is_the_standard_one():
    model = resnet.resnet50()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


def test_text_goes_there_and_back():
    for sentence in (*text.PARAGRAPH, "é, 文, \0"):
        assert text.decode(text.encode(sentence)) == sentence


def test_a_batch_is_padded_and_says_where():
    inputs = text.batch(("ab", "abc"), length=8)
    assert inputs["input_ids"].tolist() == [[1, 101, 102, 2, 0, 0, 0, 0], [1, 101, 102, 103, 2, 0, 0, 0]]
    assert inputs["attention_mask"].sum(1).tolist() == [4, 5]


def test_labels_are_the_hidden_bytes_and_nothing_else():
    plain, masked = text.batch(), text.masked_batch()
    hidden = masked["input_ids"] == text.MASK
    assert 0 < hidden.sum() < hidden.numel() / 4
    assert torch.equal(masked["labels"][hidden], plain["input_ids"][hidden])
    assert (masked["labels"][~hidden] == text.IGNORED).all()


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (demo.Run(graphs=1, outputs=[torch.ones(3)]), None),
        (demo.Run(graphs=2, outputs=[torch.ones(3)]), "2 graphs where there should be one"),
        (demo.Run(graphs=1, outputs=[torch.ones(3) * 1.001]), "outputs differ by 1.0e-03"),
        (demo.Run(graphs=1, outputs=[torch.full((3,), torch.nan)]), "outputs differ by nan"),
        (demo.Run(graphs=1, outputs=[]), "outputs differ by inf"),
    ],
)
def test_the_demo_says_what_is_wrong(run, problem):
    runs = {"plain": demo.Run(graphs=0, outputs=[torch.ones(3)]), "sot": run}
    row = demo.Row("model, eval", runs, breaks=[], guards=[], translator="sot")
    assert list(row.problems()) == ([problem] if problem else [])
