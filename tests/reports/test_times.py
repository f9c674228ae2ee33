"""Where the time of a run goes: graphs, Python after breaks, captures, guards; and what to change first."""
import json
import os
import signal
import time

import pytest
import torch

import sot
from sot import _hook
from sot.frontend.global_mode import enable_all
from sot.reports.advice import first_change, is_small
from sot.reports.build import report_of
from sot.reports.recording import Recording, recorded
from sot.reports.views.page import page
from sot.reports.views.timeline import step, whole_steps
from sot.torch_compat import native

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.ones(8)
NAP = 0.004
# The time of a nap is a lower bound; above it only the machine's load decides.


def sleeps(x):
    y = torch.sin(x)
    time.sleep(NAP)
    return torch.cos(y)


def two_breaks(x):
    y = torch.sin(x)
    sot.graph_break()
    y = torch.cos(y)
    time.sleep(NAP)
    return torch.tan(y)


def reported(f, calls=5, backend="eager", args=(X,)):
    f, recording = sot.to_static(f, backend=backend), Recording("the program")
    with recorded(recording):
        for _ in range(calls):
            f(*args)
    return report_of(recording)


def test_the_time_after_a_break_is_that_of_python_until_the_next_graph():
    report = reported(sleeps)
    found, = report.breaks
    assert 5 * NAP <= found.seconds <= report.elapsed - report.times.captures
    assert found.seconds == pytest.approx(report.times.breaks)


def test_the_parts_of_the_time_are_the_whole():
    times = (report := reported(two_breaks)).times
    assert times.graphs + times.breaks + times.captures + times.elsewhere == pytest.approx(report.elapsed)
    assert min(times.graphs, times.breaks, times.captures, times.elsewhere, times.guards) > 0


def test_a_slow_graph_is_not_time_after_a_break():
    def slow(module, examples):
        def run(*args):
            time.sleep(NAP)
            return module(*args)
        return run

    def f(x):
        y = torch.sin(x)
        sot.graph_break()
        return torch.cos(y)

    report = reported(f, backend=slow)
    assert all(graph.running >= 5 * NAP for graph in report.graphs)
    assert report.times.breaks < report.times.graphs


def test_breaks_come_by_time_and_the_first_is_the_advice():
    report = reported(two_breaks)
    assert [b.reason for b in report.breaks] == ["SIDE_EFFECT", "USER_BREAK"]
    assert report.breaks[0].seconds > report.breaks[1].seconds
    first = first_change(report)
    assert first.subject == report.breaks[0] and first.line.source == "time.sleep(NAP)" and first.remedy


def test_a_break_without_an_operation_before_it_counts_by_its_time_only():
    def f(x):
        y = torch.sin(x)
        if y.sum() > 0:     # a break; from here to the nap there is no operation
            time.sleep(NAP)
        return torch.cos(y)

    report = reported(f)
    assert [b.reason for b in report.breaks] == ["TENSOR_TRUTH"]
    assert [b.reason for b in report.idle] == ["SIDE_EFFECT"] and report.stops[0] == report.idle[0]
    assert first_change(report).subject == report.idle[0]


def test_a_recompile_has_its_time_and_may_be_the_advice():
    def f(x, name):
        return x + len(name) if name != "z" else x

    f, recording = sot.to_static(f, backend="eager"), Recording("names")
    with recorded(recording):
        for name in "abc":
            f(X, name)
    report = report_of(recording)
    assert len(report.recompiles) == 2 and all(r.seconds > 0 for r in report.recompiles)
    assert "recompiled 2 times: " in first_change(report).what


def test_what_costs_nothing_is_no_advice():
    def f(x):
        return torch.sin(x)

    report = reported(f, calls=3)
    assert report.breaks == [] and not [b for b in report.stops if not is_small(report, b)]
    assert first_change(report) is None or first_change(report).what.startswith("checking the guards")


def test_guards_are_measured():
    report = reported(sleeps, calls=100)
    assert all(0 < graph.checking < graph.running * 100 for graph in report.graphs)


def test_threads_have_their_own_times():
    from concurrent.futures import ThreadPoolExecutor
    f, recording = sot.to_static(sleeps, backend="eager"), Recording("threads")
    with recorded(recording):
        f(X)
        with ThreadPoolExecutor(4) as pool:
            assert all(torch.equal(y, sleeps(X)) for y in pool.map(f, [X] * 16))
    report = report_of(recording)
    assert report.breaks[0].runs == 17 and report.breaks[0].seconds >= 17 * NAP
    assert len({event.thread for event in report.events}) > 1


def test_an_exception_ends_the_time_of_a_break():
    def f(x):
        y = torch.sin(x)
        time.sleep(NAP)
        raise ValueError("the program's own")

    g, recording = sot.to_static(f, backend="eager"), Recording("raises")
    with recorded(recording):
        for _ in range(3):
            with pytest.raises(ValueError, match="the program's own"):
                g(X)
        time.sleep(10 * NAP)
    report = report_of(recording)
    assert sum(b.seconds for b in report.stops if not b.fallback) < report.elapsed - report.times.captures - 10 * NAP


# ---- what counts as an operation of the program -------------------------------------------------------------
def test_the_text_of_a_tensor_is_no_work_of_the_program(capsys):
    def f(x):
        return torch.sin(x)

    g, recording = sot.to_static(f, backend="eager"), Recording("prints")
    with recorded(recording):
        for _ in range(3):
            print(g(X))
        str(X), repr(X), f"{X}"
    report = report_of(recording)
    assert report.coverage == 1 and report.in_python == 0 and report.in_graphs == 3
    assert capsys.readouterr().out.count("tensor(") == 3


def test_optimizers_count_apart():
    weight = torch.ones(3, requires_grad=True)
    optimizer, recording = torch.optim.SGD([weight], lr=0.1), Recording("optimizes")

    def f(x):
        return (torch.sin(weight) * x).sum()

    g = sot.to_static(f, backend="eager")
    with recorded(recording):
        for _ in range(3):
            optimizer.zero_grad()
            g(torch.ones(3)).backward()
            optimizer.step()
    report = report_of(recording)
    assert report.optimizers.in_python > 0 and report.optimizers.seconds > 0
    assert report.in_python == 6     # torch.ones, and the gradient that backward() begins with


def test_many_operations_of_python_are_sampled():
    recording = Recording("many")
    with recorded(recording):
        for _ in range(100_000):
            torch.sin(X)
    assert 10_000 < recording.in_python.operations.total() < 300_000      # fewer on a machine with other work
    assert recording.in_python.seconds.total() < recording.elapsed


@pytest.mark.slow
def test_a_process_forked_while_operations_are_sampled_can_run_operations():
    pages = [bytes(4096) for _ in range(20_000)]    # a fork that takes longer meets the sampler more often
    with recorded(Recording("forks")):
        for _ in range(6000):
            torch.sin(X)
        for _ in range(100):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)
                torch.sin(X)
                os._exit(0)
            torch.sin(X)
            assert os.waitpid(child, 0)[1] == 0
    assert len(pages) == 20_000


# ---- the timeline -------------------------------------------------------------------------------------------
def test_a_step_goes_from_one_run_of_a_graph_to_its_next():
    report = reported(sleeps, calls=6, args=(torch.ones(1 << 16),))     # two microseconds would not be drawn
    found = step(report)
    bars = [event for event, _, _ in found.threads[0]]
    assert not found.whole and found.seconds >= NAP
    assert [event.kind for event in bars].count("python") == 1
    assert {event.name for event in bars if event.kind == "graph"} == {"sleeps"}
    assert all(0 <= left and left + width <= 100.001 for _, left, width in found.threads[0])


def test_a_trace_file_has_every_event(tmp_path):
    report = reported(sleeps)
    report.save(tmp_path / "run.trace.json")
    data = json.loads((tmp_path / "run.trace.json").read_text())
    slices = [event for event in data["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(report.events) + len(report.stages)
    assert {event["cat"] for event in slices} >= {"graph", "Python after a break", "capture"}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)


def test_only_the_last_events_are_kept():
    report = reported(sleeps, calls=1)
    _hook.keep_events(3)
    clock = _hook.Clock(7)
    for _ in range(5):
        clock.run(int)
    assert [number for number, *_ in _hook.kept_events()] == [7, 7, 7] and clock.runs == 5
    _hook.keep_events(0)
    clock.run(int)
    assert _hook.kept_events() == [] and report.events


def test_a_clock_within_a_clock_takes_its_own_time():
    outer, inner = _hook.Clock(1), _hook.Clock(2)
    with outer:
        inner.run(time.sleep, NAP)
    assert inner.own == inner.total and outer.total >= inner.total
    assert outer.own == outer.total - inner.total
    with outer, pytest.raises(RuntimeError, match="runs already"), outer:
        pass


# ---- the page -----------------------------------------------------------------------------------------------
def test_the_page_begins_with_three_facts_and_explains_each_reason():
    text = page(reported(two_breaks))
    assert "of the tensor time passed in graphs" in text and "lost to 2 breaks" in text and "Change first" in text
    assert 'href="#reason-SIDE_EFFECT"' in text and 'id="reason-SIDE_EFFECT"' in text


class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.up, self.down = torch.nn.Linear(size, size), torch.nn.Linear(size, size)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def test_the_page_of_a_deep_model_is_as_large_as_that_of_one_block():
    sizes = {}
    for depth in 2, 24:
        model = torch.nn.Sequential(*(Block(4) for _ in range(depth)))
        sizes[depth] = len(page(sot.explain(model)(torch.ones(2, 4)).report))
    assert sizes[24] < 1.3 * sizes[2]


# ---- runs that are not measured ---------------------------------------------------------------------------
def test_short_graphs_are_measured_now_and_then_and_the_other_runs_count_with_the_mean():
    calls, shares = 4000, []
    for _ in range(5):      # a measured run that another process interrupts counts for many
        clock, outside, start = _hook.Clock(1, True), _hook.Clock(2), time.perf_counter()
        for _ in range(calls):
            clock.run(sum, range(20))
        with outside:
            for _ in range(calls):
                clock.run(sum, range(20))
        shares.append(clock.total / ((time.perf_counter() - start) * 1e9))
        assert clock.runs == 2 * calls and 0 < clock.own == clock.total
        assert outside.own < outside.total, "it is not time of the clock around it"
    assert min(shares) < 0.8, "a run that is not measured counts, but only once"   # 0.5: the rest is the loop


def test_a_short_graph_that_becomes_long_is_measured_again():
    clock = _hook.Clock(1, True)
    for _ in range(1000):
        clock.run(sum, ())
    for _ in range(64):
        clock.run(time.sleep, 0.001)
    assert clock.total > 30 * 1e6


def test_a_step_of_a_timeline_does_not_span_runs_that_were_not_measured():
    starts = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 20.0]
    assert whole_steps(starts)[-1] == (11.0, 12.0)
    assert whole_steps([0.0, 5.0]) == [(0.0, 5.0)] and whole_steps([3.0]) == whole_steps([]) == []


def test_a_recording_of_a_program_captures_nothing_of_its_own(monkeypatch):
    monkeypatch.delitem(native.modules, "tally", raising=False)     # as in a new process
    with enable_all():
        recording = Recording("nothing").start().stop()
    assert recording.captures == []
