"""The origin of a file, and whether it has been changed.

``sot.save`` adds to the archive the versions that wrote it, the time, and a hash of every part. ``sot.load`` compares
the hashes before torch reads anything. The hashes reveal damage, but an edit can replace them as well.
``sot.load(path, digest=...)`` reveals an edit: the digest covers all hashes, and the user stores it when the file is
written.
"""
from __future__ import annotations

import hashlib
import json
import platform
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from sot.deploy.errors import LoadError
from sot.support.version import VERSION

HASHES = "extra/sot.sha256"


def provenance() -> dict[str, str]:
    """The versions that write a file, and the time."""
    return {"sot": VERSION, "torch": str(torch.__version__), "python": platform.python_version(),
            "written": datetime.now(UTC).isoformat(timespec="seconds")}


def hashes_of(archive: zipfile.ZipFile) -> dict[str, str]:
    """The hash of each part, without the part that holds the hashes."""
    found = {}
    for info in archive.infolist():
        name = info.filename.partition("/")[2]
        if name == HASHES:
            continue
        if name in found:
            raise LoadError(f"it has two parts with the name {name}")
        content = hashlib.sha256()
        with archive.open(info) as part:
            while block := part.read(1 << 20):
                content.update(block)
        found[name] = content.hexdigest()
    return found


def seal(file: Path) -> str:
    """Add the hashes to an archive. Returns the digest."""
    with zipfile.ZipFile(file, "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        text = json.dumps(hashes_of(archive), sort_keys=True)
        archive.writestr(f"{root}/{HASHES}", text)
    return digest_of(text)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def checked_digest(file: Path, digest: str | None) -> str:
    """The digest of a file that has not been changed. Raises LoadError for others."""
    try:
        with zipfile.ZipFile(file) as archive:
            noted = [info for info in archive.infolist() if info.filename.partition("/")[2] == HASHES]
            if len(noted) != 1:
                raise LoadError("it has no hashes of its parts" if not noted else "it has hashes twice")
            text = archive.read(noted[0]).decode()
            expected, found = json.loads(text), hashes_of(archive)
    except LoadError as e:
        raise LoadError(f"{file} is not loaded: {e}") from None
    except (ValueError, zipfile.BadZipFile, OSError) as e:
        raise LoadError(f"{file} is damaged: {e}") from e
    different = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    if different:
        raise LoadError(f"{file} is not loaded: it was changed after sot.save wrote it ({', '.join(different[:3])})")
    if digest is not None and digest_of(text) != digest:
        raise LoadError(f"{file} is not loaded: its digest is {digest_of(text)}, not {digest}")
    return digest_of(text)


def read_text(file: Path, name: str) -> Any:
    """A JSON text beside the programs; None if there is none."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.filename.partition("/")[2] == f"extra/{name}":
                return json.loads(archive.read(info))
    return None
