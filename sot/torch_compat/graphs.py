"""What graph passes use of torch: rules of type promotion, decompositions, expressions of symbolic numbers."""
from __future__ import annotations

import linecache
import operator
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table, get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.graph_module import _loader
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Mod, PowByNatural, PythonMod

__all__ = ["POOL_WITH_CELLS", "POSITIONS_OF_CELLS", "PROMOTION", "as_printed", "assumptions_of", "elementwise_dtypes",
           "expression", "is_fake", "is_maximum", "is_power", "is_quotient", "is_remainder", "lets_go_of_source",
           "lines_of", "make_constants_real", "node_at", "operators_of_pools", "running", "storage_of",
           "torch_decompositions", "unset_fake_temporarily"]

LINE = re.compile(r'  File "(.*)", line (\d+), in (.*)\n')
# Operators that torch can take apart, and that its core set of decompositions leaves whole.
COMPOSITE = ("adaptive_max_pool2d", "adaptive_max_pool3d", "_adaptive_avg_pool2d_backward", "dist", "elu", "empty_like",
             "flip", "gelu", "hardtanh", "lcm", "leaky_relu", "linalg_vector_norm", "_log_softmax", "_softmax",
             "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "batch_norm_backward",
             "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_with_update_functional",
             "_batch_norm_no_update", "native_batch_norm", "native_batch_norm_backward", "native_group_norm",
             "native_layer_norm", "nll_loss2d_backward", "permute_copy", "tril_indices", "triu_indices",
             "hann_window", "mish", "softplus", "silu", "glu", "prelu", "celu", "selu", "smooth_l1_loss",
             "smooth_l1_loss_backward", "mse_loss", "nll_loss_forward", "nll_loss_backward", "log_sigmoid_forward")

# Operators of inductor: the maximum of a window with its cell, a number of one byte, and the positions of such cells.
POOL_WITH_CELLS, POSITIONS_OF_CELLS = "_low_memory_max_pool_with_offsets", "_low_memory_max_pool_offsets_to_indices"


def operators_of_pools() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The two operators of pools with cells, if torch has them: AOTAutograd imports them. torch lets positions be
    computed again in a backward graph.
    """
    prims = torch.ops.prims
    names = POOL_WITH_CELLS, POSITIONS_OF_CELLS
    return (getattr(prims, names[0]), getattr(prims, names[1])) if all(hasattr(prims, n) for n in names) else None


def torch_decompositions() -> dict[Any, Any]:
    """torch's rules that write an operator in terms of simpler ones, by overload."""
    packets = [getattr(torch.ops.aten, name) for name in COMPOSITE if hasattr(torch.ops.aten, name)]
    extra = get_decompositions([p for p in packets if any(getattr(p, o) in decomposition_table for o in p.overloads())])
    return {**core_aten_decompositions(), **extra}


def make_constants_real(gm: GraphModule) -> None:
    """Replace constants that tracing made (the list in ``x[[0, 1]]``), which are fake tensors with known values."""
    for node in gm.graph.find_nodes(op="get_attr"):
        value = getattr(gm, str(node.target), None)
        if isinstance(value, FakeTensor) and value.constant is not None:
            setattr(gm, str(node.target), value.constant)


def as_printed(function: Callable[..., Any], args: tuple) -> Callable[..., Any]:
    """The function for a node: torch.fx prints ``(-2) ** x`` as ``-2 ** x``, which is another number. ``pow`` is the
    same function, and is printed as a call.
    """
    return pow if function is operator.pow and repr(args[0]).startswith("-") else function


def lets_go_of_source(gm: GraphModule) -> GraphModule:
    """Free the text of a graph module's ``forward`` with the module. torch keeps it for tracebacks for ever."""
    weakref.finalize(gm, _forget_source, gm.forward.__code__.co_filename).atexit = False
    return gm


def _forget_source(file: str) -> None:
    getattr(_loader, "eval_cache", {}).pop(file, None)
    linecache.cache.pop(file, None)


def node_at(frame: FrameType, line: int) -> Node | None:
    """The node of a graph that a frame executes at a line; None for a frame that is no graph's."""
    gm = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
    if not isinstance(gm, GraphModule) or frame.f_code is not type(gm).forward.__code__:
        return None
    index = (getattr(gm, "_lineno_map", None) or {}).get(line - getattr(gm, "_prologue_start", 0))
    nodes = [*gm.graph.nodes]
    return nodes[index] if index is not None and index < len(nodes) else None


def lines_of(node: Node) -> list[tuple[str, str, str]]:
    """File, line and name of the program's frames that led to a node, outermost first."""
    return LINE.findall(node.meta.get("stack_trace") or "")


@contextmanager
def running(mode: FakeTensorMode) -> Iterator[None]:
    """Run operations on fake tensors. Decompose them where torch can, because that keeps symbolic sizes symbolic."""
    with mode, enable_python_dispatcher():
        yield


def expression(number: Any) -> Any:
    """A symbolic number's expression, which compares without assuming anything; any other value as it is."""
    return number.node.expr if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) else number


def is_quotient(expr: Any) -> bool:
    """Whether a sympy expression is a quotient rounded down. A ``CleanDiv`` is known to be whole."""
    return isinstance(expr, FloorDiv | CleanDiv)


def is_power(expr: Any) -> bool:
    """Whether it is a power."""
    return bool(expr.is_Pow) or isinstance(expr, PowByNatural)


def is_maximum(expr: Any) -> bool:
    """Whether it is the largest of its arguments."""
    return isinstance(expr, Max)


def is_remainder(expr: Any) -> bool:
    """Whether it is a remainder of numbers that are not negative, for which all kinds of remainders are the same."""
    return isinstance(expr, Mod | PythonMod)


def assumptions_of(gm: GraphModule) -> int:
    """The number of assumptions that torch has made about the symbolic sizes of a graph."""
    values = [n for node in gm.graph.find_nodes(op="placeholder") for v in [node.meta.get("val")]
              for n in ([v] if not isinstance(v, torch.Tensor) else [*v.shape, *v.stride()])]
    known = next((n for n in values if isinstance(n, torch.SymInt)), None)
    return len(known.node.shape_env.guards) if known is not None else 0


def storage_of(tensor: torch.Tensor) -> int:
    """A number that is the same for tensors with the same storage."""
    return tensor.untyped_storage()._cdata


def is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def is_lazy(value: torch.Tensor) -> bool:
    """Whether the memory of a tensor does not hold its elements: they are negated where they are read, or zeros that
    have no memory.
    """
    return value.is_neg() or value._is_zerotensor()
