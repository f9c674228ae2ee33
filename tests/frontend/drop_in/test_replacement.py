"""SOT_REPLACE_TORCH_COMPILE=1: torch.compile, Module.compile and what libraries decorate are SOT's."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import torch
from torch import compile
from library import library_function
from torch.nn.attention.flex_attention import flex_attention

X = torch.arange(6.0).reshape(2, 3)

@compile(backend="eager")
def function(x):
    return x.sin() + 1

module, wrapped = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
module.compile(backend="eager")
other = torch.compiler.compile(wrapped, backend="eager")
torch.testing.assert_close(function(X), X.sin() + 1)
torch.testing.assert_close(library_function(X), X + 2)
module(X), other(X)
for compiled in (function, library_function, module._compiled_call_impl, other.forward):
    assert type(compiled).__module__ == "sot.frontend.drop_in.compiled", compiled
    assert len(compiled.captures) == 1, compiled.captures
torch.testing.assert_close(torch.cond(X.sum() > 1, torch.sin, torch.cos, (X,)), X.sin())
try:
    torch.compile(function, shapes_spec={})
except NotImplementedError as e:
    assert "InputSpec" in str(e)
else:
    raise AssertionError("shapes_spec is not refused")
assert torch.compile.__doc__ and torch.compile.__name__ == "compile"
print("done")
"""
LIBRARY = """
import torch

@torch.compile(backend="eager", fullgraph=True)
def library_function(x):
    return x + (2 if torch.compiler.is_compiling() else 1)
"""


def run(folder, **environment):
    (folder / "program.py").write_text(PROGRAM)
    (folder / "library.py").write_text(LIBRARY)
    return subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(ROOT)} | environment)


@pytest.mark.slow
def test_programs_and_libraries_compile_with_sot(tmp_path):
    done = run(tmp_path, SOT_REPLACE_TORCH_COMPILE="1")
    assert done.stdout == "done\n", done.stderr


def test_without_the_variable_torch_compile_is_torchs(tmp_path):
    done = run(tmp_path, SOT_REPLACE_TORCH_COMPILE="0")
    assert "AssertionError" in done.stderr and "SOT" not in done.stdout
