"""An exception that leaves a translated function has the traceback that Python would give it: the user's frames.

What stands between the caller and the function, ``StaticFunction.__call__``, is one frame more, as any decorator's.
"""
import inspect
import sys
import traceback

import torch
from harness import check

import sot


def places(error):
    """(function, line, source, columns) of each frame but those of decorators."""
    found = []
    while error is not None:
        found += [(f.name, f.lineno, f.line, f.colno, f.end_colno) for f in traceback.extract_tb(error.__traceback__)
                  if f.filename == __file__]
        found.append(repr(error))
        error = error.__cause__ or error.__context__
    return found


def stack():
    """(function, line) of each of the caller's frames, outermost first, up to the one that compares."""
    found = [(f.name, f.lineno) for f in traceback.extract_stack(sys._getframe(1)) if f.filename == __file__]
    return found[[name for name, _ in found].index("same_frames") + 1:]


def same_frames(fn, *args):
    """The same traceback or the same frames, plainly and translated, at the first call and the next."""
    translated = sot.to_static(fn)
    outcomes = []
    for call in (fn, translated, translated):
        try:
            outcomes.append(call(*args))
        except Exception as error:
            outcomes.append(places(error)[1:])      # the first is the line above
    assert outcomes[0] == outcomes[1] == outcomes[2]
    return outcomes[0]


def raises(x):
    y = x + 1
    raise ValueError(f"shape {tuple(y.shape)}")


def calls_raises(x):
    return raises(x * 2) - 1


def test_through_inlined_calls():
    def outer(x):
        return calls_raises(x - 1)

    names = [entry[0] for entry in same_frames(outer, torch.ones(2)) if isinstance(entry, tuple)]
    assert names == ["outer", "calls_raises", "raises"]


def test_after_breaks():
    def inner(x):
        sot.graph_break()
        y = x + 1
        sot.graph_break()
        return calls_raises(y)

    def outer(x):
        z = x * 2
        return inner(z) + z

    names = [entry[0] for entry in same_frames(outer, torch.ones(2)) if isinstance(entry, tuple)]
    assert names == ["outer", "inner", "calls_raises", "raises"]


def test_after_a_break_in_a_loop_in_a_try():
    def outer(x):
        for i in range(4):
            try:
                x = x + i
                if x.sum() > 4:
                    raises(x)
            except KeyError:
                pass
            finally:
                x = x * 2
        return x

    same_frames(outer, torch.ones(2))


def test_contexts_and_causes_have_tracebacks_of_their_own():
    def outer(x):
        try:
            calls_raises(x)
        except ValueError as e:
            sot.graph_break()
            raise KeyError("changed") from e

    same_frames(outer, torch.ones(2))


def test_in_a_generator():
    def rows(x):
        for row in x:
            yield row * 2
            raises(row)

    def outer(x):
        return [row + 1 for row in rows(x)]

    same_frames(outer, torch.ones(2, 2))


def test_an_error_of_a_tensor_operation():
    def product(x, y):
        z = x + 1
        return z @ y

    def outer(x, y):
        return product(x, y) * 2

    same_frames(outer, torch.ones(2, 3), torch.ones(2, 3))


def test_an_error_that_only_the_graph_can_see():
    def outer(x, i):
        y = x + 1
        return y[i] * 2

    same_frames(outer, torch.ones(3), torch.tensor([0, 7]))


def test_handled_inside_and_printed():
    def outer(x):
        try:
            calls_raises(x)
        except ValueError as e:
            return [(f.name, f.lineno, f.colno, f.end_colno) for f in traceback.extract_tb(e.__traceback__)]

    assert [name for name, *_ in same_frames(outer, torch.ones(2))] == ["outer", "calls_raises", "raises"]


def test_the_columns_that_are_marked_in_the_text():
    def outer(x):
        try:
            return x + (1 +
                        raises(x * 2))
        except ValueError:
            return traceback.format_exc()

    assert "^^^^" in same_frames(outer, torch.ones(2))


def test_the_stack_that_a_called_function_sees():
    def inner(x):
        return stack(), x + 1

    def outer(x):
        y = x * 2
        sot.graph_break()
        frames, z = inner(y)
        return frames, [*map(float, y + z)]

    frames, _ = same_frames(outer, torch.ones(2))
    assert [name for name, _ in frames] == ["outer", "inner"]


def test_the_depth_of_the_stack():
    """A break costs no level of recursion: what fits plainly fits translated."""
    def depth():
        return len(inspect.stack(0))

    def outer(x):
        y = x + 1
        sot.graph_break()
        return depth(), y.tolist()

    plain, translated = outer(torch.ones(2))[0], sot.to_static(outer)
    for _ in range(3):
        assert translated(torch.ones(2))[0] == plain


def test_errors_of_groups():
    def outer(x):
        try:
            raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
        except* ValueError as group:
            x = x + len(group.exceptions)
            raises(x)
        return x

    check_group(outer)


def check_group(fn):
    outcomes = []
    for call in (fn, sot.to_static(fn)):
        try:
            call(torch.ones(2))
        except ExceptionGroup as e:
            outcomes.append("".join(line for line in traceback.format_exception(e) if "__call__" not in line
                                    and "_call(" not in line))
    wanted, got = ([line for line in text.splitlines() if "outer" in line or "raises" in line or "Error" in line]
                   for text in outcomes)
    assert wanted == got


def test_what_is_called_in_a_loop_that_breaks_sees_one_frame():
    depths = []

    def note(x):
        depths.append(len(inspect.stack(0)))
        return x + 1

    def outer(x):
        for _ in range(5):
            x = note(x)
        return x

    check(outer, torch.ones(2))
    assert len(set(depths)) <= 2    # plain and translated
