"""``sys.stdout`` set by the program, by hand or by ``contextlib.redirect_stdout``."""
import contextlib
import io
import sys

import pytest
import torch

import sot


class Lines(list):
    def write(self, text):
        self.append(text)


LINES = Lines()


def to_a_stream_of_the_call(x):
    out = io.StringIO()
    print("before")
    with contextlib.redirect_stdout(out):
        print("hidden", 3)
    print("after")
    return x * 2, out.getvalue()


def set_by_hand(x):
    old, sys.stdout = sys.stdout, io.StringIO()
    try:
        print("in")
        sys.stdout.write("written")
        text = sys.stdout.getvalue()
    finally:
        sys.stdout = old
    print("out")
    return x * 2, text


def to_an_object_of_the_program(x):
    with contextlib.redirect_stdout(LINES):
        print("kept", x.shape)
    return x * 2


def to_the_other_stream(x):
    with contextlib.redirect_stdout(sys.stderr):
        print("to stderr")
    return x * 2


def left_set(x):
    print("before")
    sys.stdout = LINES
    print("kept")
    return x * 2


def left_by_an_exception(x):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            print("hidden")
            raise KeyError("z")
    except KeyError:
        print("caught")
    return x * 2, out.getvalue()


def nested(x):
    first, second = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(first):
        print(1)
        with contextlib.redirect_stdout(second):
            print(2)
        print(3)
    return x * 2, first.getvalue(), second.getvalue()


def with_a_tensor(x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("a")
        print(x.sum())
        print("b")
    return x + 1, out.getvalue()


def with_a_branch(x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("q")
        if x.sum() > 1:
            print("r")
    print("e")
    return x * 2, out.getvalue()


def before_an_error_of_the_graph(x):
    with contextlib.redirect_stdout(io.StringIO()):
        print("q")
        return x[torch.tensor([5])]


IN_GRAPHS = [to_a_stream_of_the_call, set_by_hand, to_an_object_of_the_program, to_the_other_stream, left_set,
             left_by_an_exception, nested]


def outcome(fn):
    """Result, what was printed where, and whether ``sys.stdout`` is as before."""
    LINES.clear()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            result = fn(torch.ones(3))
        except IndexError as e:
            result = repr(e)
        is_as_before = sys.stdout is out
    return str(result), out.getvalue(), err.getvalue(), list(LINES), is_as_before


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [*IN_GRAPHS, with_a_tensor, with_a_branch, before_an_error_of_the_graph])
def test_output_goes_where_the_program_says(fn, backend):
    translated, want = sot.to_static(fn, backend=backend), outcome(fn)
    for _ in range(3):
        assert outcome(translated) == want
    if fn in IN_GRAPHS:
        assert [c.stopped for c in sot.translation_of(translated).captures] == [None]
