"""Runs the benchmarks and writes benchmarks/results/<date>-<name>.json and one table, <date>.md."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from common import Row, markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NAMES = ("capture", "overhead", "plain_code/plain_python", "plain_code/enabled_python", "dynamic", "memory", "op_db")


def rows_of(name: str, repeats: int | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.json")
        command = [sys.executable, "-W", "ignore", str(HERE / f"{name}.py"), "--json", str(path)]
        subprocess.run(command + (["--repeats", str(repeats)] if repeats else []), check=True)
        return json.loads(path.read_text())


def machine() -> dict[str, str | int | None]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; without any, all")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    date, where = datetime.date.today().isoformat(), machine()
    options.out.mkdir(parents=True, exist_ok=True)
    page = [f"# {date}", ", ".join(f"{key} {value}" for key, value in where.items())]
    for name in options.names or NAMES:
        print(f"== {name}", flush=True)
        rows = rows_of(name, options.repeats)
        name = Path(name).name
        result = {"date": date, "name": name, "machine": where, "rows": rows}
        (options.out / f"{date}-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        page += [f"## {name}", markdown(rows)]
    (options.out / f"{date}.md").write_text("\n\n".join(page) + "\n")


if __name__ == "__main__":
    main()
