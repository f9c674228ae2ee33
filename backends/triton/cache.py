"""What is kept on disk between processes: generated modules, each beside a JSON file that says what it is.

    SOT_CACHE_DIR/kernels/<key>.py      the source; the user may read it
    SOT_CACHE_DIR/kernels/<key>.json    its checksum, and what made it

The folder is the user's alone. Files are written under another name and renamed, so that a reader finds all or
nothing; what does not fit its checksum is made again. No pickles: a cache can hold nothing but text to read.
"""
from __future__ import annotations

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
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Entry:
    """One module in the cache."""

    key: str
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


def find(key: str) -> Path | None:
    """The module of this key, if it is there and unharmed."""
    path = folder() / f"{key}.py"
    try:
        about = json.loads(path.with_suffix(".json").read_text())
        if about["sha256"] != _checksum(path.read_bytes()) or about["format"] != FORMAT:
            return None
        os.utime(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path


def about(path: Path) -> dict[str, Any]:
    """What is known of a module that was found."""
    return json.loads(path.with_suffix(".json").read_text())


def add(key: str, text: str, title: str, **facts: Any) -> Path:
    """Write a module; the path of its file.

    Arguments:
        facts: anything that JSON holds, for ``about``.
    """
    path = folder() / f"{key}.py"
    about = {"format": FORMAT, "sha256": _checksum(text.encode()), "title": title, **facts}
    _write(path, text)
    _write(path.with_suffix(".json"), json.dumps(about))
    shrink()
    return path


def entries() -> Iterator[Entry]:
    """What is there, the most recently used first."""
    found = []
    for path in folder().glob("*.py"):
        try:
            about = json.loads(path.with_suffix(".json").read_text())
            status = path.stat()
        except (OSError, ValueError):
            continue
        found.append(Entry(path.stem, str(about.get("title", "")), status.st_size, status.st_mtime))
    return iter(sorted(found, key=lambda e: -e.used))


def clear() -> int:
    """Remove everything; how many modules there were."""
    count = 0
    with _lock():
        for path in folder().iterdir():
            if path.suffix in (".py", ".json", ".new"):
                count += path.suffix == ".py"
                path.unlink(missing_ok=True)
    return count


def shrink(limit: int = LIMIT) -> None:
    """Remove the modules that were not used for longest, until the others are within the limit."""
    if sum(path.stat().st_size for path in folder().glob("*.py")) <= limit:
        return
    found = list(entries())
    with _lock():
        total = 0
        for entry in found:
            total += entry.size
            if total > limit:
                for suffix in (".py", ".json"):
                    (folder() / f"{entry.key}{suffix}").unlink(missing_ok=True)
        for left in folder().glob("*.new"):
            if left.stat().st_mtime < time.time() - 3600:
                left.unlink(missing_ok=True)


def _lock() -> FileLock:
    return FileLock(str(folder() / "lock"))


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(suffix=".new", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
