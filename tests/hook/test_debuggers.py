"""Whoever looks at a translated function while it runs sees that function: its frame, its variables, its lines."""
import inspect
import re
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from harness import check

import sot

# What bdb of CPython 3.14 itself leaves behind when a program ends that has had a breakpoint.
AT_EXIT = re.compile(r"Exception ignored while calling weakref callback .*\nTraceback .*\n"
                     r"  File .*bdb\.py.*\nAttributeError: 'NoneType' object has no attribute 'current_thread'\n")


def debug(tmp_path, program, *commands, **environment):
    """What pdb prints when it gets these commands."""
    path = tmp_path / "program.py"
    path.write_text("import torch, sot\n" + textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(path)], input="\n".join(commands) + "\n", capture_output=True, text=True,
                          timeout=300)
    errors = AT_EXIT.sub("", done.stderr)
    assert not errors, errors
    return done.stdout


AT_THE_CALL = ["n"] * (sys.version_info >= (3, 13))     # from then on pdb stops there, and not behind it
STOPS = {"breakpoint()": "", "pdb.set_trace()": "import pdb", "Pdb().set_trace()": "from pdb import Pdb"}


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_a_breakpoint_in_a_translated_function(tmp_path, stop):
    shown = debug(tmp_path, f"""
        {STOPS[stop]}
        @sot.to_static
        def f(x, unused):
            y = x + 1
            {stop}
            z = y * 2
            return z

        print(f(torch.ones(2), "kept").tolist())
        print(f(torch.ones(2), "again").tolist())
        """, *AT_THE_CALL, "n", "p unused, y.tolist()", "w", "c", "p unused", "c")
    assert "-> z = y * 2" in shown and "-> return z" in shown
    assert "('kept', [2.0, 2.0])" in shown and "'again'" in shown
    assert "program.py(9)f()" in shown and "program.py(11)<module>()" in shown
    assert "resume" not in shown and "emit" not in shown
    assert shown.count("[4.0, 4.0]") == 2


@pytest.mark.slow
def test_a_breakpoint_in_an_inlined_function_after_a_break(tmp_path):
    shown = debug(tmp_path, """
        def inner(a):
            secret = a * 3
            breakpoint()
            return a + secret

        @sot.to_static
        def outer(x):
            before = x + 1
            sot.graph_break()
            if x.sum() > 0:
                return inner(before)

        print(outer(torch.ones(2)).tolist())
        """, "p secret.tolist()", "u", "p before.tolist()", "d", *AT_THE_CALL, "n", "n", "n", "c")
    assert "[6.0, 6.0]" in shown and "[2.0, 2.0]" in shown and "[8.0, 8.0]" in shown
    assert "-> return inner(before)" in shown and "program.py(13)outer()" in shown


@pytest.mark.slow
def test_a_debugger_that_is_there_already(tmp_path):
    shown = debug(tmp_path, """
        @sot.to_static
        def f(x):
            y = x + 1
            z = y * 2
            return z

        f(torch.ones(2))        # captured
        breakpoint()
        f(torch.ones(2))
        """, "b 6", "c", "p y.tolist()", "n", "p z.tolist()", "c")
    assert "-> z = y * 2" in shown and "-> return z" in shown
    assert "[2.0, 2.0]" in shown and "[4.0, 4.0]" in shown


def lines_of(fn, *args):
    seen = []

    def trace(frame, event, arg):
        if frame.f_code.co_filename == __file__:
            seen.append((event, frame.f_code.co_name, frame.f_lineno))
            return trace
    sys.settrace(trace)
    try:
        fn(*args)
    finally:
        sys.settrace(None)
    return seen


def traced(x):
    y = x + 1
    for _ in range(2):
        y = helper(y)
    return y


def helper(x):
    return x * 2


def test_a_tracer_sees_each_line():
    translated = sot.to_static(traced)
    translated(torch.ones(2))
    assert lines_of(translated, torch.ones(2)) == lines_of(traced, torch.ones(2))


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
@pytest.mark.parametrize("tool", [0, 1, 3])
def test_a_tool_that_monitors_lines_sees_each_line(tool):
    monitoring = sys.monitoring
    translated, seen = sot.to_static(traced), []
    translated(torch.ones(2))
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, lambda code, line: seen.append(line)
                                     if code.co_filename == __file__ else None)
        monitoring.set_events(tool, monitoring.events.LINE)
        translated(torch.ones(2))
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    start = traced.__code__.co_firstlineno
    assert [start + n for n in range(1, 5)] == sorted({line for line in seen if start < line < start + 5})


def test_a_function_that_sets_a_tracer_is_run_by_python():
    seen = []

    def trace(frame, event, arg):
        seen.append((event, frame.f_lineno)) if frame.f_code.co_filename == __file__ else None

    def fn(x):
        y = x + 1
        sys.settrace(trace)
        z = helper(y)
        sys.settrace(None)
        return z

    translated = check(fn, torch.ones(2), graphs=0)
    assert any(c.stopped and c.stopped.reason.name == "DEBUGGER" for c in translated.captures)
    assert seen[:len(seen) // 2] == seen[len(seen) // 2:]


# ---- frames ----------------------------------------------------------------------------------------------
def caller_name():
    return sys._getframe(1).f_code.co_name


def caller_variables(depth):
    frame = sys._getframe(depth)
    return {name: value for name, value in frame.f_locals.items() if isinstance(value, (int, str))}, frame.f_lineno


def test_a_function_looks_at_its_caller():
    def fn(x):
        y = x + 1
        return caller_name(), y * 2

    check(fn, torch.ones(2), graphs=2)


def test_a_function_reads_its_callers_variables():
    def middle(x, flag):
        not_used_again = 2
        return caller_variables(1), caller_variables(2), x * 2

    def fn(x, n):
        nor_this = "text"
        y = x + n
        return middle(y, True)

    check(fn, torch.ones(2), 3)


def test_a_function_looks_at_its_own_frame():
    def fn(x):
        unused = 1
        y = x + 1
        frame = sys._getframe()
        unused = 2
        return sorted(n for n in frame.f_locals if n != "frame"), frame.f_lineno, y * 2

    check(fn, torch.ones(2), graphs=0)


def test_the_stack_is_that_of_the_program():
    def inner(x):
        return [(f.function, f.lineno) for f in inspect.stack(0)][:2], x + 1

    def fn(x):
        found, y = inner(x * 2)
        return found, y

    check(fn, torch.ones(2))


@pytest.mark.parametrize("ask", [
    lambda: sorted(sys._getframe(1).f_locals), lambda: sorted(inspect.currentframe().f_back.f_locals),
    lambda: sorted(inspect.stack(0)[1].frame.f_locals), lambda: sys._getframe(1),
    lambda: sys._current_frames()[threading.get_ident()].f_back],
    ids=["_getframe", "f_back", "stack", "kept", "threads"])
def test_a_frame_that_is_handed_out_is_the_functions_own(ask):
    def fn(x):
        before = 1
        y = x * 2
        found = ask()
        after = before
        return y, found if isinstance(found, list) else (sorted(found.f_locals), found.f_code.co_name), after

    check(fn, torch.ones(2))


def test_variables_that_are_not_read_again_are_there_for_code_that_looks_at_them():
    """A break before the look: the rest of the function has what Python keeps."""
    names = eval("lambda: sorted(sys._getframe(1).f_locals)", {"sys": sys})

    def fn(x, unused):
        limit, given = 2, unused
        y = x * limit
        if y.sum() > 0:
            y = y + 1
        return y, sorted(n for n in names() if n in ("x", "limit", "given", "unused"))

    check(fn, torch.ones(2), "text")
