"""torch's database of operators, and those for which kernels are made."""
from __future__ import annotations

import functools
from pathlib import Path

from torch.testing._internal.common_methods_invocations import op_db

NAMES = (Path(__file__).parents[1] / "triton" / "kernel_sources" / "operators.txt").read_text().split()


@functools.cache
def operators() -> dict:
    """Every entry of the database by its name and variant."""
    return {f"{o.name}.{o.variant_test_name}" if o.variant_test_name else o.name: o for o in op_db}
