"""Options of torch for printing: text shows a tensor with the options of the place where the program makes it."""
import logging

import pytest
import torch
from harness import Programs, check, check_by

import sot

program = Programs()


@program
def text_between(x):
    torch.set_printoptions(precision=2)
    try:
        return repr(x), x + 1
    finally:
        torch.set_printoptions(profile="default")


@program
def text_and_output_before_within_and_after(x):
    before = str(x)
    print(x, [x], {"a": x})
    with torch._tensor_str.printoptions(precision=1, sci_mode=True):
        within = f"{x} {x.sum():.3f}" + "%s %.2f" % (x, x.sum())
        print(x, [x])
        number = x.sum().item()
    print(x)
    x.mul_(2)
    return before, within, number, str(x)


@program
def options_that_stay(x):
    first = repr(x)
    torch.set_printoptions(precision=6)
    second = repr(x)
    print(x)
    torch.set_printoptions(precision=5)
    return first, second, torch._tensor_str.get_printoptions(), x + 1


@pytest.fixture(autouse=True)
def as_before():
    before = torch._tensor_str.get_printoptions()
    yield
    torch.set_printoptions(**before)


def x():
    return torch.arange(6.0).reshape(2, 3) / 7


@program.each
def test_text_shows_the_options_of_its_place(fn):
    torch.set_printoptions(precision=5)
    check(fn, x(), graphs=1, breaks=0)
    check_by("aot_eager", fn, x(), breaks=0)


def test_other_options_before_the_call_are_another_capture():
    def shown(x):
        torch.set_printoptions(threshold=3, edgeitems=1)
        text = repr(x)
        torch.set_printoptions(threshold=1000, edgeitems=3)
        return text
    translated = sot.to_static(shown, backend="eager")
    for precision in (2, 3, 2):
        torch.set_printoptions(precision=precision)
        assert translated(x()) == shown(x())
        torch.set_printoptions(precision=precision)


def test_options_that_stay_are_set_before_a_break():
    def broken(x):
        torch.set_printoptions(precision=7)
        text = repr(x + 1)
        sot.graph_break()
        more = repr(x * 2)
        torch.set_printoptions(precision=4)
        return text, more
    check(broken, x(), breaks=1)


def test_a_log_record_has_the_tensor(caplog):
    def logged(x):
        logging.getLogger("sot.test").warning("%s", x)
        torch.set_printoptions(precision=2)
        return x + 1
    translated = sot.to_static(logged, backend="eager")
    for _ in range(2):
        translated(x())
        assert isinstance(caplog.records[-1].args[0], torch.Tensor)
