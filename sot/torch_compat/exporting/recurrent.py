"""Recurrent layers of any length: while a model is exported, torch sees only the shapes of their results.

torch's own Python code for LSTM, GRU and RNN on fake tensors unrolls them over the steps, so their length becomes a
constant. The operators themselves take any length, and an exported program may call them.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C import DispatchKey

OPERATORS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
PACKED = torch.ops.aten._pack_padded_sequence.default, torch.ops.aten._pad_packed_sequence.default
KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def results(input: torch.Tensor, hidden: Sequence[torch.Tensor], params: Sequence[torch.Tensor], biases: bool,
            layers: int, bidirectional: bool, batch_first: bool) -> tuple[torch.Tensor, ...]:
    """Tensors of the shapes of the output and of the last states."""
    width = hidden[0].shape[-1] * (2 if bidirectional else 1)
    shape = [*input.shape[:-1], width]
    if batch_first:     # as the kernel leaves it: steps first in memory
        output = input.new_empty([shape[1], shape[0], width]).transpose(0, 1)
    else:
        output = input.new_empty(shape)
    found = (output, *(state.new_empty(state.shape) for state in hidden))
    if torch.is_grad_enabled() and any(t.requires_grad for t in (input, *hidden, *params)):
        one = torch.ones((), dtype=input.dtype, device=input.device, requires_grad=True)
        found = tuple(t * one for t in found)
    return found


def lstm(input: torch.Tensor, hidden: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool,
         bidirectional: bool, batch_first: bool) -> tuple[torch.Tensor, ...]:
    return results(input, hidden, params, biases, layers, bidirectional, batch_first)


def recurrent(input: torch.Tensor, hidden: torch.Tensor, params: Any, biases: bool, layers: int, dropout: float,
              train: bool, bidirectional: bool, batch_first: bool) -> tuple[torch.Tensor, ...]:
    return results(input, [hidden], params, biases, layers, bidirectional, batch_first)


def lstm_of_packed(data: torch.Tensor, batch_sizes: torch.Tensor, hidden: Any, params: Any, biases: bool, layers: int,
                   dropout: float, train: bool, bidirectional: bool) -> tuple[torch.Tensor, ...]:
    return results(data, hidden, params, biases, layers, bidirectional, False)


def recurrent_of_packed(data: torch.Tensor, batch_sizes: torch.Tensor, hidden: torch.Tensor, *rest: Any
                        ) -> tuple[torch.Tensor, ...]:
    return lstm_of_packed(data, batch_sizes, [hidden], *rest)


@contextlib.contextmanager
def any_length(packed: Callable[..., Any], padded: Callable[..., Any]) -> Iterator[None]:
    """While this is entered, fake recurrent layers have the shapes of results, and no steps. ``packed`` and ``padded``
    give those of the functions that pack sequences, and that undo it.
    """
    shapes: dict[Any, Callable[..., Any]] = dict(zip(PACKED, (packed, padded), strict=True))
    for name in OPERATORS:
        operators: Any = getattr(torch.ops.aten, name)
        is_lstm = name == "lstm"
        shapes[operators.input] = lstm if is_lstm else recurrent
        shapes[operators.data] = lstm_of_packed if is_lstm else recurrent_of_packed
    before: list[tuple[Any, dict]] = []
    try:
        for operator, found in shapes.items():
            before.append((operator, dict(operator.py_kernels)))
            operator.py_kernels.update(dict.fromkeys(KEYS, found))
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernels in before:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
