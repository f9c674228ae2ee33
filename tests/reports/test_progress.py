"""Long work shows on a terminal, and nowhere else."""
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sot

PROGRAM = """
import sys, time, torch, sot
from sot.support import progress
progress.PATIENCE = float(sys.argv[1])

def slow(graph_module, example_inputs):
    time.sleep(1)
    return graph_module.forward

@sot.to_static(backend=slow)
def train_step(x):
    return x.sin()

print("result", train_step(torch.zeros(2)).tolist())
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)

    def run(patience, stderr):
        return subprocess.run([sys.executable, "train.py", str(patience)], cwd=tmp_path, stdout=subprocess.PIPE,
                              stderr=stderr, text=True, env={"PYTHONPATH": str(Path(sot.__file__).parent.parent),
                                                             "TERM": "xterm", "COLUMNS": "120"}, timeout=300)
    return run


def on_terminal(program, patience):
    """What the program writes to a terminal that is its stderr."""
    try:
        ours, theirs = pty.openpty()
    except OSError:
        pytest.skip("there are no terminals here")
    try:
        done = program(patience, theirs)
    finally:
        os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:     # the other end is closed and everything is read
        pass
    os.close(ours)
    assert done.returncode == 0 and done.stdout == "result [0.0, 0.0]\n"
    return text.decode()


@pytest.mark.slow
def test_what_takes_long_is_told_on_a_terminal_and_is_gone_afterwards(program):
    text = on_terminal(program, 0.3)
    assert "SOT: compiling the graph of train_step, at train.py:10" in text
    assert text.endswith("\x1b[2K")     # the line is erased


@pytest.mark.slow
def test_what_is_quick_is_not(program):
    assert on_terminal(program, 30) == ""


@pytest.mark.slow
def test_elsewhere_it_is_silent(program):
    assert program(0.3, subprocess.PIPE).stderr == ""


class Asked(io.StringIO):
    def isatty(self):
        raise AssertionError("the program's object is asked")


@pytest.mark.parametrize("make", [io.StringIO, Asked, lambda: None], ids=["closed", "of the program", "none"])
def test_a_stream_of_the_program_is_left_alone(make, monkeypatch):
    stream = make()
    if type(stream) is io.StringIO:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    translated = sot.to_static(lambda x: x * 2, backend="eager")
    assert torch.equal(translated(torch.ones(2)), torch.full((2,), 2.0))
    assert [capture.stopped for capture in translated.captures] == [None]
