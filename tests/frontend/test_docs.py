"""The documentation tells the truth: every reason for a break has a page, and what the pages show happens."""
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sot
from sot.support.errors import Reason

BREAKS = Path(__file__).resolve().parents[2] / "docs" / "breaks"
CODE = re.compile(r"```python\n(.*?)```", re.S)
PAGES = {path.stem.upper(): path.read_text(encoding="utf-8") for path in sorted(BREAKS.glob("*.md"))
         if path.stem != "index"}
WITH_EXAMPLE = [name for name, text in PAGES.items() if "## What breaks" in text]


def program(text):
    """What the code of a page defines: its function and the arguments to call it with."""
    names = {"__name__": "example"}
    exec(compile(text, "<example>", "exec"), names)
    return names["f"], names["args"]


def test_every_reason_has_a_page_and_every_page_a_reason():
    assert set(PAGES) == {reason.name for reason in Reason}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_to_do(name):
    assert PAGES[name].startswith("# ") and "## What to do" in PAGES[name]


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_example_breaks_for_that_reason(name):
    sot.reset()
    f, args = program(CODE.findall(PAGES[name])[0])
    explanation = sot.explain(f)(*args)
    stops = [c.stopped.reason.name for c in explanation.captures if c.stopped is not None]
    assert name in stops, stops


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_what_to_write_instead_is_captured_whole(name):
    sot.reset()
    f, args = program(CODE.findall(PAGES[name])[1])
    explanation = sot.explain(f)(*args)
    assert not explanation.breaks and not explanation.fallbacks and len(explanation.graphs) == 1
    torch.manual_seed(0)
    want = f(*args)
    torch.manual_seed(0)
    torch.testing.assert_close(sot.to_static(f, backend="eager")(*args), want)


# ---- the other pages --------------------------------------------------------------------------------------
ROOT = BREAKS.parent.parent


MACROS = {"SOT_TORCH_VERSION"}      # of the extension's source


def test_every_environment_variable_is_described():
    sources = [*(ROOT / "sot").glob("**/*.py"), *(ROOT / "backends").glob("**/*.py"), *(ROOT / "graph").glob("**/*.py"),
               ROOT / "setup.py"]
    used = {name for path in sources for name in re.findall(r'"(SOT_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    described = set(re.findall(r"`(SOT_[A-Z_]+)`", (BREAKS.parent / "environment.md").read_text(encoding="utf-8")))
    assert used - MACROS == described


WITH_CODE = ["README.md", *sorted(f"docs/{path.name}" for path in BREAKS.parent.glob("*.md")
                                   if CODE.search(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", WITH_CODE)
def test_the_code_of_a_page_runs(path, capsys):
    names = {"__name__": "example"}
    for text in CODE.findall((ROOT / path).read_text(encoding="utf-8")):
        if text.startswith("# "):
            continue        # the first line is a command: tests/install/test_commands_of_pages.py runs it
        exec(compile(text, f"<{path}>", "exec"), names)
        if "counting" in text:
            assert torch.equal(names["f"](torch.ones(2)), torch.full((2,), 2.0))
            assert "a graph of 2 operations, 1 inputs" in capsys.readouterr().out


def test_the_output_in_the_readme_is_what_its_example_prints(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"What it prints:\n\n((?:    .*\n|\n)+)", text).group(1)
    (tmp_path / "first.py").write_text(CODE.findall(text)[0])
    monkeypatch.chdir(tmp_path)
    sot.reset()
    runpy.run_path("first.py")
    times = re.compile(r"[\d.]+ m?s\b")
    assert times.sub("?", capsys.readouterr().out).split() == times.sub("?", shown).split()


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path):
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(tmp_path)], cwd=ROOT,
                          capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "to_static" in (tmp_path / "api.html").read_text(encoding="utf-8")
    missing = {name for name in sot.__all__ if f'id="sot.{name}"' not in (tmp_path / "api.html").read_text("utf-8")}
    assert missing == {"__version__"}
