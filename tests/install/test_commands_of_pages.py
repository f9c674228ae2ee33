"""The commands that the pages show work as they stand there, for a program of the names that the pages use."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"(?:SOT_[A-Z_]+=[^ `]+ )*python (?:-m sot\b|-c \"import sot|train\.py)[^`|#\n]*")
COMMANDS = sorted({command.strip() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
                   for command in COMMAND.findall(path.read_text(encoding="utf-8"))})
PROGRAM = """
import torch

factor = 3


def f(x):
    return x.sin() * factor


example_inputs = (torch.ones(3),)
for _ in range(3):
    f(torch.ones(3))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of the pages: train.py, file.py, before.json and after.json."""
    folder = tmp_path_factory.mktemp("commands")
    for name in ("train.py", "file.py"):
        (folder / name).write_text(PROGRAM)
    for name in ("before", "after"):
        assert run(folder, f"python -m sot run --report {name}.json train.py").returncode == 0
    return folder


def run(folder, command):
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)})


def test_the_pages_show_commands():
    assert {command.split()[3] for command in COMMANDS if command.startswith("python -m sot")} >= {
        "run", "explain", "check", "diff", "cache"}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_pages_works(command, folder):
    done = run(folder, command)
    assert done.returncode == 0, done.stdout + done.stderr
    if "SOT_REPORT" in command:
        assert (folder / "out.html").exists()
    if "--why" in command:
        assert "factor" in done.stdout
