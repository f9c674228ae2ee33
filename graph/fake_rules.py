"""What runs on fakes in place of operations whose own kernels read the values of a tensor: those on packed sequences.

``pack_padded_sequence`` makes one long row of sequences of different lengths. How long that is depends on the lengths,
so the sizes of its results are symbols of data. A recurrent network over such a row has results with the sizes of its
arguments.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def new_size() -> Any:
    """A size that depends on data. Raises DynamicOutputShapeException where these are not admitted."""
    return torch.ones(1, dtype=torch.bool).nonzero().shape[0]


def packed(data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The row (elements, *features), and how many sequences have an element at each position."""
    first = data[0, 0]
    return first.expand(new_size(), *first.shape).clone(), torch.empty(new_size(), dtype=lengths.dtype)


def padded(data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float,
           total_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences (batch, length, *features) or (length, batch, *features), and their lengths."""
    sequences, length = new_size(), total_length if total_length > 0 else batch_sizes.shape[0]
    one = data.sum(0, dtype=data.dtype)
    made = one.expand(length, sequences, *one.shape).clone()
    return made.transpose(0, 1) if batch_first else made, torch.empty(sequences, dtype=batch_sizes.dtype)


def recurrent(network: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a network. A step on one sequence has the dtypes of the results, and needs gradients as they do."""
    def rule(data: torch.Tensor, batch_sizes: torch.Tensor, hx: Any, *options: Any) -> tuple[torch.Tensor, ...]:
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        start = [state.mean(1, keepdim=True) for state in states]
        step, *ends = network(data.mean(0).view(1, 1, -1), start if hx is states else start[0], *options, False)
        return (step.view(1, -1).expand(data.shape[0], -1).clone(),
                *(end.expand_as(state).clone() for end, state in zip(ends, states, strict=True)))
    return rule


RECURRENT = torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu
ON_PACKED: dict[Any, Callable[..., Any]] = {
    torch._pack_padded_sequence: packed, torch._pad_packed_sequence: padded,
    **{network: recurrent(network) for network in RECURRENT}}


def on_packed(name: str, *args: Any, **kwargs: Any) -> Any:
    """The target of the node of an operation on packed sequences. A compiler cannot trace it."""
    return getattr(torch, name)(*args, **kwargs)


def rule_on_packed(name: str, *args: Any, **kwargs: Any) -> Any:
    return ON_PACKED[getattr(torch, name)](*args, **kwargs)


RULES: dict[Any, Callable[..., Any]] = {on_packed: rule_on_packed}


def node_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The target and arguments of the node for a call. A recurrent network gets a packed sequence if its weights are
    fourth, after the batch sizes.
    """
    if target in ON_PACKED and (target not in RECURRENT or len(args) > 3 and isinstance(args[3], (tuple, list))):
        return on_packed, (target.__name__, *args), kwargs
    return target, args, kwargs
