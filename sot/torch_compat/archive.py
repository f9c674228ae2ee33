"""torch.export's archives: package_pt2 is what torch.export.save calls, and it takes several programs."""
from __future__ import annotations

from pathlib import Path
from typing import Any


def write_archive(path: Path, programs: dict[str, Any], extra: dict[str, str]) -> None:
    """Write exported programs, by name, and texts beside them."""
    from torch.export.pt2_archive._package import package_pt2  # noqa: PLC0415 - a second to import, so only when needed

    for program in programs.values():
        program._example_inputs = None      # they would be pickled
    package_pt2(str(path), exported_programs=programs, extra_files=extra)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The programs and the texts of an archive."""
    from torch.export.pt2_archive._package import load_pt2  # noqa: PLC0415

    contents = load_pt2(str(path))
    return contents.exported_programs, contents.extra_files
