"""The cache folder: files that processes share. Only the user may access it, and readers find only complete files.

    SOT_CACHE_DIR/kernels/    modules and kernels (backends/triton/cache.py)
    SOT_CACHE_DIR/native/     what is compiled against the torch that is installed (sot/torch_compat/native.py)
"""
from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

if TYPE_CHECKING:
    from filelock import FileLock


def root() -> Path:
    """SOT_CACHE_DIR, or the user's cache folder."""
    chosen = os.environ.get("SOT_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("sot")


def private_folder(name: str) -> Path:
    """A folder of the cache; made, for this user alone, when it is not there.

    Raises:
        PermissionError: it belongs to another user, who could put code into it.
    """
    path = root() / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(f"the cache folder {path} belongs to another user; set SOT_CACHE_DIR to one of yours")
    if status.st_mode & 0o077:
        try:
            path.chmod(0o700)
        except OSError:         # on a read-only file system the mode does not matter
            if os.access(path, os.W_OK):
                raise
    return path


@functools.cache
def own_folder() -> Path:
    """A folder of this process alone, for what the cache cannot store. It is removed at exit."""
    path, process = tempfile.mkdtemp(prefix="sot-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:      # its children may still be reading
            shutil.rmtree(path, ignore_errors=True)
    atexit.register(remove)
    return Path(path)


def belongs_to_user(path: Path) -> bool:
    """Whether it is a file of this user that no other user can write to."""
    status = path.lstat()
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return own and not path.is_symlink() and not status.st_mode & 0o022


def lock(path: Path) -> FileLock:
    """The lock of a file that processes share."""
    made: FileLock = import_module("filelock").FileLock(str(path))     # late: only a process that writes needs it
    return made


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: under a temporary name that ends with ``.new``, then renamed."""
    handle, name = tempfile.mkstemp(suffix=".new", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:       # a full disk, an interrupt
        os.unlink(name)
        raise
