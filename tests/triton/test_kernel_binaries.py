"""Compiled kernels between processes, and how they are launched; on a GPU that is not there (``fake_gpu.py``)."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import compiling  # noqa: F401 - skips where triton is not installed
import pytest

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"


def run(folder: Path, *arguments: str) -> dict:
    """What ``fake_gpu.py`` prints, with our cache in a folder and nothing in Triton's own."""
    (folder / "triton").mkdir(exist_ok=True)
    for left in sorted((folder / "triton").rglob("*"), reverse=True):
        left.unlink() if left.is_file() else left.rmdir()
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"SOT_CACHE_DIR": str(folder / "cache"), "TRITON_CACHE_DIR": str(folder / "triton")}
    done = subprocess.run([sys.executable, str(SUPPORT / "fake_gpu.py"), *arguments], env=environment,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache that one process has filled, and what that process said."""
    folder = tmp_path_factory.mktemp("binaries")
    return folder, run(folder)


def test_another_process_compiles_nothing(filled):
    folder, first = filled
    again = run(folder)
    assert len(first["compiled"]) == 3, "two kernels, one of them also without hints"
    assert not any(first["found"])
    assert again["compiled"] == [] and all(again["found"])
    assert [x["name"] for x in again["launches"]] == [x["name"] for x in first["launches"]]


@pytest.mark.parametrize("harm", [
    lambda path: path.write_bytes(path.read_bytes()[:-8]),
    lambda path: path.write_bytes(b"another program"),
    lambda path: path.with_suffix(".json").write_text(re.sub(
        r'"shared": (\d+)', r'"shared": 1\1', path.with_suffix(".json").read_text())),
    lambda path: path.with_suffix(".json").unlink(),
], ids=["cut short", "foreign", "other facts", "no facts"])
def test_a_damaged_binary_is_compiled_again(filled, harm):
    folder, first = filled
    files = sorted((folder / "cache" / "kernels").glob("*.cubin"))
    before = files[0].with_suffix(".json").read_text()
    harm(files[0])
    again = run(folder)
    assert len(again["compiled"]) == 1
    assert json.loads(files[0].with_suffix(".json").read_text())["name"] == json.loads(before)["name"]


def test_launches_are_given_addresses_and_block_sizes(filled):
    launch = filled[1]["launches"][0]
    *addresses, rows, columns = launch["arguments"]
    assert launch["grid"] * rows >= 32 and columns == 64
    assert all(isinstance(a, int) and a % 16 == 0 for a in addresses) and launch["hinted"]


def test_an_address_that_16_does_not_divide_has_a_kernel_of_its_own(filled):
    launch = filled[1]["launches"][-1]
    assert launch["arguments"][0] % 16 and not launch["hinted"]


def test_another_batch_compiles_nothing(tmp_path):
    few, many = run(tmp_path, "32", "48"), run(tmp_path, "32", "48", "64", "80", "96")
    assert few["compiled"] and many["compiled"] == []
    assert {x["arguments"][-3] for x in many["launches"] if len(x["arguments"]) > 5} >= {48, 64, 80, 96}


MEMBERS = '''
import triton
import triton.language as tl


@triton.jit
def one(out0, block, ROWS: tl.constexpr):
    tl.store(out0 + block * ROWS + tl.arange(0, ROWS), {value})


@triton.jit
def group(b0):
    one(b0, tl.program_id(0), ROWS=16)
'''


def test_a_kernel_is_told_apart_by_the_functions_that_it_calls(tmp_path):
    for i, value in enumerate((1.0, 2.0)):
        (tmp_path / f"m{i}.py").write_text(MEMBERS.format(value=value))
    program = ("import sys; from pathlib import Path\n"
               "from sot.backends.triton import binaries, runtime\n"
               "texts = [binaries.text_of(runtime.load(p).group) for p in sorted(Path(sys.argv[1]).glob('*.py'))]\n"
               "print(texts[0] == texts[1])")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, capture_output=True,
                          text=True, check=True, timeout=300)
    assert done.stdout.split() == ["False"]
