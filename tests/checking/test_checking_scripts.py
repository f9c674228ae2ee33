"""The program that checking mode saves: it runs on its own and shows the difference again."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import sot
from sot.checking.calls import CheckWarning

ROOT = Path(sot.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CHECK_DIR", str(tmp_path / "found"))
    sot.reset()
    return tmp_path / "found"


def run(path, **env):
    """What the program prints, run from another folder."""
    return subprocess.run([sys.executable, path], cwd="/", capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)} | env, timeout=300)


def doubled(gm, inputs):
    """A backend with a mistake: everything twice."""
    return lambda *args: tuple(2 * out for out in gm(*args))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(self.linear(x)).relu().reshape(x.shape[0] * 2, -1)


@pytest.mark.slow
def test_each_difference_has_a_program_of_its_own_with_its_weights_and_large_inputs(folder):
    model = sot.to_static(Net(), backend=doubled, check=True, dynamic=False)
    with pytest.warns(CheckWarning):
        model(torch.randn(6, 16))
        model(torch.randn(9, 16))
    assert sorted(path.name for path in folder.glob("*.py")) == ["difference-2.py", "difference.py"]
    for path in folder.glob("*.py"):
        done = run(path)
        assert done.returncode == 0 and "Tensor-likes are not close" in done.stdout, done.stderr
    assert "torch.load" in path.read_text()


PROGRAM = """
import torch, warnings
import sot

def mistaken(gm, inputs):
    return lambda *args: tuple(out + 1 for out in gm(*args))

if __name__ == "__main__":
    print("trains")
    warnings.simplefilter("ignore")
    sot.to_static(lambda x: x.half().t().sin() * 2, backend=mistaken)(torch.ones(2, 3))
"""


@pytest.mark.slow
def test_a_backend_of_the_main_program_is_found_there(folder, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    assert run(tmp_path / "train.py", SOT_CHECK="1", SOT_CHECK_DIR=str(folder)).stdout == "trains\n"
    done = run(folder / "difference.py")
    assert done.returncode == 0 and "Tensor-likes are not close" in done.stdout and "trains" not in done.stdout


@pytest.mark.slow
def test_a_backend_without_a_name_leaves_a_place_for_it(folder):
    with pytest.warns(CheckWarning):
        sot.to_static(lambda x: x.sin(), backend=lambda gm, inputs: doubled(gm, inputs), check=True)(torch.ones(2))
    done = run(folder / "difference.py")
    assert done.returncode == 1 and "write here how to get the backend" in done.stderr
    text = (folder / "difference.py").read_text()
    start, end = text.index("    raise SystemExit"), text.index("\n", text.index("    raise SystemExit"))
    given = text[:start] + "    return lambda *args: tuple(2 * a for a in graph_module(*args))" + text[end:]
    (folder / "difference.py").write_text(given)
    assert "Tensor-likes are not close" in run(folder / "difference.py").stdout
