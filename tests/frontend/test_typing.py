"""Type checkers see through ``to_static``: a function keeps its signature, a module and a class stay what they are."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sot

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = '''
import sot
import torch

class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @sot.to_static
    def count(self, x: torch.Tensor) -> int:
        return 1

@sot.to_static
def scale(x: torch.Tensor, by: int = 2) -> torch.Tensor:
    return x * by

@sot.to_static(backend="eager")
def norm(x: torch.Tensor) -> float:
    return 1.0

x = torch.ones(2)
model: Model = sot.to_static(Model())
tensor: torch.Tensor = scale(x, by=3)
number: float = norm(x)
count: int = model.count(x)
same: type[Model] = sot.to_static(Model)
'''
ERRORS = {'scale("a")': 'Argument 1 to "scale" has incompatible type "str"',
          "norm(x, 1)": 'Too many arguments for "norm"',
          'model.count("a")': 'Argument 1 to "count" of "Model" has incompatible type "str"',
          "wrong: str = norm(x)": 'expression has type "float", variable has type "str"'}


def test_the_package_is_typed():
    assert (Path(sot.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_types_survive_translation(tmp_path):
    """mypy accepts the right calls, and reports exactly the wrong ones."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM + "\n".join(ERRORS) + "\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "program.py"], cwd=tmp_path,
                          capture_output=True, text=True, env=os.environ | {"MYPYPATH": str(ROOT)}, timeout=300)
    found = [line.partition(" error: ")[2] for line in done.stdout.splitlines() if " error: " in line]
    assert len(found) == len(ERRORS), done.stdout
    for message, wanted in zip(found, ERRORS.values(), strict=True):
        assert wanted in message
