"""``logging`` and ``warnings`` are replayed after the graph, in order, and name the user's line."""
from __future__ import annotations

import logging
import sys
import traceback
import warnings

import pytest
import torch
from harness import check, same

import sot

X = torch.arange(1.0, 5.0)


def records(fn, *args):
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            error = record.exc_info and (record.exc_info[0], str(record.exc_info[1]), [
                (f.name, f.lineno) for f in traceback.extract_tb(record.exc_info[2])])
            found.append((record.levelname, record.getMessage(), record.pathname, record.lineno, record.funcName,
                          error, getattr(record, "user", None)))
    logger, handler = logging.getLogger("sot.tests"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        fn(*args)
    finally:
        logger.removeHandler(handler)
    return found


def test_logging():
    def f(x):
        log = logging.getLogger("sot.tests")
        log.info("n=%d", x.numel())
        y = x * 2
        log.warning("shape %s", tuple(y.shape))
        return y
    translated = sot.to_static(f, backend="eager")
    assert records(translated, X) == records(f, X)
    assert not [c.stopped for c in translated.captures if c.stopped and c.place.function == "f"]


def replayed(fn):
    """The records, on two calls, are those of plain Python, and cost no graph."""
    translated = sot.to_static(fn, backend="eager")
    assert records(translated, X) == records(fn, X) != []
    assert records(translated, X) == records(fn, X)
    assert not [c.stopped for c in translated.captures if c.stopped and c.place.function == fn.__name__]


LOG = logging.getLogger("sot.tests")


def test_records_with_exceptions():
    def f(x):
        try:
            raise ValueError("no")
        except ValueError as e:
            LOG.exception("failed on %s", x.shape)
            LOG.error("again", exc_info=True)
            LOG.warning("and again", exc_info=e)
        LOG.info("over", exc_info=False)
        return x + 1
    replayed(f)


def test_records_with_extra_fields_levels_and_lines():
    def helper():
        LOG.info("from the caller's line", stacklevel=2)

    def f(x):
        LOG.log(logging.INFO, "a level", extra={"user": "someone"})
        helper()
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("sum %s", x.sum())
        logging.LoggerAdapter(LOG, {"user": "adapted"}).info("adapted")
        return x * 2
    replayed(f)


def test_records_show_values_as_they_were():
    def f(x):
        items = [x + 1]
        LOG.info("items %s", items)
        items[0].add_(1)
        items.append(2)
        LOG.info(f"items {items}")
        return items[0]
    replayed(f)


def test_a_level_that_changes_is_seen():
    def f(x):
        return x + 1 if LOG.isEnabledFor(logging.DEBUG) else x - 1
    translated = sot.to_static(f, backend="eager")
    LOG.setLevel(logging.INFO)
    assert torch.equal(translated(X), X - 1)
    LOG.setLevel(logging.DEBUG)
    assert torch.equal(translated(X), X + 1)


def test_functions_of_the_module():
    def f(x):
        logging.warning("root %d", x.numel())
        logging.log(logging.ERROR, "root too")
        return x + 1
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append((record.name, record.getMessage(), record.lineno))
    handler = Keep()
    logging.root.addHandler(handler)
    try:
        f(X)
        plain, found = found, []
        translated = sot.to_static(f, backend="eager")
        translated(X)
    finally:
        logging.root.removeHandler(handler)
    assert found == plain
    assert not [c.stopped for c in translated.captures if c.stopped and c.place.function == "f"]


def shown(fn, *args):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        fn(*args)
        return [(str(w.message), w.category, w.filename, w.lineno) for w in log]


def test_warnings_name_the_users_line():
    def helper():
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)

    def f(x):
        warnings.warn("careful")
        y = x * 2
        helper()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen")
        warnings.warn("last", FutureWarning)
        return y
    translated = sot.to_static(f, backend="eager")
    assert shown(translated, X) == shown(f, X)
    assert shown(translated, X) == shown(f, X)
    assert not [c.stopped for c in translated.captures if c.stopped]


def test_warnings_around_a_break():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen")
            n = float(x.sum())
            warnings.warn("nor this")
        warnings.warn("seen")
        return x * n
    assert shown(sot.to_static(f, backend="eager"), X) == shown(f, X)


def test_a_warning_for_the_callers_line_and_one_that_is_an_object():
    def f(x):
        warnings.warn("for who calls", stacklevel=2)
        warnings.warn("for who calls that", RuntimeWarning, stacklevel=3)
        warnings.warn(UserWarning("an object"))
        return x + 1
    translated = sot.to_static(f, backend="eager")
    assert shown(translated, X) == shown(f, X)
    assert shown(translated, X) == shown(f, X)
    assert not [c.stopped for c in translated.captures if c.stopped]


def test_warnings_that_are_errors():
    def f(x):
        y = x + 1
        try:
            warnings.warn("careful")
        except UserWarning as e:
            return y * 2, str(e)
        return y

    def made_errors(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("careful")
            except UserWarning as e:
                return x + 1, str(e)
        return x
    check(made_errors, X)
    translated = sot.to_static(f, backend="eager")
    for action in ("ignore", "error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert str(translated(X)) == str(f(X))


def test_warnings_that_are_recorded():
    def f(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warnings.warn("one")
            warnings.warn("two", DeprecationWarning)
        return x + len(found), [str(w.message) for w in found]
    check(f, X)


def test_a_message_that_no_logger_takes_may_have_any_arguments():
    logger = logging.getLogger("sot.tests.quiet")

    class Lazy:
        def __init__(self, make):
            self.make = make

        def __str__(self):
            return self.make()

    def f(x):
        logger.debug("value %s", Lazy(lambda: f"of {x.shape}"))
        return x + 1
    logger.setLevel(logging.INFO)
    check(f, X, graphs=1, breaks=0)
    translated = sot.to_static(f, backend="eager")
    translated(X)
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        translated(X)
    finally:
        logger.removeHandler(handler)
    assert messages == ["value of torch.Size([4])"]


def test_a_capture_empties_no_caches_of_loggers():
    logger = logging.getLogger("sot.tests.asked")

    def f(x):
        return x + 1 if logger.isEnabledFor(logging.DEBUG) else x + 2
    logger.setLevel(logging.INFO)
    first = sot.to_static(f, backend="eager")
    first(X)
    sot.to_static(lambda x: x * 2, backend="eager")(X)
    assert torch.equal(first(X), X + 2)
    assert len(first.captures) == 1 and logger._cache == {logging.DEBUG: False}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("order", [("level", "handler", "none", "filter"), ("handler", "level", "filter", "none")])
def test_a_handler_that_changes_what_the_function_reads(order, backend):
    """It comes before the level that lets the message pass, or after it."""
    def calls(translate):
        logger, seen = logging.getLogger("sot.tests.read"), []
        logger.setLevel(logging.WARNING)
        logger.propagate, logger.handlers, logger.filters = False, [], []

        class Keep(logging.Handler):
            def emit(self, record):
                seen.append(record.getMessage())

        def f(x):
            logger.info("shape %s", tuple(x.shape))
            return x + 1, list(seen)
        changes = {"level": lambda: logger.setLevel(logging.INFO), "handler": lambda: logger.addHandler(Keep()),
                   "none": lambda: logger.handlers.clear(),
                   "filter": lambda: logger.addFilter(lambda record: not seen.append("filtered"))}
        fn = translate(f)
        found = [fn(X), fn(X)]
        for change in order:
            changes[change]()
            found += [fn(X), fn(X)]
        return found
    want = calls(lambda f: f)
    assert len(want[-1][1]) > 3 and same(want, calls(lambda f: sot.to_static(f, backend=backend))) is None


def test_handlers_that_print_or_keep_records_are_no_breaks():
    class Shown(logging.Handler):
        kept = []

        def emit(self, record):
            print("handled", record.getMessage())
            self.kept.append(record)
    logger = logging.Logger("of.another.test")
    logger.addHandler(Shown())

    def f(x):
        print("before")
        logger.warning("shape %s", tuple(x.shape))
        print("after")
        return x + 1
    check(f, X, graphs=1, breaks=0)


@pytest.mark.parametrize("arguments", [
    ("%d", [1]), ("%d and %s", 1), ("%d", None), ("%s", 1, 2), ("%z", 1), ("%d", "one")], ids=str)
def test_the_call_stack_for_a_message_that_does_not_take_its_arguments(arguments, capsys):
    log = logging.getLogger("sot.tests.misfits")
    log.propagate = False       # to the handlers of pytest
    log.handlers[:] = [handler := logging.StreamHandler()]

    def program(x):
        log.warning(*arguments)
        return x + 1

    def printed(fn):
        handler.setStream(sys.stderr)
        fn(X)
        return capsys.readouterr().err
    translated = sot.to_static(program, backend="eager")
    for _ in range(2):
        want, *got = [printed(fn) for fn in (program, translated)]
        assert got == [want] and "Logging error" in want
