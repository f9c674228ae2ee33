"""Recurrent networks with dropout between their layers: a backend that compiles gets them layer by layer.

torch's own Python code for LSTM, GRU and RNN, which AOTAutograd traces, leaves the dropout out. Its code for a single
layer is right.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

NAMES = {getattr(torch, name): name for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
PADDED = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
PACKED = ("data", "batch_sizes", *PADDED[1:-1])


def separate_layers(module: fx.GraphModule) -> Callable[[], None]:
    """Change the recurrent networks of a graph that drop between layers. The result undoes the change."""
    parts = [part for part in module.modules() if isinstance(part, fx.GraphModule)]
    changed = [(node, node.target, node.args, node.kwargs) for part in parts
               for node in part.graph.nodes if node.op == "call_function" and node.target in NAMES]
    changed = [each for each in changed if drops(*positional(each[2], each[3]))]
    for node, target, args, kwargs in changed:
        node.target, node.args, node.kwargs = layer_by_layer, (NAMES[target], *positional(args, kwargs)), {}
    recompile(parts if changed else [])

    def undo() -> None:
        for node, target, args, kwargs in changed:
            node.target, node.args, node.kwargs = target, args, kwargs
        recompile(parts if changed else [])
    return undo


def recompile(parts: list[fx.GraphModule]) -> None:
    for part in parts:
        part.recompile()


def positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    padded = "batch_first" in kwargs if kwargs else not is_packed(args[1:])
    names = PADDED if padded else PACKED
    return (*args, *(kwargs[name] for name in names[len(args):]))


def is_packed(rest: tuple[Any, ...]) -> bool:
    """Whether the arguments after the first are those of a packed sequence, of which the first are its batch sizes."""
    return isinstance(rest[2], (tuple, list))


def has_recurrence(module: fx.GraphModule) -> bool:
    return any(node.op == "call_function" and node.target in NAMES for node in module.graph.nodes)


def drops(_input: Any, *rest: Any) -> bool:
    layers, dropout, train = rest[3 + is_packed(rest):6 + is_packed(rest)]
    return bool(layers > 1 and train and (isinstance(dropout, fx.Node) or dropout > 0))


def layer_by_layer(name: str, input: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    """What ``torch.lstm`` or another recurrent network returns, from calls of one layer each.

    Arguments:
        name: of the function in torch.
        input: (steps, batch, features), (batch, steps, features) or the data of a packed sequence.
        rest: its other arguments, in order.
    """
    sizes, rest = rest[:is_packed(rest)], rest[is_packed(rest):]
    hidden, params, biases, layers, dropout, train, bidirectional, *batch_first = rest
    states, directions, each = hidden if name == "lstm" else [hidden], 1 + bidirectional, len(params) // layers
    if batch_first == [True]:
        input = input.transpose(0, 1)
    last = []
    for i in range(layers):
        if i > 0:
            input = torch.dropout(input, dropout, train)
        of_layer = [state[i * directions:(i + 1) * directions] for state in states]
        input, *ends = getattr(torch, name)(
            input, *sizes, of_layer if name == "lstm" else of_layer[0], params[i * each:(i + 1) * each], biases, 1, 0.0,
            train, bidirectional, *([False] if batch_first else []))
        last.append(ends)
    output = input.transpose(0, 1) if batch_first == [True] else input
    return (output, *(torch.cat(ends) for ends in zip(*last, strict=True)))
