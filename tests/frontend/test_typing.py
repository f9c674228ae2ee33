"""Type checkers see through ``to_static``: a function keeps its signature, a module and a class stay what they are."""
import json
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
    def __init__(self, label: str = "") -> None:
        super().__init__()
        self.label = label

    def kept(self) -> "type[Model]":
        return type(self)

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
shown: str = model.label
kept: type[Model] = same(label="a").kept()
'''
ERRORS = {'scale("a")': 'Argument 1 to "scale" has incompatible type "str"',
          "norm(x, 1)": 'Too many arguments for "norm"',
          'model.count("a")': 'Argument 1 to "count" of "Model" has incompatible type "str"',
          'same("a", 1)': 'Too many arguments for "Model"',
          "wrong: str = norm(x)": 'expression has type "float", variable has type "str"'}
FOR_PYRIGHT = ['"Literal[\'a\']" is not assignable to "Tensor"', "Expected 1 positional argument",
               '"Literal[\'a\']" is not assignable to "Tensor"', "Expected 1 positional argument",
               '"float" is not assignable to "str"']


def test_the_package_is_typed():
    assert (Path(sot.__file__).parent / "py.typed").exists()


@pytest.mark.slow
def test_types_survive_translation(tmp_path):
    """mypy accepts the right calls, and reports exactly the wrong ones."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM + "\n".join(ERRORS) + "\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
                           ROOT / ".mypy_cache", "program.py"], cwd=tmp_path,
                          capture_output=True, text=True, env=os.environ | {"MYPYPATH": str(ROOT)}, timeout=300)
    found = [line.partition(" error: ")[2] for line in done.stdout.splitlines() if " error: " in line]
    assert len(found) == len(ERRORS), done.stdout
    for message, wanted in zip(found, ERRORS.values(), strict=True):
        assert wanted in message


@pytest.mark.slow
def test_pyright_sees_the_same(tmp_path):
    """Pyright fetches itself from npm on first use, so it is skipped where that is impossible."""
    pytest.importorskip("pyright", reason="the package pyright is not installed")
    if subprocess.run([sys.executable, "-m", "pyright", "--version"], capture_output=True, timeout=300).returncode:
        pytest.skip("pyright cannot fetch its program: it needs Node.js and the npm registry on first use")
    (tmp_path / "program.py").write_text(PROGRAM + "\n".join(ERRORS) + "\n")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "reportCallIssue": "error"}))
    done = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
                          cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found = [told["message"] for told in json.loads(done.stdout)["generalDiagnostics"] if told["severity"] == "error"]
    assert len(found) == len(ERRORS), done.stdout
    for message, wanted in zip(found, FOR_PYRIGHT, strict=True):
        assert wanted in message
