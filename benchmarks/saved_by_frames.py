"""What a captured call saves for each Python frame: ``python benchmarks/saved_by_frames.py``.

The capture policy of whole programs (sot/driver/capture_policy.py) needs this figure. A line for each model, in eval
and in training: microseconds of a plain call and of a captured one (the fastest of many, in turns), the Python frames
of a plain call, and the microseconds that a capture saves for each. The tensors are small, so that Python takes most
of the time.
"""
from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import sot

CALLS, TURNS = 10, 60


class Arithmetic(nn.Module):
    """Operations without calls of Python functions."""

    def forward(self, x):
        for _ in range(20):
            x = x * 2 + 1
        return x


def layers(count: int) -> nn.Module:
    return nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(16, 16), nn.ReLU())))


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "arithmetic": lambda: (Arithmetic(), torch.randn(4)),
    "4 layers": lambda: (layers(4), torch.randn(4, 16)),
    "20 layers": lambda: (layers(20), torch.randn(4, 16)),
    "convolutions": lambda: (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(),
                                           nn.Linear(64, 10)), torch.randn(2, 1, 8, 8)),
    "transformer": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3,
                                                  enable_nested_tensor=False), torch.randn(2, 8, 16)),
}


def frames_of(model: nn.Module, x: torch.Tensor) -> int:
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"
    sys.setprofile(note)
    try:
        model(x)
    finally:
        sys.setprofile(None)
    return count


def fastest(models: list[nn.Module], x: torch.Tensor) -> list[float]:
    """Microseconds of a call of each model."""
    best = [float("inf")] * len(models)
    for _ in range(TURNS):
        for i, model in enumerate(models):
            start = time.perf_counter()
            for _ in range(CALLS):
                model(x)
            best[i] = min(best[i], (time.perf_counter() - start) / CALLS * 1e6)
    return best


def main() -> None:
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        for training in (False, True):
            model, x = make()
            with torch.set_grad_enabled(training):
                translated = sot.to_static(copy.deepcopy(model.train(training)))
                for _ in range(2):
                    model(x), translated(x)
                plain, captured = fastest([model, translated], x)
            frames = frames_of(model, x)
            print(f"{name:12} {'training' if training else 'eval':8} plain {plain:7.1f} us, captured {captured:7.1f} "
                  f"us, {frames:3} frames, {(plain - captured) / frames:5.2f} us a frame", flush=True)


if __name__ == "__main__":
    main()
