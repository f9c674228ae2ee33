"""Checks a ``.pt2`` archive before torch reads it. torch unpickles some parts, loads shared libraries, and makes code
from the description of a program. A model needs neither of the first two, and of the third only a graph.
"""
from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sot.deploy.errors import LoadError
from sot.deploy.program_text import LIBRARIES, PLAIN, problem_of_program

WEIGHTS = ("weight_", "tensor_")        # names of parts that contain plain numbers
END = b"PK\x05\x06"                     # of the last 22 bytes, with no comment after it


@contextmanager
def damage_is_told(path: Path) -> Iterator[None]:
    """Turn any error that a damaged file causes into a LoadError."""
    try:
        yield
    except LoadError:
        raise
    except Exception as e:
        raise LoadError(f"{path} is damaged, or of a version of torch that this one cannot read: "
                        f"{type(e).__name__}: {e}") from e


def inspect_archive(path: Path, operators: Collection[str] = ()) -> None:
    """Raises LoadError for a file that is not an archive, or that could run code. ``operators`` are the libraries whose
    operators it may call.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as e:
        raise LoadError(f"{path} cannot be read as a .pt2 file: {e}") from e
    with archive, damage_is_told(path), admitting(operators):
        problem = shape_problem(archive, path)
        for info in archive.infolist():
            problem = problem or problem_of(archive, info, info.filename.partition("/")[2])
        if problem:
            raise LoadError(f"{path} is not loaded: {problem}")


@contextmanager
def admitting(operators: Collection[str]) -> Iterator[None]:
    before = LIBRARIES.set(frozenset(operators))
    try:
        yield
    finally:
        LIBRARIES.reset(before)


def shape_problem(archive: zipfile.ZipFile, path: Path) -> str | None:
    """Refuse an archive that two readers may interpret differently. torch has another reader, which ignores the case
    of names.
    """
    infos = archive.infolist()
    names = [info.filename.lower() for info in infos]
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 22))
        ends = file.read(4) == END
    if not ends or archive.comment:
        return "there is data after its end"
    if len({*names}) != len(names):
        return "it has two parts with one name"
    if len({name.partition("/")[0] for name in names}) > 1:
        return "it has more than one folder"
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        return "it has compressed or encrypted parts, which torch does not write"
    if any(info.orig_filename != info.filename or "\\" in info.filename for info in infos):
        return "it has a part whose name ends early"
    return None


def problem_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> str | None:
    """Why a part of an archive is refused."""
    folder, _, file = name.rpartition("/")
    if folder in ("data/weights", "data/constants"):
        if file.endswith("_config.json"):
            parts = {i.filename.partition("/")[2]: i.file_size for i in archive.infolist()}
            return config_problem(json.loads(archive.read(info)), name, parts)
        return None if file.startswith(WEIGHTS) else f"{name} contains Python objects, which can run code when read"
    if folder == "data/sample_inputs":
        return f"{name} contains Python objects" if info.file_size else None
    if folder == "models":
        found = problem_of_program(json.loads(archive.read(info)))
        return f"{name} {found}" if found else None
    if folder == "extra" or not folder or folder == ".data":
        return None
    return f"{name} is not a part that a model needs"


def config_problem(config: Any, name: str, parts: dict[str, int]) -> str | None:
    """``parts``: the sizes of all parts, in bytes."""
    for weight, entry in config["config"].items():
        path = str(entry.get("path_name"))
        if entry.get("use_pickle") or not path.startswith(WEIGHTS):
            return f"{weight} in {name} is a Python object, which can run code when it is read"
        if not PLAIN.fullmatch(weight):
            return f"{weight!r} in {name} is not a name"
        numbers = [size["as_int"] for size in entry["tensor_meta"]["sizes"] + entry["tensor_meta"]["strides"]]
        if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
            return f"{weight} in {name} has the sizes and strides {numbers}"
        empty = parts.get(f"{name.rpartition('/')[0]}/{path}", 0) == 0
        if empty and math.prod(numbers[:len(entry["tensor_meta"]["sizes"])]):
            return f"{weight} in {name} has no numbers"     # torch would allocate as many as it declares
    return None
