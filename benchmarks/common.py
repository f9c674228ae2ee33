"""What the benchmarks share: translators, models, fresh processes, and how results are written down."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch
from resnet import resnet50
from text import batch, masked_batch

import sot

Row = dict[str, Any]
TRANSLATORS = ("sot", "torch.compile")


# ---- translators ----


def run_as_it_is(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return gm.forward


def translate(name: str, target: Any, backend: Any = "eager") -> Any:
    """`target` under that translator; "plain" leaves it as it is."""
    if name == "plain":
        return target
    return sot.to_static(target, backend=backend) if name == "sot" else torch.compile(target, backend=backend)


def own_code(fn: types.FunctionType) -> types.FunctionType:
    """The function with a code object of its own, so that the translators keep out of each other's way."""
    return types.FunctionType(fn.__code__.replace(), fn.__globals__)


def reset(name: str) -> None:
    sot.reset() if name == "sot" else torch._dynamo.reset()


# ---- models: a module, the inputs of its forward, and a loss of its output ----


def make_resnet(rows: int = 2, size: int = 64) -> tuple[torch.nn.Module, dict[str, Any]]:
    return resnet50(), {"x": torch.randn(rows, 3, size, size)}


def make_bert(length: int = 64) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig()), masked_batch(length=length)


def make_gpt2(length: int = 64) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()), batch(length=length) | {"use_cache": False}


def make_linear(layers: int = 100) -> tuple[torch.nn.Module, dict[str, Any]]:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers))), {"input": torch.ones(1, 4)}


def make_decoder(layers: int = 24) -> tuple[torch.nn.Module, dict[str, Any]]:
    """As deep as a real one and narrow: what is measured is what a translator does, not what its layers compute."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2
    )
    return LlamaForCausalLM(config), {"input_ids": torch.arange(8)[None], "use_cache": False}


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[1:])
        for step in x:
            state = self.cell(step, state)
        return state


def make_recurrent(steps: int = 500) -> tuple[torch.nn.Module, dict[str, Any]]:
    return Recurrent(), {"x": torch.randn(steps, 2, 8)}


MODELS: dict[str, Callable[..., tuple[torch.nn.Module, dict[str, Any]]]] = {
    "ResNet-50": make_resnet,
    "BERT-base": make_bert,
    "GPT-2 small": make_gpt2,
}


def loss_of(output: Any) -> torch.Tensor:
    return output.float().square().mean() if isinstance(output, torch.Tensor) else output.loss


# ---- fresh processes ----


def in_fresh_process(script: str, *arguments: str, environment: dict[str, str] | None = None) -> Row:
    """Run `python script --child arguments...` and read the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, "--child", *arguments],
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def medians(samples: Iterable[Row]) -> Row:
    rows = list(samples)
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


# ---- results that outlive a run that is stopped ----


class Kept:
    """What has been measured, a line of JSON each in a file: a run that was stopped goes on where it was.

    Arguments:
        only: a regular expression that says what is to be measured; other things are taken from the file, or left out.
        minutes: after these, nothing new is begun.
    """

    def __init__(self, path: Path, only: str = "", minutes: float = math.inf) -> None:
        self.path, self.only, self.end = path, re.compile(only, re.IGNORECASE), time.monotonic() + 60 * minutes
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: dict[str, Row] = {row.pop("key"): row for row in map(json.loads, lines)}

    def wants(self, key: str) -> bool:
        """Whether it is to be measured now; what failed in another run is tried again."""
        known = self.rows.get(key, {})
        return not (known and "failed" not in known) and bool(self.only.search(key)) and time.monotonic() <= self.end

    def __call__(self, key: str, measure: Callable[[], Row]) -> Row:
        """What is known of ``key``, or is measured now."""
        if not self.wants(key):
            return self.rows.get(key, {})
        print(key, flush=True)
        try:
            row = measure()
        except Exception as error:
            traceback.print_exc()
            row = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:80]}
        self.rows[key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key} | row) + "\n")
        return row


# ---- the command line of a benchmark ----


def run_benchmark(
    doc: str | None, measure: Callable[[int], list[Row]], child: Callable[..., Row] | None, repeats: int
) -> None:
    """`--child ARGS` is one sample in this process; otherwise all rows, as a table or with --json as JSON."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None and child is not None:
        print(json.dumps(child(*options.child)))
        return
    rows = measure(options.repeats)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(markdown(rows))


def markdown(rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [
        columns,
        ["---"] * len(columns),
        *([show(row.get(column)) for column in columns] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)
