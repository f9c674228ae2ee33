"""The page of ``python -m sot explain --stages``: each form of the pipeline as text, the same on every Python.

``stages/*.txt`` are a program, a line of ``=``, and its page. SOT_EXPECT=1 writes the pages anew.
"""
import os
import sys
from pathlib import Path

import pytest

import sot
from sot.frontend.stages import StagesError, stages

PAGES = Path(__file__).parent / "stages"
RULE = "\n" + "=" * 100 + "\n"
PROGRAM = '''
def double(x):
    return x * 2

class Net(torch.nn.Module):
    def forward(self, x):
        return x - 1

net = Net()
'''


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "program.py").write_text(text)
        return "program.py"
    return write


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the pages show the instructions of CPython 3.11")
@pytest.mark.parametrize("name", ["operations", "a_break", "a_counter"])
def test_a_program_and_its_page(name, program):
    file = PAGES / f"{name}.txt"
    text, _, expected = file.read_text().partition(RULE)
    page = stages(f"{program(text)}::f", None, "eager").replace(str(Path(sot.__file__).parent), "sot") + "\n"
    if os.environ.get("SOT_EXPECT"):
        file.write_text(text + RULE + page)
    assert page == expected


@pytest.mark.parametrize("function, call, operation", [
    ("double", "double(torch.ones(2))", "x * 2"),
    ("double", "[double(x) for x in (torch.ones(2), torch.ones(3))]", "x * 2"),
    ("Net.forward", "net(torch.ones(2))", "x - 1"),
    ("net", "net(torch.ones(2))", "x - 1"),
])
def test_the_call_is_an_expression_over_the_names_of_the_file(function, call, operation, program):
    page = stages(f"{program('import torch' + PROGRAM)}::{function}", call, "eager")
    assert operation in page.partition("---- graph")[2].partition("---- guards")[0]


@pytest.mark.parametrize("inputs", ["(torch.ones(2),)", "{'double': [torch.ones(2)], 'net': ()}"])
def test_arguments_come_from_the_file(inputs, program):
    assert "x * 2" in stages(f"{program(f'import torch{PROGRAM}example_inputs = {inputs}')}::double", None, "eager")


def test_a_backend_that_makes_kernels_shows_them(program):
    page = stages(f"{program('import torch' + PROGRAM)}::double", "double(torch.ones(2))", "triton")
    assert "@triton.jit" in page.partition("---- kernels")[2]


@pytest.mark.parametrize("target, problem", [
    ("program.py", "FILE.py::NAME"), ("none.py::f", "FILE.py::NAME"), ("program.py::g", "no g"),
    ("program.py::Net.g", "no Net.g"), ("program.py::double", "takes a tuple"),
])
def test_what_cannot_be_shown_is_refused(target, problem, program):
    program(f"import torch{PROGRAM}example_inputs = 3")
    with pytest.raises(StagesError, match=problem):
        stages(target, None, "eager")
