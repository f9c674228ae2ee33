"""Operators that the program defines in Python. Their code runs while the graph runs, between other code."""
import itertools

import numpy as np
import pytest
import torch
from harness import check, check_by
from torch import Tensor

import sot

X = torch.arange(3.0)
SEEN, TABLE, COUNT, BUFFER, CONFIG = [], {"calls": 0}, 0, torch.zeros(3), {"scale": 2.0}
NUMBERS = itertools.count()


class Counter:
    def __init__(self):
        self.calls = 0

    def count(self):
        self.calls += 1


COUNTER = Counter()


def defined(kernel):
    """An operator ``sot_tests::...`` by a kernel."""
    made = torch.library.custom_op(f"sot_tests::{kernel.__name__}", kernel, mutates_args=())
    made.register_fake(torch.empty_like)
    return made


@defined
def appends(x: Tensor) -> Tensor:
    SEEN.append(1)
    return x * 2


@defined
def stores(x: Tensor) -> Tensor:
    TABLE["calls"] = TABLE["calls"] + 1
    return x * 2


@defined
def counts(x: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return x * 2


@defined
def counts_in_an_object(x: Tensor) -> Tensor:
    COUNTER.count()
    return x * 2


@defined
def adds(x: Tensor) -> Tensor:
    BUFFER.add_(1)
    return x * 2


@defined
def takes_a_number(x: Tensor) -> Tensor:
    return x * next(NUMBERS)


@defined
def prints(x: Tensor) -> Tensor:
    print("inside")
    return x * 2


@defined
def computes(x: Tensor) -> Tensor:
    y = x.clone().numpy()
    y *= CONFIG["scale"]
    return torch.from_numpy(np.sin(y) + max(1, 2))


def reset():
    global COUNT, NUMBERS
    SEEN.clear()
    TABLE["calls"] = COUNTER.calls = COUNT = 0
    BUFFER.zero_()


def reads_the_list(x):
    return appends(x) + 1, len(SEEN)


def reads_the_list_before(x):
    before = len(SEEN)
    y = appends(x) + before
    return y, len(SEEN), [*SEEN]


def reads_the_table(x):
    return stores(x), TABLE["calls"], stores(x + 1), TABLE["calls"]


def reads_the_variable(x):
    return counts(x), COUNT, counts(x + 1), COUNT


def reads_the_object(x):
    return counts_in_an_object(x), COUNTER.calls


def reads_the_tensor(x):
    return adds(x), BUFFER * 2, BUFFER.sum().item()


def prints_around(x):
    print("before")
    y = prints(x)
    print("after")
    return y


def reads_what_another_changes(x):
    y = appends(x)
    TABLE["calls"] += 1
    return computes(y), TABLE["calls"]


PROGRAMS = [reads_the_list, reads_the_list_before, reads_the_table, reads_the_variable, reads_the_object,
            reads_the_tensor, prints_around, reads_what_another_changes]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_what_an_operator_changes_is_read_in_its_order(backend, program):
    def started(x):
        return program(x)
    captured, found = sot.to_static(program, backend=backend), []
    for call in started, captured:
        reset()
        found.append([call(X) for _ in range(3)])
    check_equal(*found)


def check_equal(want, got):
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_output_of_an_operator_is_in_its_place():
    check(prints_around, X)


def test_operators_that_change_nothing_that_is_read_are_in_the_graph():
    def program(x):
        scale = CONFIG["scale"]
        return computes(x) * scale + computes(x + 1)
    check_by("eager", program, X, breaks=0)


def test_what_only_the_operator_uses_is_no_reason_for_a_break():
    check_by("eager", lambda x: appends(x) + takes_a_number(x) * 0, X, breaks=0)
