"""The cache on disk that processes share: files, each with a JSON file that describes it.

    SOT_CACHE_DIR/kernels/<key>.py       a generated module, which the user may read
    SOT_CACHE_DIR/kernels/<key>.cubin    a compiled kernel
    SOT_CACHE_DIR/kernels/<key>.tuning   the block sizes that were measured as the fastest
    SOT_CACHE_DIR/kernels/<key>.json     for each file: its checksum, its maker, its metadata

Only the user may access the folder. A file is written under another name and then renamed, so a reader finds all of it
or nothing. A file that does not match its checksum, or that another user has written or can write, is made again. There
are no pickles: only modules and kernels are run. If the folder cannot be used (read-only, a full disk, another user's),
one warning says so, and the process writes to a folder of its own.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sot.support.cache_folder import belongs_to_user, lock, own_folder, private_folder, write
from sot.support.own_code import PACKAGE

LIMIT = 512 * 2**20     # bytes; the least recently used entries are removed first
SCANNED_AFTER = 64      # additions of a process, the first included: a scan asks for the size of each file
FORMAT = 2
SUFFIXES = {".py": "module", ".cubin": "binary", ".tuning": "tuning"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file in the cache: its kind, and its content."""

    key: str
    kind: str
    title: str
    size: int
    used: float


def folder() -> Path:
    """The folder of the cache. Raises PermissionError if it belongs to another user."""
    return private_folder("kernels")


additions = itertools.count()
places: list[Callable[[], Path]] = [folder]


@functools.cache
def compiler_version() -> str:
    """A version that changes with the code that makes modules."""
    folders = (PACKAGE / "backends" / "triton", PACKAGE / "graph", PACKAGE / "torch_compat")
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return _checksum(b"".join(file.read_bytes() for file in files))


def key_of(*parts: str) -> str:
    """The key for a file made from these texts by this version of the compiler."""
    parts = (compiler_version(), *parts)
    return hashlib.sha256("\0".join((str(FORMAT), *parts)).encode()).hexdigest()[:32]


def find(key: str, suffix: str = ".py") -> Path | None:
    """The file of this key, if it exists and is undamaged."""
    for place in places:
        with contextlib.suppress(OSError):
            path = place() / f"{key}{suffix}"
            if _is_whole(path):
                with contextlib.suppress(OSError):      # a read-only folder
                    os.utime(path)
                return path
    return None


def _is_whole(path: Path) -> bool:
    """Whether a file and its metadata are this user's, and match each other."""
    try:
        facts = about(path)
        return (belongs_to_user(path) and belongs_to_user(path.with_suffix(".json")) and facts["format"] == FORMAT
                and facts.pop("sha256") == _sum_of(path.read_bytes(), facts))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def about(path: Path) -> dict[str, Any]:
    """The metadata of a file that was found."""
    return json.loads(path.with_suffix(".json").read_text())


def add(key: str, content: str | bytes, title: str, suffix: str = ".py", **facts: Any) -> Path:
    """Write a file. Returns its path.

    Arguments:
        facts: values that JSON supports, for ``about``.
    """
    data = content.encode() if isinstance(content, str) else content
    facts = {"format": FORMAT, "title": title, **facts}
    facts["sha256"] = _sum_of(data, facts)
    try:
        path = _add(folder() / f"{key}{suffix}", data, facts)
        if next(additions) % SCANNED_AFTER == 0:
            shrink()
    except OSError as error:
        _tell(str(error))
        if own_folder not in places:
            places.append(own_folder)
        path = _add(own_folder() / f"{key}{suffix}", data, facts)
    return path


def _add(path: Path, data: bytes, facts: dict[str, Any]) -> Path:
    write(path, data)
    write(path.with_suffix(".json"), json.dumps(facts).encode())
    return path


@functools.cache
def _tell(error: str) -> None:
    """Warn once that other processes will not find what this one compiles."""
    with contextlib.suppress(RuntimeWarning):       # a program may have turned this warning into an error
        warnings.warn(f"SOT cannot write to its cache, so each process compiles again: {error}", RuntimeWarning,
                      stacklevel=2)


def entries() -> Iterator[Entry]:
    """All entries, the most recently used first."""
    found = []
    for path in _files():
        try:
            title, status = about(path).get("title", ""), path.stat()
        except (OSError, ValueError, AttributeError):
            continue
        found.append(Entry(path.stem, SUFFIXES[path.suffix], str(title), status.st_size, status.st_mtime))
    return iter(sorted(found, key=lambda e: -e.used))


def _files() -> list[Path]:
    return [path for path in folder().iterdir() if path.suffix in SUFFIXES]


def clear() -> int:
    """Remove all files. Returns their number."""
    with lock(folder() / "lock"):
        found = _files()
        for path in (*found, *folder().glob("*.json"), *folder().glob("*.new")):
            path.unlink(missing_ok=True)
    return len(found)


def shrink(limit: int = LIMIT) -> None:
    """Remove the least recently used files until the others are within the limit."""
    if sum(_size(path) for path in _files()) <= limit:
        return
    with lock(folder() / "lock"):
        total = 0
        for path in sorted(_files(), key=lambda p: -_used(p)):
            total += _size(path)
            if total > limit:
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)
        for left in folder().glob("*.new"):
            if _used(left) < time.time() - 3600:
                left.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """The size in bytes; 0 if another process has just removed it."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _sum_of(data: bytes, facts: dict[str, Any]) -> str:
    return _checksum(data + json.dumps(facts, sort_keys=True).encode())


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
