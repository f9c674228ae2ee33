"""Functions that torch has wrapped (excluded, compiled, scripted), and the answer of ``is_compiling()``."""
from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback as torch_compiles  # noqa: F401  None: not this thread
from torch._subclasses.fake_tensor import FakeTensor
from torch.jit import _state as jit_state
from torch.nn.init import _no_grad_trunc_normal_ as truncated_normal_  # noqa: F401
from torch.optim.adagrad import _fused_adagrad as fused_adagrad  # noqa: F401  the step in a kernel of its own,
from torch.optim.adagrad import _single_tensor_adagrad as single_adagrad  # noqa: F401  and in several
from torch.optim.adam import _fused_adam as fused_adam  # noqa: F401
from torch.optim.adam import _single_tensor_adam as single_adam  # noqa: F401
from torch.optim.asgd import _multi_tensor_asgd as multi_asgd
from torch.optim.asgd import _single_tensor_asgd as single_asgd
from torch.optim.optimizer import _get_value as value_of_counter  # noqa: F401  a number of a step, as it is computed with
from torch.optim.optimizer import _stack_if_compiling as stack_of_counters  # noqa: F401
from torch.optim.optimizer import _use_grad_for_differentiable
from torch.optim.radam import _multi_tensor_radam as multi_radam
from torch.optim.radam import _single_tensor_radam as single_radam
from torch.optim.rprop import _multi_tensor_rprop as multi_rprop
from torch.optim.rprop import _single_tensor_rprop as single_rprop
from torch.optim.sgd import _fused_sgd as fused_sgd  # noqa: F401
from torch.optim.sgd import _single_tensor_sgd as single_sgd  # noqa: F401

from sot.torch_compat.global_state import in_mode

# Steps that branch on numbers of their state, and have a form for CUDA graphs that does not.
CAPTURABLE = (single_radam, multi_radam, single_asgd, multi_asgd, single_rprop, multi_rprop)
# Of the nodes of a torch.fx graph. Where torch has no such class, the iterator is Python code.
NODE_ITERATORS = tuple(kind for kind in (getattr(torch._C, "_NodeIter", None),) if kind is not None)
# Functions of torch.fx that apply a function inside of arguments. Where torch has no such function, it is Python code.
MAP_ARGUMENTS = tuple(getattr(torch._C, name) for name in ("_fx_map_arg",) if hasattr(torch._C, name))
MAP_AGGREGATES = tuple(getattr(torch._C, name) for name in ("_fx_map_aggregate",) if hasattr(torch._C, name))
Future, fork, wait = torch._C.Future, torch._C.fork, torch._C.wait
scaler_step = torch.amp.GradScaler._maybe_opt_step


@functools.cache
def disabling_code() -> Any:
    """The code of torch's wrapper around functions that torch.compile must not compile."""
    return torch._disable_dynamo(in_mode).__code__


def is_left_to_python(function: Any) -> bool:
    """Whether torch, or a user with torch.compiler.disable, keeps the function from being compiled."""
    return function.__code__ is disabling_code() or bool(getattr(function, "_torchdynamo_disable", False))


def disabled_step(function: Any) -> Any:
    """The function of an optimizer inside torch's wrapper that keeps it from being compiled, or None."""
    of_optimizer = str(function.__module__).startswith("torch.optim.") and function.__code__ is disabling_code()
    return function.__wrapped__ if of_optimizer else None


def compiled_original(function: Any) -> Any:
    """The function inside a wrapper of torch.compile, or None."""
    if getattr(function, "_torchdynamo_disable", False) and not is_disabled_by_torch(function):
        return None
    return vars(function).get("_torchdynamo_orig_callable")


def is_disabled_by_torch(function: Any) -> bool:
    """Whether it is a function of an optimizer that torch.compile, once it is imported, excludes from compilation."""
    told = str(getattr(function, "_torchdynamo_disable_msg", None))
    return str(function.__module__).startswith("torch.optim.") and ("optimizer" in told)


def gradient_wrapper_code() -> Any:
    """The code of the wrapper around ``Optimizer.step``, which turns the recording of gradients on or off."""
    return _use_grad_for_differentiable(in_mode).__code__


PYBIND_METHOD = type(vars(torch.jit.ScriptFunction)["__call__"])


def scripted_original(function: Any) -> Any:
    """The Python function that torch.jit.script has compiled; None for a function of torch.jit.trace."""
    original = getattr(function, "_torchdynamo_inline", None)
    scripted = original is not None and jit_state._jit_caching_layer.get(original) == function.qualified_name
    return original if scripted else None


# torch's tests replace it by a Python function
_call = vars(torch.jit.ScriptFunction)["__call__"]
CALL_SCRIPT = getattr(_call, "__func__", _call)
_call_method = vars(torch._C.ScriptMethod)["__call__"]
CALL_METHOD_OF_SCRIPT = getattr(_call_method, "__func__", _call_method)
# Kinds of nodes of which a graph of fakes would not know what they did.
EFFECTS = frozenset({"prim::Print", "prim::SetAttr", "prim::CallMethod", "prim::CallFunction", "prim::fork",
                     "prim::PythonOp", "aten::warn", "aten::manual_seed", "aten::set_grad_enabled",
                     "aten::batch_norm", "aten::instance_norm"})      # these two change statistics that it holds


def nodes_of(nodes: Any) -> Iterator[Any]:
    """Nodes, and those inside of their blocks."""
    for node in nodes:
        yield node
        for block in node.blocks():
            yield from nodes_of(block.nodes())


def effect_of(script: Any) -> str:
    """What keeps a function from being one node; "" if nothing does. It may change a tensor that it holds itself."""
    for node in nodes_of(script.inlined_graph.nodes()):
        held = [value.node().kind() for value in node.inputs()][:1] in (["prim::Constant"], ["prim::GetAttr"])
        if node.kind() in EFFECTS or node.kind().endswith("_") and not node.kind().endswith("__") and held:
            return str(node.kind())
    return ""


@contextlib.contextmanager
def as_on_fakes(args: tuple) -> Iterator[None]:
    """While this is entered, a script may run on fake tensors: with the tensors that it holds, and without learning
    from the fakes.
    """
    mode = next((arg.fake_mode for arg in args if isinstance(arg, FakeTensor)), None)
    if mode is None:
        yield
        return
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with torch.jit.optimized_execution(False):
            yield
    finally:
        mode.allow_non_fake_inputs = before


# ---- torch.compiler.is_compiling() and its relatives
COMPILING_FLAGS = tuple(f for f in (
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
    getattr(torch._utils, "is_compiling", None)) if f is not None)

# Plain Python returns False, and capture must give Python's results. So the answer is False, except for these
# libraries.
# They are known to compute the same if they are told True, in a way that captures better. Other libraries use the
# answer to omit work: FSDP does not allocate its storages, DDP does not set itself up.
# By the dotted name of a package or module; the longest name that fits counts.
TOLD = {
    "torch.nn": True,                       # skips warnings of eager mode
    "torch.nn.modules.module": False,       # leaves out hooks with always_call=True when a call raises
    "torch.nn.modules.transformer": False,  # gives different values for padding
    "torch.nn.parallel": False,             # DistributedDataParallel does not set itself up
    "torch.optim": True,                    # reads no scalars of tensors, does not group tensors by device
    "torch._functorch": True,               # does not copy the attributes of wrapped functions
    "torch._higher_order_ops": True,        # does not compile what is being captured
    "torch.export": True,                   # runs a graph instead of interpreting its nodes
    "transformers": True,                   # masks are made without looking for padding, checks are assertions
    "transformers.models.csm": False,               # keeps position ids that it says it ignores
    "transformers.models.qwen2_audio": False,       # does not merge audio features as older processors want it
    "transformers.models.wav2vec2_bert": False,     # ranks of FSDP and DeepSpeed skip layers on their own
    "transformers.utils.deprecation": False,        # does not warn
}
QUESTION = re.compile(r"is_\w*(compiling|tracing)")     # a library's own function that passes the question on


def is_question(function: str) -> bool:
    """Whether this is the name of a function that only returns whether torch.compile is running."""
    return QUESTION.fullmatch(function) is not None


def is_told(module: str, otherwise: bool = False) -> bool:
    """Whether code of a module, by its dotted name, is told that it is being compiled. ``otherwise`` is the
    default.
    """
    while module:
        if module in TOLD:
            return TOLD[module]
        module = module.rpartition(".")[0]
    return otherwise
