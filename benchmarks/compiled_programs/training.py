"""Training steps. One translator compiles the step, another the model, the way it is usually done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from compiled_programs.inference import GCN, GPT, Cells, ViT, block, graph
from compiled_programs.program import Compile, Program, program


def state_of(*modules: nn.Module) -> Any:
    return lambda: [p.detach().clone() for m in modules for p in m.state_dict().values()]


@program("training, SGD")
def train_mlp(compile_: Compile, part: Compile) -> Program:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer, forward = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), part(model)
    update = part(optimizer.step)

    @compile_
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(forward(x), y)
        loss.backward()
        update()
        return loss.detach()

    return Program(step, lambda i: (torch.randn(8 + i, 32), torch.randn(8 + i, 1)), state_of(model))


@program("training, AdamW, clipping, dynamic length")
def train_gpt(compile_: Compile, part: Compile) -> Program:
    model = GPT()
    optimizer, forward = torch.optim.AdamW(model.parameters(), 1e-3), part(model)
    update = part(optimizer.step)

    @compile_
    def step(ids: Any) -> Any:
        optimizer.zero_grad()
        scores = forward(ids[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update()
        return loss.detach()

    return Program(step, lambda i: (torch.arange(2 * (16 + i)).reshape(2, -1) % 100,), state_of(model))


@program("training, batch norm, AMP")
def train_convolutions_amp(compile_: Compile, part: Compile) -> Program:
    model = nn.Sequential(block(3, 16), block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    optimizer, forward = torch.optim.SGD(model.parameters(), 0.01), part(model)
    update = part(optimizer.step)

    @compile_
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(forward(x), y)
        loss.backward()
        update()
        return loss.detach()

    return Program(step, lambda i: (torch.randn(4 + i, 3, 16, 16), torch.arange(4 + i) % 10), state_of(model))


@program("training, ViT, gradients only")
def gradients_vit(compile_: Compile, part: Compile) -> Program:
    model = ViT()
    compiled = compile_(part(model))

    def step(x: Any) -> Any:
        model.zero_grad()
        compiled(x).square().mean().backward()
        return [p.grad.clone() for p in model.parameters()]

    return Program(step, lambda i: (torch.randn(2 + i, 3, 32, 32),))


def adam_step(model: nn.Module, compile_: Compile, part: Compile, loss_of: Callable[..., Any]) -> Any:
    """A compiled training step with Adam; ``loss_of(forward, x, y)`` is its loss."""
    optimizer, forward = torch.optim.Adam(model.parameters(), 1e-3), part(model)
    update = part(optimizer.step)

    @compile_
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(forward, x, y)
        loss.backward()
        update()
        return loss.detach()

    return step


@program("training, recurrent")
def train_lstm(compile_: Compile, part: Compile) -> Program:
    model = Cells()
    step = adam_step(model, compile_, part, lambda forward, x, y: F.cross_entropy(forward(x), y))
    return Program(step, lambda i: (torch.randn(4 + i, 6, 16), torch.arange(4 + i) % 4), state_of(model))


@program("training, graph")
def train_gcn(compile_: Compile, part: Compile) -> Program:
    model = GCN()
    step = adam_step(model, compile_, part, lambda forward, x, edges: forward(x, edges).square().mean())
    return Program(step, graph, state_of(model))
