"""torch.export's archives: torch.export.save calls package_pt2, which also takes several programs."""
from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGE = "torch.export.pt2_archive._package"      # a second to import, so only when needed


def write_archive(path: Path, programs: dict[str, Any], extra: dict[str, str]) -> None:
    """Write exported programs, by name, and texts beside them."""
    for program in programs.values():
        program._example_inputs = None      # they would be pickled
    import_module(PACKAGE).package_pt2(str(path), exported_programs=programs, extra_files=extra)


def read_archive(path: Path) -> dict[str, Any]:
    """The programs of an archive."""
    return import_module(PACKAGE).load_pt2(str(path)).exported_programs
