"""A gate for CI: a test that fails if a model is no longer one graph, and a baseline for a whole program.

On the command line: ``python -m sot check --baseline sot.json --sarif found.sarif train.py``.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import sot

PROGRAM = """
import torch
def f(x):
    {branch}
    return x + 1
for _ in range(20):
    f(torch.ones(3))
"""
GOOD, BAD = "x = torch.where(x.sum() > 0, x * 2, x)", "x = x * 2 if x.sum() > 0 else x"


def check(folder: Path, branch: str) -> int:
    """The exit status of ``sot check`` for a program."""
    (folder / "train.py").write_text(PROGRAM.format(branch=branch))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-m", "sot", "check", "--baseline", "sot.json", "train.py"], cwd=folder,
                          env=environment, capture_output=True, text=True, timeout=300)
    print(done.stderr.rstrip())
    return done.returncode


def main() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    sot.assert_captured(model, torch.ones(2, 4))        # in a test: raises AssertionError with the breaks
    with tempfile.TemporaryDirectory() as folder:
        assert check(Path(folder), GOOD) == 0           # writes the baseline
        assert check(Path(folder), BAD) == 1            # a break more than in the baseline


if __name__ == "__main__":
    main()
