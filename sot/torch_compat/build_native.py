"""Runs the C++ compiler for ``native.py``. As a program it imports neither torch nor SOT: ``build_native.py ORDER``.

An order is {"command": [...], "path": ...}: the compiler's command line but for its output, and where that goes.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

LONGEST = 600       # seconds
RETRY = 24 * 3600


def build(order: dict[str, Any]) -> None:
    """Build the library, or write a file beside it that says why it failed. A second process finds the result of the
    first.

    A checksum is written first, so a library without one is incomplete.
    """
    path = Path(order["path"])
    with import_module("filelock").FileLock(str(path.with_suffix(".lock"))):
        if is_done(path):
            return
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            if said := _compile([*order["command"], "-o", str(made)]):
                path.with_suffix(".failed").write_text(json.dumps({"PATH": _search_path(), "said": said}))
                return
            made.chmod(0o700)
            path.with_suffix(".sha256").write_text(_sum_of(made))
            os.replace(made, path)


def is_done(path: Path) -> bool:
    """Whether the library exists in the compiled form, or its compilation has failed."""
    try:
        return path.with_suffix(".sha256").read_text() == _sum_of(path)
    except OSError:
        return bool(complaint(path))


def complaint(path: Path) -> str:
    """The compiler's message, if it has recently failed with this PATH. A later process tries again."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        file = path.with_suffix(".failed")
        failed = json.loads(file.read_text())
        if not path.exists() and failed["PATH"] == _search_path() and time.time() - file.stat().st_mtime < RETRY:
            return str(failed["said"])
    return ""


def _search_path() -> str:
    """Where the compiler looks for the linker."""
    return os.environ.get("PATH", os.defpath)


def _compile(command: list[str]) -> str:
    """The error in a few lines; empty if there is none."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST,
                              errors="replace", env={**os.environ, "PATH": _search_path()})
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{command[0]}: {e}"
    errors = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
    return "" if done.returncode == 0 else "\n".join(errors[:3]) or f"{command[0]} failed"


def _sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    if os.fork():       # the process that started this one continues
        os._exit(0)
    with contextlib.suppress(OSError):
        os.nice(10)
    build(json.loads(sys.argv[1]))
