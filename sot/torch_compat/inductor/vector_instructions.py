"""Vector instructions of the processor that the C++ compiler knows, found in milliseconds.

Inductor compiles a program with torch's headers for that and loads it in another process: four CPU seconds before a
first kernel, and half a second in each later process (``torch._inductor.cpu_vec_isa``). The kernels that follow have
the same headers and flags.
"""
from __future__ import annotations

import contextlib
import functools
import platform
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Any

import torch

from sot.torch_compat.compilers import imported

AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw")


def taken_as_known() -> AbstractContextManager[Any]:
    """A context in which Inductor uses the vector instructions of this processor without its own test. The test is
    left to Inductor where this torch does not use all of them itself, where the compiler refuses them, and where the
    user has decided (``torch._inductor.config.cpp.vec_isa_ok``).
    """
    config = imported("torch._inductor.config")
    if config.cpp.vec_isa_ok is not None or not _used_by_torch():
        return contextlib.nullcontext()
    try:
        compiler = imported("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception:       # there is none: Inductor says so, if it needs one
        return contextlib.nullcontext()
    flags = AVX2 + AVX512 if torch.cpu._is_avx512_supported() else AVX2
    return config.patch({"cpp.vec_isa_ok": True}) if _accepts(compiler, flags) else contextlib.nullcontext()


def _used_by_torch() -> bool:
    if sys.platform != "linux" or platform.machine() != "x86_64" or not torch.cpu._is_avx2_supported():
        return False
    return torch.backends.cpu.get_cpu_capability() == ("AVX512" if torch.cpu._is_avx512_supported() else "AVX2")


@functools.cache
def _accepts(compiler: str, flags: tuple[str, ...]) -> bool:
    try:
        command = [*compiler.split(), *flags, "-E", "-x", "c++", "/dev/null"]
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
