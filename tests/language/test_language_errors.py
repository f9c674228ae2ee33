"""Exceptions, by the language reference: what is raised, caught, chained, cleaned up."""
from __future__ import annotations

import sys

import torch
from harness import Programs, chain, check

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


class Odd(Exception):
    pass


class Detailed(ValueError):
    def __init__(self, code, detail="none"):
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail

    def __str__(self):
        return f"<{self.code}>"


# ---- try ------------------------------------------------------------------------------------------------------------
def steps(log, raise_in=None, how="fall"):
    for i in range(2):
        try:
            log.append("try")
            if raise_in == "try":
                raise Odd("try")
            if how == "return":
                return "returned"
            if how == "break":
                break
            if how == "continue":
                continue
        except Odd as e:
            log.append(("except", e.args))
            if how == "raise":
                raise KeyError("from except") from None
            if how == "return in except":
                return "returned in except"
        else:
            log.append("else")
            if raise_in == "else":
                raise Odd("else")
        finally:
            log.append(("finally", i))
            if raise_in == "finally":
                raise TypeError("finally")
        log.append("after")
    else:
        log.append("loop ended")
    return "end"


@program
def try_except_else_finally(x):
    log, results = [], []
    for raise_in in (None, "try", "else", "finally"):
        for how in ("fall", "return", "break", "continue", "raise", "return in except"):
            try:
                results.append(steps(log, raise_in, how))
            except Exception as e:
                results.append(chain(e))
    return log, results, x + 1


@program
def finally_overrides(x):
    def returns():
        try:
            return 1
        finally:
            return 2  # noqa: B012

    def swallows():
        try:
            raise Odd
        finally:
            return "swallowed"  # noqa: B012

    def breaks():
        for i in range(3):
            try:
                return i
            finally:
                if i < 2:
                    continue  # noqa: B012
        return "ended"

    def breaks_out():
        while True:
            try:
                raise Odd
            finally:
                break  # noqa: B012
        return "broken out"

    def mutates():
        a = [1]
        try:
            return a
        finally:
            a.append(2)
            a = None
    return returns(), swallows(), breaks(), breaks_out(), mutates(), x + 1


@program
def nested_handlers(x):
    log = []
    try:
        try:
            try:
                raise Odd(1)
            except KeyError:
                log.append("never")
            finally:
                log.append("inner finally")
        except (ValueError, Odd) as e:
            log.append(e.args)
            try:
                {}["k"]
            except LookupError as f:
                log.append((type(f).__name__, f.args, f.__context__ is e))
            raise
    except Odd as e:
        log.append(("again", e.args, e.__context__))
    try:
        e  # noqa: F821
    except NameError as n:
        log.append(type(n).__name__)
    return log, sys.exc_info()[0], x + 1


@program
def selection_of_handlers(x):
    def pick(e):
        try:
            raise e
        except (KeyError, IndexError) as found:
            return "lookup", found.args
        except ArithmeticError:
            return "arithmetic"
        except Odd:
            return "odd"
        except ():
            return "never"
        except:  # noqa: E722
            return "bare", sys.exc_info()[1].args
    return [pick(e) for e in (KeyError("k"), IndexError(), ZeroDivisionError(), Odd, Odd(1), Detailed(5), Odd)], x + 1


@program
def errors_of_python(x):
    def attempt(f):
        try:
            return f()
        except Exception as e:
            return chain(e)
    return ([attempt(f) for f in (lambda: 1 / 0, lambda: [][1], lambda: {}["k"], lambda: None.a, lambda: unknown,  # noqa: F821
             lambda: int("q"), lambda: 1 + "a", lambda: len(5), lambda: iter(5), lambda: next(iter([])),
             lambda: "a" < 1, lambda: (1)(), lambda: [].pop(), lambda: X.no_such)], x + 1)


@program
def chaining(x):
    found = []

    def explicit():
        try:
            raise Odd(1)
        except Odd as e:
            raise ValueError(2) from e

    def implicit():
        try:
            raise Odd(1)
        except Odd:
            raise ValueError(2)  # noqa: B904

    def suppressed():
        try:
            raise Odd(1)
        except Odd:
            raise ValueError(2) from None

    def from_class():
        raise ValueError(2) from Odd

    def both_classes():
        raise ValueError from Odd

    def deeper():
        try:
            try:
                raise Odd(1)
            finally:
                raise KeyError(2)
        except KeyError:
            implicit()

    def in_a_call():
        try:
            raise Odd(1)
        except Odd:
            suppressed()

    def assigned():
        e = Odd(1)
        e.__cause__ = KeyError(2)
        e.__context__ = ValueError(3)
        e.__suppress_context__ = False
        raise e

    def again():
        try:
            raise Odd(1)
        except Odd as e:
            try:
                raise KeyError(2)
            except KeyError:
                raise e  # noqa: B904
    for f in (explicit, implicit, suppressed, from_class, both_classes, deeper, in_a_call, assigned, again):
        try:
            f()
        except Exception as e:
            found.append((f.__name__, chain(e)))
    return found, x + 1


@program
def reraising(x):
    found = []

    def bare():
        try:
            raise Odd("first")
        except Odd as e:
            found.append(e)
            raise

    def through(depth):
        try:
            bare() if depth == 0 else through(depth - 1)
        except Odd as e:
            found.append(e)
            raise e

    def in_helper():
        def helper():
            raise  # noqa: PLE0704
        try:
            raise KeyError("k")
        except KeyError:
            helper()
    try:
        through(2)
    except Odd as e:
        found.append(e)
    try:
        in_helper()
    except KeyError as e:
        found.append(e)
    return len(found), all(f is found[0] for f in found[:-1]), [chain(f) for f in found], x + 1


@program
def own_exceptions(x):
    try:
        raise Detailed(5, detail="d")
    except ValueError as e:
        kept = e
    try:
        raise Odd
    except Odd as e:
        empty = e
    empty.note = "attribute"
    return (kept.code, kept.detail, kept.args, str(kept), isinstance(kept, Detailed), empty.args, str(empty),
            empty.note, str(KeyError("k")), repr(Odd(1, "a")), f"{Odd(2)}", Odd(1) == Odd(1), x + 1)


@with_breaks
def wrong_raises(x):
    def attempt(f):
        try:
            f()
        except Exception as e:
            return chain(e)

    def a_string():
        raise "text"

    def bare():
        raise  # noqa: PLE0704

    def bad_cause():
        raise Odd from 5

    def bad_except():
        try:
            raise Odd
        except "text":
            pass

    def instance_without_arguments():
        raise Detailed
    return [attempt(f) for f in (a_string, bare, bad_cause, bad_except, instance_without_arguments)], x + 1


@with_breaks
def exception_groups(x):
    log = []
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError("k"), Odd()])
    except* (ValueError, Odd) as e:
        log.append([type(v).__name__ for v in e.exceptions])
        x = x * 2
    except* KeyError as e:
        log.append(e.exceptions[0].args)
        log.append(float(x.sum()))
    return log, x + 1


@with_breaks
def breaks_in_every_clause(x):
    log = []

    def f(raising):
        try:
            log.append(float(x.sum()))
            if raising:
                raise Odd(1)
        except Odd as e:
            log.append((e.args, float((x + 1).sum())))
            log.append(type(sys.exc_info()[1]).__name__)
        else:
            log.append(float((x + 2).sum()))
        finally:
            log.append(float((x + 3).sum()))
        return x * 2
    return f(False), f(True), log, sys.exc_info()[0]


@with_breaks
def handled_exceptions_survive_breaks(x):
    def inner():
        try:
            raise KeyError("inner")
        except KeyError as e:
            n = float(x.sum())
            return n, sys.exc_info()[1] is e, chain(e)
    try:
        raise ValueError("outer")
    except ValueError as e:
        first = inner()
        second = type(sys.exc_info()[1]).__name__, sys.exc_info()[1] is e
        try:
            raise Odd(float((x + 1).sum()))
        except Odd as o:
            third = chain(o)
    return first, second, third, sys.exc_info()[0], x + 1


@with_breaks
def errors_of_c_code_and_torch(x):
    found = []
    for f in (lambda: x @ torch.ones(7), lambda: x.view(3), lambda: torch.cat([]), lambda: x.reshape("a"),
              lambda: complex(x), lambda: bytes("text"), lambda: open("/no/such/file")):
        try:
            f()
        except Exception as e:
            found.append(type(e).__name__)
            try:
                raise Odd(1)
            except Odd as o:
                found.append((o.__context__ is e, type(o.__context__).__name__))
    return found, x + 1
