"""SOT_LOG: what is printed, where to, and that nothing is printed without it."""

import logging
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from translating import X

import sot
from sot.reports import log

PROGRAM = textwrap.dedent("""
    import torch, sot

    @sot.to_static
    def fn(x, k=1):
        y = x.relu() * k
        if y.sum() > 0:
            y = y + 1
        return y.cos()

    fn(torch.ones(3))
    fn(torch.ones(3), k=2)
    print("done")
""")


def run(tmp_path, **environment):
    """stderr of the program above."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {sys.path[0]!r})\n"
                           f"exec(compile(open({str(file)!r}).read(), {str(file)!r}, 'exec'))"],
                          env={"PYTHONPATH": ":".join(p for p in sys.path if p), **environment},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    return done.stderr


@pytest.fixture
def channels():
    """Sets SOT_LOG in this process."""
    yield log.configure
    log.configure("")


@pytest.mark.slow
def test_nothing_is_printed_without_it(tmp_path):
    assert run(tmp_path) == ""


@pytest.mark.slow
def test_every_channel_names_itself_the_function_and_the_line(tmp_path):
    printed = run(tmp_path, SOT_LOG="all")
    assert "[sot.breaks] a branch depends on the value of a tensor" in printed
    assert "program.py:7 in fn" in printed and "if y.sum() > 0:" in printed
    assert "to fix it: ask for control_flow" in printed
    assert "[sot.recompiles] fn, at" in printed and "expected k == 1, got 2" in printed
    assert "[sot.graphs] fn: 4 operations, 1 input, from" in printed and "return (" in printed
    assert "[sot.guards] fn, at" in printed and "x is a float32 tensor of shape (3,)" in printed
    assert "[sot.code] fn, at" in printed and "def " in printed


@pytest.mark.slow
def test_only_what_is_listed_is_printed(tmp_path):
    printed = run(tmp_path, SOT_LOG="breaks, recompiles")
    assert "[sot.breaks]" in printed and "[sot.recompiles]" in printed
    assert not any(f"[sot.{name}]" in printed for name in ("graphs", "guards", "code"))


def test_unknown_names_are_refused_with_the_known_ones(channels):
    with pytest.warns(UserWarning, match="there is no 'brakes'; did you mean 'breaks'. Known: all, breaks, fallbacks, "
                                         "recompiles, guards, graphs, code"):
        channels("brakes,graphs")
    assert logging.getLogger("sot.graphs").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("sot.breaks").isEnabledFor(logging.DEBUG)


def test_it_goes_to_the_stderr_of_the_time_and_to_nobody_else(channels, capsys, caplog, backend):
    channels("graphs")
    sot.to_static(lambda x: x.relu(), backend=backend)(X)
    assert "[sot.graphs]" in capsys.readouterr().err and not caplog.records


def test_programs_may_use_the_loggers_themselves(caplog, backend):
    caplog.set_level(logging.DEBUG, logger="sot.breaks")
    sot.to_static(lambda x: x if x.sum() > 0 else -x, backend=backend)(X)
    assert [r.name for r in caplog.records] == ["sot.breaks"]
    assert "test_log.py" in caplog.text


def test_a_program_that_logs_its_own_debug_messages_does_not_get_these(caplog, backend):
    caplog.set_level(logging.DEBUG)
    assert logging.getLogger("of.the.program").isEnabledFor(logging.DEBUG)
    sot.to_static(lambda x: x if x.sum() > 0 else -x, backend=backend)(X)
    assert not [r for r in caplog.records if r.name.startswith("sot.")]


def test_a_program_may_ask_for_all_channels_at_their_parent(caplog, backend):
    caplog.set_level(logging.DEBUG, logger="sot")
    sot.to_static(lambda x: x if x.sum() > 0 else -x, backend=backend)(X)
    assert {r.name for r in caplog.records} >= {"sot.breaks", "sot.graphs", "sot.guards", "sot.code"}


def test_each_logger_belongs_to_a_channel():
    root = Path(sot.__file__).resolve().parent
    text = "".join(path.read_text() for folder in (root, root.parent / "graph", root.parent / "backends")
                   for path in folder.rglob("*.py"))
    assert {*re.findall(r'getLogger\("sot\.([\w.]+)"\)', text)} <= {*log.CHANNELS}


LEVELS = PROGRAM.replace("import torch, sot\n", "import torch, sot\nsot.set_verbosity({})\nsot.set_code_level({})\n")
PRINTED = ("[sot.breaks]", "[sot.recompiles]", "[sot.graphs]", "[sot.guards]", "[sot.code]")


@pytest.mark.parametrize(("verbosity", "code", "count"), [(0, 0, 0), (1, 0, 2), (2, 0, 3), (3, 0, 4), (3, 1, 5)])
def test_levels_add_channels(capsys, monkeypatch, verbosity, code, count):
    program = LEVELS.replace("{}", str(verbosity), 1).replace("{}", str(code), 1)
    try:
        exec(compile(program, "levels.py", "exec"), {"__name__": "levels"})
    finally:
        sot.set_verbosity(0)
        sot.set_code_level(0)
        sot.reset()
    said = capsys.readouterr().err
    assert [name for name in PRINTED if name in said] == [*PRINTED[:count]]
    assert not said if count == 0 else "levels.py:8 in fn" in said or "levels.py:9 in fn" in said


@pytest.mark.parametrize("setter", [sot.set_verbosity, sot.set_code_level])
@pytest.mark.parametrize("level", [-1, "all", None])
def test_a_level_is_a_number(setter, level):
    with pytest.raises(ValueError, match=f"{setter.__name__} needs a level from 0 to 3"):
        setter(level)
