"""Lines of the user's code, and how files are named in messages."""
from __future__ import annotations

import linecache
import os
import sysconfig
from dataclasses import dataclass

SITE_PACKAGES = os.path.join("", "site-packages", "")
STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return SITE_PACKAGES in file


def is_of_library(file: str) -> bool:
    """Whether a file belongs to an installed package or to the standard library."""
    return is_installed(file) or file.startswith(STDLIB)


def shortened(file: str) -> str:
    """The path of a file relative to the working directory, or to the folder of installed packages."""
    short = file.removeprefix(os.path.join(os.getcwd(), ""))
    return short.rpartition(SITE_PACKAGES)[2] if os.path.isabs(short) else short
