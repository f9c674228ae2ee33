"""Random numbers from a seed and a position: Philox 4x32-10 (Salmon et al., 2011), as Triton computes it, in NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
SCALE = np.float32(4.6566127342e-10)        # the largest factor with which all results are below one


def words(seed: Any, position: Any) -> tuple[Any, Any, Any, Any]:
    """Four words of 32 bits for each position, in the lower halves of 64."""
    position, seed = np.asarray(position, np.int64).view(np.uint64), np.asarray(seed, np.int64).view(np.uint64)
    c0, c1, c2, c3 = position & LOW, position >> HALF, np.uint64(0), np.uint64(0)
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(10):
        a, b = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (b >> HALF) ^ c1 ^ k0, b & LOW, (a >> HALF) ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def uniform(seed: Any, position: Any) -> Any:
    """Numbers in [0, 1), of the first word."""
    with np.errstate(over="ignore"):
        first = np.asarray(words(seed, position)[0]).astype(np.uint32).view(np.int32)
    return np.where(first < 0, -first - 1, first).astype(np.float32) * SCALE
