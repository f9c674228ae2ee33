"""Output and warnings that Python code of the program gets. They come after the graph, so where this code may change
what the function reads, Python makes the call.
"""
from __future__ import annotations

import logging
import sys
import warnings

import pytest
import torch
from harness import same

import sot

X = torch.tensor([1.0, 2.0])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


class Kept:
    """A stream that keeps what is written."""

    def __init__(self):
        self.texts = []

    def write(self, text):
        self.texts.append(text)
        return len(text)

    def flush(self):
        pass


def check_calls(calls, backend):
    """``calls`` gives the results of some calls of what it gets back for its function."""
    want, got = calls(lambda f: f), calls(lambda f: sot.to_static(f, backend=backend))
    assert same(want, got) is None, (want, got)


@BACKENDS
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_keeps_what_the_function_reads(name, backend, monkeypatch):
    def calls(translate):
        kept, found, standard = Kept(), [], getattr(sys, name)

        def f(x):
            if name == "stdout":
                print("shape", tuple(x.shape))
            else:
                print("shape", tuple(x.shape), file=sys.stderr)
            return x + 1, list(kept.texts)
        fn = translate(f)
        for stream in (standard, kept, standard):
            monkeypatch.setattr(sys, name, stream)
            found += [fn(X), fn(X)]
        return found
    check_calls(calls, backend)


@BACKENDS
def test_a_stream_of_the_program_from_the_first_call_on(backend, monkeypatch):
    def calls(translate):
        kept = Kept()
        monkeypatch.setattr(sys, "stdout", kept)

        def f(x):
            print("first", end="")
            seen = len(kept.texts)
            sys.stdout.write("second")
            return x * seen, list(kept.texts)
        fn = translate(f)
        return [fn(X), fn(X), fn(X)]
    check_calls(calls, backend)


def test_a_stream_that_only_passes_text_on_is_no_break_of_the_function(monkeypatch, capsys):
    class Both:
        def __init__(self, *streams):
            self.streams = streams

        def write(self, text):
            for stream in self.streams:
                stream.write(text)

        def flush(self):
            pass
    monkeypatch.setattr(sys, "stdout", Both(sys.stdout))

    @sot.to_static
    def f(x):
        print("shape", tuple(x.shape))
        return x + 1
    f(X)
    shown = f.explain()
    assert len(shown.graphs) == 1 and capsys.readouterr().out == "shape (2,)\n"
    assert not [place for found in shown.breaks for place in found.stack if place.function == "f"]


@BACKENDS
def test_a_function_in_place_of_showwarning_and_warnings_of_torch(backend, monkeypatch):
    def calls(translate):
        seen = []
        monkeypatch.setattr(warnings, "showwarning", lambda message, *place: seen.append(type(message)))

        def f(x):
            y = torch.nn.functional.softmax(x)
            return y, list(seen)
        fn = translate(f)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            return [fn(X), fn(X)]
    check_calls(calls, backend)


@BACKENDS
@pytest.mark.parametrize("warn", [lambda x: warnings.warn("careful", stacklevel=1), torch.nn.functional.softmax],
                         ids=["the program's", "torch's"])
def test_warnings_that_are_logged(warn, backend):
    def calls(translate):
        seen, found = [], []

        class Keep(logging.Handler):
            def emit(self, record):
                seen.append(record.levelname)
        handler, logger = Keep(), logging.getLogger("py.warnings")

        def f(x):
            warn(x)
            return x + 1, list(seen)
        fn = translate(f)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for change in (lambda: None, lambda: logger.addHandler(handler), lambda: logging.captureWarnings(True),
                           lambda: logging.captureWarnings(False)):
                change()
                found += [fn(X), fn(X)]
        logger.removeHandler(handler)
        return found
    check_calls(calls, backend)
