"""What is kept on disk between processes: files, each beside a JSON file that says what it is.

    SOT_CACHE_DIR/kernels/<key>.py       a generated module; the user may read it
    SOT_CACHE_DIR/kernels/<key>.cubin    a compiled kernel
    SOT_CACHE_DIR/kernels/<key>.tuning   the block sizes that were measured to be the fastest
    SOT_CACHE_DIR/kernels/<key>.json     of each: its checksum, what made it, what is known of it

The folder is the user's alone. Files are written under another name and renamed, so that a reader finds all or
nothing; what does not fit its checksum is made again. No pickles: nothing in it is run but the modules and kernels.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

LIMIT = 512 * 2**20     # bytes; the entries that were not used for longest go first
FORMAT = 2
SUFFIXES = {".py": "module", ".cubin": "binary", ".tuning": "tuning"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file in the cache: of which kind, and what it holds."""

    key: str
    kind: str
    title: str
    size: int
    used: float


def root() -> Path:
    """SOT_CACHE_DIR, or the user's cache folder."""
    chosen = os.environ.get("SOT_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("sot")


def folder() -> Path:
    """Where modules are; made, for this user alone, when it is not there.

    Raises:
        PermissionError: it belongs to somebody else, who could put code into it.
    """
    path = root() / "kernels"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(f"the cache folder {path} belongs to another user; set SOT_CACHE_DIR to one of yours")
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


@functools.cache
def compiler_version() -> str:
    """Changes with the code that makes modules."""
    here = Path(__file__).resolve().parent
    files = sorted([*here.glob("*.py"), *(here.parent.parent / "graph").rglob("*.py")])
    return _checksum(b"".join(file.read_bytes() for file in files))


def key_of(*parts: str) -> str:
    """A name for what is made from these texts, by this version of the compiler."""
    parts = (compiler_version(), *parts)
    return hashlib.sha256("\0".join((str(FORMAT), *parts)).encode()).hexdigest()[:32]


def find(key: str, suffix: str = ".py") -> Path | None:
    """The file of this key, if it is there and unharmed."""
    path = folder() / f"{key}{suffix}"
    try:
        facts = about(path)
        if facts.pop("sha256") != _sum_of(path.read_bytes(), facts) or facts["format"] != FORMAT:
            return None
        os.utime(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return path


def about(path: Path) -> dict[str, Any]:
    """What is known of a file that was found."""
    return json.loads(path.with_suffix(".json").read_text())


def add(key: str, content: str | bytes, title: str, suffix: str = ".py", **facts: Any) -> Path:
    """Write a file; its path.

    Arguments:
        facts: anything that JSON holds, for ``about``.
    """
    path = folder() / f"{key}{suffix}"
    data = content.encode() if isinstance(content, str) else content
    facts = {"format": FORMAT, "title": title, **facts}
    _write(path, data)
    _write(path.with_suffix(".json"), json.dumps({**facts, "sha256": _sum_of(data, facts)}).encode())
    shrink()
    return path


def entries() -> Iterator[Entry]:
    """What is there, the most recently used first."""
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
    """Remove everything; how many files there were."""
    with _lock():
        found = _files()
        for path in (*found, *folder().glob("*.json"), *folder().glob("*.new")):
            path.unlink(missing_ok=True)
    return len(found)


def shrink(limit: int = LIMIT) -> None:
    """Remove the files that were not used for longest, until the others are within the limit."""
    if sum(_size(path) for path in _files()) <= limit:
        return
    with _lock():
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
    """In bytes; none if another process has just removed it."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _lock() -> FileLock:
    return FileLock(str(folder() / "lock"))


def _write(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(suffix=".new", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(name, path)


def _sum_of(data: bytes, facts: dict[str, Any]) -> str:
    return _checksum(data + json.dumps(facts, sort_keys=True).encode())


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
