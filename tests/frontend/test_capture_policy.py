"""What of a whole program is captured: what pays, within the budget. The clock is the test's; captures are counted."""
import gc
import os
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest
import torch
from rich.console import Console
from translating import X
from whole_programs import enabled_program

import sot
from sot import _hook
from sot.backends import lookup_backend
from sot.backends.dynamo import DynamoBackend
from sot.backends.eager import eager
from sot.backends.selection import compile_time
from sot.driver import capture_policy
from sot.driver.capture_policy import PATIENCE, WATCHED, Policy, Verdict, Work
from sot.frontend.global_mode import enable_all
from sot.reports.build import report_of
from sot.reports.recording import Recording, recorded
from sot.reports.views.page import page
from sot.reports.views.terminal import show
from sot.support import settings
from sot.support.settings import ALWAYS_THERE, EVERYTHING, Budget


class Clock:
    """Moves only when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def program(backend, monkeypatch):
    """Makes a whole program with a policy, and enables it until the test ends. All that captures need is loaded."""
    monkeypatch.setattr(capture_policy, "cost_of_loading", lambda: 0.0)
    module = torch.nn.Module
    for function in (Net.forward, torch.nn.Linear.forward, module._call_impl, module._wrapped_call_impl,
                     module.__getattr__):
        _hook.reset(function.__code__)      # the work of earlier tests, and that they left it alone, is forgotten
    with ExitStack() as until:
        yield lambda budget=Budget(), clock=None: enabled_program(
            backend, Policy(budget, clock or Clock(), Clock(), before=0.0), until)


def captured(program):
    return [c.name.rpartition(".")[2] for c in program.translator.captures if c.graph is not None]


def looked_into(program):
    return [c.name.rpartition(".")[2] for c in program.translator.captures]


class Net(torch.nn.Module):
    def __init__(self, layers=8):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu() + 1
        return x


def test_what_is_called_once_is_not_captured(program):
    made = program()
    Net()(torch.ones(2, 3))
    assert looked_into(made) == []


def test_a_model_is_captured_whole_once_its_calls_pay(program):
    made, net = program(), Net()
    expected = net(torch.ones(2, 3))
    for _ in range(100):
        assert torch.equal(net(torch.ones(2, 3)), expected)
    assert captured(made) == ["forward"]


def test_layers_wait_for_the_model_that_calls_them(program):
    made, net = program(), Net(60)
    for _ in range(20):
        net(torch.ones(2, 3))
    assert {c.name for c in made.translator.captures} == {"Net.forward"}


def test_a_loop_that_runs_once_does_not_hold_up_the_model_in_it(program):
    made, net = program(), Net()

    def train():
        for _ in range(4 * PATIENCE):
            net(torch.ones(2, 3))
    train()
    assert [c.name for c in made.translator.captures] == ["Net.forward"]


def test_code_without_tensors_is_never_looked_into(program):
    def words(text):
        return [w.lower() for w in re.findall(r"\w+", text)]

    def configure(n):
        return {"lines": words("some text " * n), "n": n}

    made = program()
    before = _hook.stats()["hooked"]
    for n in range(200):
        configure(n)
    assert looked_into(made) == [] and _hook.stats()["hooked"] == before


def test_bookkeeping_around_a_few_operations_is_left_to_python(program):
    def note(history, name, value):
        history.setdefault(name, []).append(value)

    def log_step(x, history):
        for i in range(200):
            note(history, f"metric {i}", i)
        return x + 1

    made, history = program(), {}
    for _ in range(100):
        log_step(X, history)
    assert looked_into(made) == [] and len(history["metric 7"]) == 100


def test_the_pace_is_that_of_the_code_and_not_of_the_program(program):
    clock, net = Clock(), Net()
    made = program(clock=clock)
    for _ in range(WATCHED):            # the weights are made, the data is loaded
        torch.ones(2)
        clock.now += 1000
    for _ in range(WATCHED + 1):
        net(torch.ones(2, 3))
        clock.now += 0.01
    assert captured(made) == ["forward"]


def test_frames_that_are_left_alone_count(program):
    """Those of torch's own code are, once a translator has been asked about them: Module.__call__."""
    program()

    def inner(x):
        return x + 1

    def outer(x):
        return inner(inner(x))
    outer(torch.ones(2))
    _hook.skip(inner.__code__)
    outer(torch.ones(2))
    assert _hook.work_of(outer.__code__)[3] == 2 * 3


def test_operations_without_calls_of_python_gain_nothing(program):
    def arithmetic(x):
        for i in range(40):
            x = x * 2 + i
        return x

    made = program()
    for _ in range(100):
        arithmetic(torch.ones(2, 3))
    assert looked_into(made) == []


def test_what_was_found_poor_is_captured_later_only_for_more(program):
    clock, net = Clock(), Net()
    policy = program(clock=clock).policy
    few, many = Work(WATCHED, 100, 0, 100 * WATCHED, 0, True), Work(8 * WATCHED, 800, 0, 800 * WATCHED, 0, True)
    clock.now = 1.0
    poor = Net.forward.__code__
    net(torch.ones(2, 3)), net(torch.ones(2, 3))
    paces = [policy.to_come(poor, work.calls - 1, 8.0) * work.saved / work.cost for work in (few, many)]
    assert paces[1] > paces[0]
    assert policy.pays(poor, few, 8.0, 1.5 / paces[0]) and not policy.pays(poor, many, 8.0, 1.5 / paces[1])


def test_what_is_called_rarely_is_not_captured(program):
    clock, net = Clock(), Net()
    made = program(clock=clock)
    for _ in range(20):
        net(torch.ones(2, 3))
        clock.now += 1000
    assert looked_into(made) == []


def test_operations_that_graphs_run_are_nobodys_work(program):
    made, net = program(), Net()

    def step(x):
        return net(x).sum()
    for _ in range(100):
        step(torch.ones(2, 3))
    _, operations, in_modules, _, _, _ = _hook.work_of(step.__code__)
    calls_before_capture = in_modules / 24
    assert "forward" in captured(made) and calls_before_capture < 40 and operations < 40 * 26 + 100


# ---- the budget -------------------------------------------------------------------------------------------
def test_nothing_is_captured_without_a_budget_and_the_report_can_say_what_was_left(program):
    made, net = program(Budget(0, 0)), Net()
    for _ in range(100):
        net(torch.ones(2, 3))
    assert looked_into(made) == [] and set(made.policy.left_out) == {"Net.forward"}


def test_the_budget_grows_with_the_running_time():
    clock = Clock()
    policy = Policy(Budget(0.2, 2), clock, before=5.0)
    assert policy.allowance() == pytest.approx(3.0)
    with policy.spending():
        clock.now += 3
    assert policy.allowance() == pytest.approx(0.6)
    clock.now += 10
    assert policy.allowance() == pytest.approx(2.6)


@pytest.mark.parametrize(("text", "found"), [("", Budget(0.2, 2)), ("0.1", Budget(0.1, 2)), ("0,0", Budget(0, 0)),
                                             ("0.5,10", Budget(0.5, 10)), ("all", settings.EVERYTHING)])
def test_what_the_variable_says(monkeypatch, text, found):
    monkeypatch.setenv("SOT_BUDGET", text)
    assert settings.budget() == found


@pytest.mark.parametrize("text", ["much", "-1", "0.2,2,3", "0.2,-1", "nan", "inf"])
def test_a_budget_that_means_nothing_is_refused(monkeypatch, text):
    monkeypatch.setenv("SOT_BUDGET", text)
    with pytest.raises(sot.SotError, match="it takes the share of the running time"):
        sot.enable()


def test_the_report_says_what_was_left_for_lack_of_budget(program, capsys):
    recording = Recording("program")
    with recorded(recording):
        made, net = program(Budget(0, 0)), Net()
        recording.left_out = made.policy.left_out
        for _ in range(100):
            net(torch.ones(2, 3))
    report = report_of(recording)
    assert report.left_out == ["Net.forward"] and "lack of budget" in page(report)
    show(report, Console())
    assert "Net.forward" in capsys.readouterr().out


def codes(word):
    return [ord(letter) for letter in word]


def collated(records):
    return torch.stack([torch.tensor(codes(word) + [0] * (8 - len(word))) for record in records for word in record])


@pytest.mark.parametrize("takes_all", [False, True])
def test_code_that_makes_tensors_of_records_is_left_to_python_after_one_capture(program, takes_all):
    made = program(EVERYTHING if takes_all else Budget(0.2, 60))
    for i in range(40):
        collated([[f"{i}{j}{k}" for k in range(5)] for j in range(20)])
    captures = [c for c in made.translator.captures if c.name == "collated"]
    assert (len(captures) > 1) == takes_all
    assert takes_all or "100 items of its arguments" in str(captures[0].stopped)


def test_who_asks_what_can_be_captured_gets_everything(monkeypatch, backend):
    monkeypatch.setenv("SOT_BUDGET", "")

    def once(x):
        return x + 1
    for enable, count in [(sot.enable, 0), (enable_all, 1)]:
        with enable(backend=backend):
            once(X)
        assert len(backend.graphs) == count


# ---- captures again ---------------------------------------------------------------------------------------
def test_a_function_whose_captures_never_fit_is_captured_ever_more_rarely(program):
    made, table = program(), {}

    def pick(x, key):
        return [x + len(table.setdefault(key, key)) + i for i in range(20)][-1].relu()
    for i in range(200):
        torch.testing.assert_close(pick(X, "k" * (i % 50)), (X + i % 50 + 19).relu())
    assert looked_into(made).count("pick") <= 6


def test_recaptures_become_rarer(program):
    clock, net, needed = Clock(), Net(), []
    made, code = program(clock=clock), Net.forward.__code__
    net(torch.ones(2, 3)), net(torch.ones(2, 3))
    for captures in range(1, 5):
        clock.now += 1
        needed.append(next(n for n in range(1, 10**5) if made.policy.may_recapture(code, captures, n)))
    assert WATCHED < needed[0] < 100 and all(more > 2 * before for before, more in zip(needed, needed[1:]))


def test_calls_that_no_capture_fits_are_decided_on_ever_more_rarely(program, monkeypatch):
    made, net, asked = program(), Net(), []
    may_recapture = made.policy.may_recapture
    monkeypatch.setattr(made.policy, "may_recapture", lambda code, captures, misses: (
        asked.append(misses), may_recapture(code, captures, misses))[-1])
    for _ in range(20):
        net(torch.ones(2, 3))
    other, double = torch.ones(2, 3, dtype=torch.float64), Net().double()
    made.policy.before = 3600.0     # seconds that the program has been running
    made.policy.spent, spent = 1e9, made.policy.spent
    for _ in range(300):
        double(other)
    assert looked_into(made) == ["forward"] and len(asked) < 40
    made.policy.spent = spent
    for _ in range(100):
        double(other)
    assert looked_into(made) == ["forward"] * 2
    assert asked == sorted(asked) and asked[-1] > 300, "the calls that were not decided on count, too"


def test_one_batch_of_another_size_is_no_reason_to_capture_again(program):
    clock, net = Clock(), Net()
    made = program(clock=clock)
    for i in range(200):
        net(torch.ones(5 if i % 100 == 99 else 2, 3))
        clock.now += 0.01
    assert looked_into(made) == ["forward"]


def test_a_wrapper_around_functions_that_call_each_other_is_not_captured_but_they_are(program):
    def logged(function):
        def wrapper(*args):
            return function(*args)
        return wrapper

    @logged
    def layer(x):
        for _ in range(12):
            x = torch.nn.functional.relu(x) + 1
        return x

    @logged
    def evaluate(x):
        return [layer(x + i).sum().item() for i in range(4)]

    made = program()
    for _ in range(50):
        evaluate(torch.ones(2, 3))
    assert looked_into(made) == ["evaluate"]


@pytest.mark.slow
def test_what_a_program_does_at_its_end_is_not_captured_again(program):
    clock, net = Clock(), Net(60)
    made = program(clock=clock)
    for i in range(300):        # a quarter of a second, then other batches for a shorter time
        net(torch.ones(2 if i < 250 else i, 3))
        clock.now += 0.001
    assert looked_into(made) == ["forward"]


def test_a_program_that_runs_for_long_is_captured_again_when_its_batches_change(program):
    clock, net = Clock(), Net()
    made = program(clock=clock)
    for i in range(100):
        net(torch.ones(2, 3))
        clock.now += 0.01
    made.policy.before = 3600.0
    for i in range(100):
        net(torch.ones(5, 3))
        clock.now += 0.01
    assert looked_into(made) == ["forward"] * 2


def test_sizes_that_keep_changing_are(program):
    made, net = program(), Net()
    for i in range(300):
        net(torch.ones(2 + i, 3))
    assert looked_into(made) == ["forward"] * 2


def test_the_model_of_costs():
    module = Work(10, 100, 0, 300, 0, True)
    caller = Work(10, 120, 100, 500, 300, False)
    assert (module.own, caller.own) == (100, 20) and (module.own_frames, caller.own_frames) == (300, 200)
    assert module.cost > Work(10, 50, 0, 300, 0, True).cost and module.saved > caller.saved
    assert not Work(10, 100, 100, 500, 400, False).is_dense and not Work(1, 1, 0, 500, 0, False).is_dense


def test_compiling_has_to_fit_the_budget():
    """The first graph takes as long as expected, the second a tenth, because the compiler's cache has it."""
    clock = Clock()
    policy = Policy(Budget(0.2, 2), clock, before=0.0, compile_time=(10.0, 4.0, 0.25))
    work = Work(10, 80, 0, 500, 0, True)
    assert policy.compiling(work) == pytest.approx(16.0) and policy.allowance() < 16
    clock.now = 80.0
    assert policy.compiling(work) <= policy.allowance()
    policy.compiled(10.0, 8)
    assert policy.compiling(work) == pytest.approx(6.0)
    policy.compiled(0.3, 8)
    assert policy.compiling(work) == pytest.approx(0.6)


@pytest.mark.parametrize(("budget", "found"), [(Budget(0.2, 2), []), (Budget(0.2, 1000), ["Net.forward"])])
def test_a_compiler_of_kernels_is_not_asked_for_what_the_budget_forbids(program, budget, found):
    made, net = program(budget), Net()
    made.policy.compile_time = compile_time(DynamoBackend("inductor"))
    for _ in range(100):
        net(torch.ones(2, 3))
    assert looked_into(made) == [name.rpartition(".")[2] for name in found]
    assert set(made.policy.left_out) == (set() if found else {"Net.forward"})


def test_what_backends_are_expected_to_take():
    assert compile_time(eager) == compile_time(lambda gm, inputs: gm) == (0, 0, 0)
    assert 0 < compile_time(DynamoBackend("aot_eager")).graph < compile_time(DynamoBackend("inductor")).graph


@pytest.mark.parametrize("name", ALWAYS_THERE)
def test_what_is_known_of_a_backend_before_it_is_looked_up(name):
    assert compile_time(lookup_backend(name)) == ALWAYS_THERE[name]


def test_nothing_is_decided_before_code_has_been_watched():
    def f():
        return 0
    policy = Policy(Budget(), Clock(), before=0.0)
    assert policy.verdict(f.__code__, lambda code: True) is Verdict.LATER
    assert [code for code, _ in policy.left_to_python()] == [f.__code__]


# ---- processes --------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "eager", "inductor"])
def test_the_translator_is_not_loaded_where_nothing_is_captured(tmp_path, name):
    (tmp_path / "program.py").write_text(
        "import sys, torch\n"
        "print(torch.ones(2) + 1)\n"
        "print(sorted({'rich', 'sot.interpreter', 'sot.driver.translator'} & {*sys.modules}))\n")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "SOT_ENABLE": "1", "SOT_BUDGET": "", "SOT_BACKEND": name})
    assert done.stdout == "tensor([2., 2.])\n[]\n", done.stderr


@pytest.mark.slow
def test_code_that_is_freed_is_forgotten(program):
    program()
    space = {"torch": torch}
    exec("def f(x): return x + 1", space)
    for _ in range(5):
        space["f"](X)
    code = space.pop("f").__code__
    assert _hook.work_of(code)[0] == 5
    del code
    gc.collect()
