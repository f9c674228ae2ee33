"""A plain `pip install` gives everything: a wheel built in isolation, from the checkout or from an sdist, in a fresh
environment, with a compiler and without one."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import torch, sot
assert sot.__file__.startswith(sys.prefix), sot.__file__
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
x = torch.randn(3, 4)
translated = sot.to_static(model)
assert torch.equal(translated(x), model(x)) and torch.equal(translated(x), model(x))
from sot.torch_compat import native
print(native.state())
"""


def run(*command: str, **env: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={**os.environ, **env}, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """Built from a copy, so that the checkout gets no build folder."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("sdist")
    kept = [name for name in os.listdir(ROOT) if not name.startswith((".", "build", "dist")) and ".egg" not in name]
    subprocess.run(["cp", "-a", *(str(ROOT / name) for name in kept), str(checkout)], check=True, timeout=600)
    for built in checkout.rglob("*.so"):
        built.unlink()
    make = f"import os; os.chdir({str(checkout)!r})\n"
    make += f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    run(sys.executable, "-c", make)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """What pip makes of the sdist, in an environment of its own that has no torch."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", str(out), str(sdist))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> str:
    """Of a fresh environment with the wheel, which finds torch and the other requirements in that of the tests."""
    at = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", str(at))
    site = next(at.glob("lib/python*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(at / "bin" / "python")


def test_the_sdist_has_what_building_and_testing_need(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "sot/csrc/hook/hook.h", "sot/csrc/guards/program.h",
            "sot/csrc/hook/evaluate.c", "sot/csrc/torch/tensors.cpp", "sot/graph/__init__.py",
            "sot/backends/__init__.py"} <= names


def test_the_wheel_has_what_is_compiled_later_as_source_and_needs_no_torch_to_build(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"sot/csrc/torch/tensors.cpp", "sot/csrc/torch/tally.cpp", "sot/csrc/guards/guards.h",
            "sot/torch_compat/build_native.py", "sot/reports/views/page.html.j2",
            "sot/reports/views/reasons/loop.md"} <= set(names)
    assert [name for name in names if name.endswith(".so")] == [
        f"sot/_hook{sysconfig.get_config_var('EXT_SUFFIX')}"]


def test_the_first_process_goes_on_while_it_is_compiled_and_the_next_one_has_it(python, tmp_path):
    cache = {"SOT_CACHE_DIR": str(tmp_path), "SOT_NATIVE": "1"}
    assert "being compiled" in run(python, "-c", PROGRAM, **cache)
    run(python, "-m", "sot.torch_compat.native", **cache)       # waits for it
    assert run(python, "-c", PROGRAM, **cache).strip() == "native"
    assert len([*(tmp_path / "native").glob("tensors-*.so")]) == 1
    assert not [path for path in (tmp_path / "native").iterdir() if path.stat().st_mode & 0o022]


def test_without_a_compiler_there_is_a_warning_a_line_in_reports_and_the_same_result(python, tmp_path):
    cache = {"SOT_CACHE_DIR": str(tmp_path), "PATH": "/nowhere", "CXX": "", "SOT_NATIVE": "1"}
    told = run(python, "-c", PROGRAM, **cache)
    assert told.count("RuntimeWarning") == 1 and "there is no C++ compiler" in told
    run(python, "-c", PROGRAM, SOT_REPORT=str(tmp_path / "report.json"), **cache)
    told = json.loads((tmp_path / "report.json").read_text())["versions"]["tensor guards"]
    assert told.startswith("torch's own, slower (there is no C++ compiler")
