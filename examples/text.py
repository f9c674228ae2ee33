"""A byte-level tokenizer that needs no download, and some text to use it on.

A byte is its value plus the number of special tokens; any UTF-8 text goes there and back.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

PAD, CLS, SEP, MASK = range(4)
SPECIALS = 4
IGNORED = -100  # the label that a loss skips

# From "The Origin of Species", Charles Darwin, 1859.
PARAGRAPH = (
    "It is interesting to contemplate an entangled bank, clothed with many plants of many kinds, with birds "
    "singing on the bushes, with various insects flitting about, and with worms crawling through the damp "
    "earth.",
    "There is grandeur in this view of life, with its several powers, having been originally breathed into "
    "a few forms or into one.",
)


def encode(text: str) -> list[int]:
    return [CLS, *(byte + SPECIALS for byte in text.encode()), SEP]


def decode(tokens: list[int]) -> str:
    return bytes(token - SPECIALS for token in tokens if token >= SPECIALS).decode(errors="replace")


def batch(sentences: tuple[str, ...] = PARAGRAPH, length: int = 128) -> dict[str, Tensor]:
    """Token ids cut or padded to one length, and the mask that says which of them are padding."""
    rows = [encode(sentence)[:length] for sentence in sentences]
    ids = torch.tensor([row + [PAD] * (length - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def masked_batch(
    sentences: tuple[str, ...] = PARAGRAPH, length: int = 128, share: float = 0.15, seed: int = 0
) -> dict[str, Tensor]:
    """A batch for masked language modelling: some bytes hidden, and they are the labels."""
    inputs, draw = batch(sentences, length), random.Random(seed)
    ids = inputs["input_ids"]
    hidden = torch.tensor([[draw.random() < share for _ in row] for row in ids]) & (ids >= SPECIALS)
    return inputs | {
        "input_ids": ids.masked_fill(hidden, MASK),
        "labels": ids.masked_fill(~hidden, IGNORED),
    }
