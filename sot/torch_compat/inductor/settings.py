"""What a graph compiled by Inductor depends on besides the graph: versions, the processor, torch's state, settings.

Nothing of this imports Inductor. A configuration that is not imported is as the environment has it, so a key has the
environment and what a program has changed.
"""
from __future__ import annotations

import functools
import os
import platform
import sys
import tempfile
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from sot.torch_compat.global_state import FLAG_READERS, FLAGS_READ, NO_MODES

INDUCTOR, FUNCTORCH, DYNAMO = CONFIGURATIONS = (
    "torch._inductor.config", "torch._functorch.config", "torch._dynamo.config")
# Variables that torch and its compilers read when they are imported or when they compile.
PREFIXES = ("TORCH", "PYTORCH", "INDUCTOR", "AOT", "ATEN", "CXX", "OMP_", "MKL_", "ONEDNN_", "DNNL_", "TRITON_", "TF32",
            "KMP_", "GOMP_")
OF_A_RUN = ("TORCHELASTIC_",)       # names of files and runs, new for each
WATCHING = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG")     # somebody wants to see the compilation
# torch registers such kernels itself, in Python.
OWN_KERNELS = ("/Meta", "/CUDA", "/MPS", "/to_dense/FuncTorchDynamicLayerFrontMode", "/to_dense/PythonTLSSnapshot")
PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)


def keeps_graphs() -> bool:
    """Whether the user has left torch's caches of compiled graphs on. Before torch's compilers are imported, that is
    not known. Then no graph has been kept with these settings if they turn the caches off.
    """
    inductor, functorch = (sys.modules.get(name) for name in (INDUCTOR, FUNCTORCH))
    return not any(os.environ.get(name) for name in WATCHING) and (inductor is None or bool(
        inductor.fx_graph_cache and not inductor.force_disable_caches and not inductor.trace.enabled)) and (
        functorch is None or bool(functorch.enable_autograd_cache))


def settings() -> str | None:
    """All of it, as a text; None if a setting is an object whose text does not say what it is, or if code of the
    program would take part in the compilation.
    """
    if has_code_of_program():
        return None
    flags = [(reader.__name__, *given, reader(*given)) for reader, *given in _readers()]
    einsum = torch.backends.opt_einsum
    try:
        return _written((machine(), flags, torch.get_num_threads(), variables(), changes(), einsum.is_available(),
                         einsum.enabled, einsum.strategy))
    except TypeError:
        return None


def has_code_of_program() -> bool:
    """Whether there is a mode, a transform, a hook on saved tensors, or a kernel that the program has registered."""
    return (any(read() != without for read, without in NO_MODES) or forward_ad._current_level >= 0
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            or any(name.startswith("aten/") and not name.endswith(OWN_KERNELS)
                   for name in torch.library._impls - _rules_of_vmap()))


def _rules_of_vmap() -> set[str]:
    """The decompositions that torch registers itself, at the first call of vmap of the process."""
    library = getattr(sys.modules.get("torch._functorch.predispatch"), "VMAP_DECOMPOSITIONS_LIB", None)
    return library._op_impls if library else set()


def variables() -> dict[str, str]:
    """The environment as far as it matters. torch sets the folder of its cache, if it is not set, to its default."""
    default = os.path.join(tempfile.gettempdir(), "torchinductor_")
    return {name: value for name, value in os.environ.items()
            if name.startswith(PREFIXES) and not name.startswith(OF_A_RUN)
            and not (name == "TORCHINDUCTOR_CACHE_DIR" and value.startswith(default))}


def changes() -> list[tuple[str, str, Any]]:
    """What the program has changed in configurations."""
    found = []
    for name in CONFIGURATIONS:
        module: Any = sys.modules.get(name)
        for key, entry in module._config.items() if module else ():
            override = entry.user_override      # a context variable in newer versions
            value = override.get() if isinstance(override, ContextVar) else override
            if value is not entry.default and type(value) is not object and value != _initial(entry):
                found.append((name, key, value))
    return found


def _initial(entry: Any) -> Any:
    """The value of a setting that no program has changed."""
    forced, default = entry.env_value_force, entry.env_value_default
    return forced if type(forced) is not object else default if type(default) is not object else entry.default


def _written(value: Any) -> str:
    """A text that is the same in each process: sets and dicts in order. Raises TypeError for other objects."""
    if type(value) is dict:
        return f"{{{', '.join(sorted(f'{_written(key)}: {_written(part)}' for key, part in value.items()))}}}"
    if type(value) in (set, frozenset):
        return f"{{{', '.join(sorted(map(_written, value)))}}}"
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_written, value))}]"
    if type(value) not in PLAIN and type(value).__module__ not in ("torch", "torch._C", "torch.nn.attention"):
        raise TypeError(type(value))
    return f"{type(value).__name__} {value!r}"


PRECISION = getattr(torch._C, "_get_fp32_precision_getter", None)


def _readers() -> list[tuple]:
    """Functions that read a state of torch, each with its arguments."""
    return [*((reader,) for reader in FLAG_READERS.values() if reader is not PRECISION),
            *((reader,) for reader in FLAGS_READ),
            *((PRECISION, backend, kind) for backend in ("generic", "mkldnn", "cuda")
              for kind in ("all", "conv", "rnn", "matmul") if PRECISION and (backend != "generic" or kind == "all")),
            (torch.is_grad_enabled,), (torch.is_inference_mode_enabled,), (torch.get_default_dtype,),
            (torch.are_deterministic_algorithms_enabled,), (torch.is_deterministic_algorithms_warn_only_enabled,),
            (torch.get_float32_matmul_precision,), (torch.is_autocast_cache_enabled,),
            *((read, device) for read in (torch.is_autocast_enabled, torch.get_autocast_dtype)
              for device in ("cpu", "cuda"))]


@functools.cache
def machine() -> tuple[Any, ...]:
    """Versions, and the processor with its features, for which kernels are compiled."""
    version: Any = torch.version
    cpu = Path("/proc/cpuinfo")
    features = [line for line in cpu.read_text().splitlines() if line.startswith(("flags", "Features"))][:1] if (
        cpu.exists()) else [platform.processor()]
    return (torch.__version__ + "", version.git_version, sys.version, sys.platform, platform.machine(), features,
            torch.backends.cpu.get_cpu_capability(), str(Path(torch.__file__).parent))
