"""Compiles ``sot/csrc/torch/*.cpp`` against the installed torch, on first use, into the user's cache.

A wheel of SOT works with every torch, so it contains these files as source. The first process that needs one starts
the system's C++ compiler (``build_native.py``) in a separate process and continues without it. The next process loads
the result. The name of the result is a key of everything that it depends on, so another torch has another name.

    SOT_NATIVE=0    never compile
"""
from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sot.support.cache_folder import belongs_to_user, private_folder
from sot.support.own_code import PACKAGE
from sot.support.settings import is_on
from sot.torch_compat import build_native

SOURCES = PACKAGE / "csrc"
LIBRARIES = {"tensors": ["c10"], "tally": ["c10", "torch_cpu"]}
FLAGS = ["-shared", "-fPIC", "-std=c++20", "-O2", "-fno-strict-aliasing", "-fvisibility=hidden"]
ROOM = 4 * 2**20        # bytes; what the compiler writes is smaller
OFF = "SOT_NATIVE=0"
PENDING = "it is being compiled in the background, for the next process"

modules: dict[str, ModuleType | None] = {}
reasons: dict[str, str] = {}        # by name: why a module is missing


def module(name: str) -> ModuleType | None:
    """``sot._tensors`` or ``sot._tally``; None if it is missing. Then only ``build`` adds it in this process."""
    if name not in modules:
        modules[name] = _find(name)
    return modules[name]


def _find(name: str) -> ModuleType | None:
    if not is_on("SOT_NATIVE", True):
        reasons[name] = OFF
        return None
    try:
        path, order = _wanted(name)
        if not build_native.is_done(path):
            if complaint := _unwritable(path.parent):
                raise OSError(complaint)
            _start(order)
            reasons[name] = PENDING
            return None
        if complaint := build_native.complaint(path):
            raise OSError(complaint)
        if not belongs_to_user(path):
            raise PermissionError(f"{path} can be written by others")
        return _load(name, path)
    except (OSError, ImportError, subprocess.SubprocessError) as e:
        told = str(e) in reasons.values()
        reasons[name] = str(e)
        if told:
            return None
        with contextlib.suppress(RuntimeWarning):       # a program may have turned this warning into an error
            warnings.warn(f"SOT works more slowly, without what it compiles against torch (sot._{name}): {e}",
                          RuntimeWarning, stacklevel=3)
        return None


def _unwritable(folder: Path) -> str:
    """Why a compiler's result could not be stored in the folder, or "". Asked before, because compiling takes long."""
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written to; set SOT_CACHE_DIR to a folder of yours"
    if shutil.disk_usage(folder).free < ROOM:
        return f"no space is left on the disk of {folder}"
    return ""


def build(*names: str) -> None:
    """Compile missing modules, and wait for them. A module that cannot be compiled stays missing."""
    for name in names:
        if modules.get(name) is None and is_on("SOT_NATIVE", True):
            with contextlib.suppress(OSError):
                build_native.build(_wanted(name)[1])
            modules.pop(name, None)


def state() -> str:
    """How tensors are compared, in a few words for reports."""
    if module("tensors") is not None:
        return "native"
    return f"torch's own, slower ({reasons['tensors']})"


def _wanted(name: str) -> tuple[Path, dict[str, Any]]:
    """The path of the module, and how to build it. Raises OSError if that is impossible."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise FileNotFoundError("there is no C++ compiler (c++, g++, clang++; CXX names another)")
    at = Path(torch.__file__).parent
    library = (at / "lib" / "libc10.so").stat()
    includes = [SOURCES, at / "include", at / "include/torch/csrc/api/include", sysconfig.get_path("include")]
    source = SOURCES / "torch" / f"{name}.cpp"
    command = [*compiler.split(), *FLAGS, *(f"-I{folder}" for folder in includes), str(source), f"-L{at / 'lib'}",
               *(f"-l{lib}" for lib in LIBRARIES[name])]
    parts = (source.read_text(), (SOURCES / "guards" / "guards.h").read_text(), *command, sys.version,
             torch.__version__, torch.version.git_version, str(torch.compiled_with_cxx11_abi()),
             str((library.st_size, library.st_mtime_ns)))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = private_folder("native") / f"{name}-{key}.so"
    return path, {"command": command, "path": str(path)}


def _start(order: dict[str, Any]) -> None:
    """Run in a process that continues when this one ends, and that a Ctrl-C does not reach. Only its start is waited
    for.
    """
    subprocess.run([sys.executable, "-I", build_native.__file__, json.dumps(order)], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, check=True)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"sot._{name}", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


if __name__ == "__main__":
    build(*LIBRARIES)
