"""The nodes of ``nn.TransformerEncoder`` on padded sequences, where PyTorch computes on nested tensors without padding.

torch has no fakes of these. What traces a node, and capture itself, gets the same computed with the padding: the rows
of padding are zero at the end, as PyTorch makes them, if the padding of all sequences is on the right.
"""
from __future__ import annotations

from typing import Any

import torch

PLAIN = torch.Tensor, torch.nn.Parameter


def is_padded_right(x: torch.Tensor, keep: torch.Tensor) -> bool:
    """Whether the graph may go on. What traces it computes both."""
    return type(x) not in PLAIN or torch._nested_tensor_from_mask_left_aligned(x, keep)


def without_padding(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """``keep`` is true for the elements of the sequences (batch, length)."""
    return x.clone() if type(x) not in PLAIN else torch._nested_tensor_from_mask(x, keep, mask_check=False)


def encoder_layer(x: torch.Tensor, keep: torch.Tensor, *more: Any) -> torch.Tensor:
    """``torch._transformer_encoder_layer_fwd``, whose last two arguments are a mask and its kind."""
    if type(x) in PLAIN:
        return torch._transformer_encoder_layer_fwd(x, *more)
    return torch._transformer_encoder_layer_fwd(x, *more[:-2], keep.logical_not(), 1)    # type: ignore[call-arg]


def with_padding(x: torch.Tensor, keep: torch.Tensor, size: Any) -> torch.Tensor:
    if type(x) in PLAIN:
        return x.to_padded_tensor(0.0, size)
    is_right = (keep[:, 1:] <= keep[:, :-1]).all()
    return torch.where((keep | ~is_right)[..., None], x, 0.0).reshape(size)


NODES = is_padded_right, without_padding, encoder_layer, with_padding
