"""Strings that differ from call to call: what only shows them is one graph, whatever they are."""
import io
import logging

import pytest
import torch
from harness import Counter, Programs, outcome, same

import sot

programs = Programs()


def captures_of_calls(fn, *calls):
    """How many captures there are after each call, which does what plain Python does."""
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    counts = []
    for make in calls:
        want, got = outcome(fn, make(), {}), outcome(translated, make(), {})
        for name in ("result", "printed", "args"):
            assert not same(getattr(got, name), getattr(want, name), name)
        assert same(got.raised, want.raised) is None
        counts.append(len(sot.translation_of(translated).captures))
    return counts


X = torch.arange(6.0).reshape(2, 3) + 1


@programs
def printed(x, name):
    print(name, "at", x.shape, [name, {"a": (name, 1)}], sep="|")
    return x * 2, name


@programs
def formatted(x, name):
    return x * 2, f"{name}: {name:>10}, {name!r}", "%s-%5s" % (name, name), "{}{a!r:>4}".format(name, a=name)


@programs
def made_of_it(x, name):
    text = name.upper() + "/" + name.strip().title() + " ".join(["a", name.removesuffix("1")])
    return {"x": x + 1, "text": text, "again": text.lower()}


@programs
def in_an_exception(x, name):
    try:
        raise KeyError(name)
    except KeyError as e:
        found = str(e)
    if x.shape[0] == 2:
        raise ValueError(f"{found} is bad: {name}")


@programs
def beside_a_number(x, name):
    value = x.sum().item()
    print(f"{name}: {value:.2f}")
    return x * value, [name, value]


@programs
def written_as_a_list(x, name):
    values = (x * len([name])).flatten().tolist()
    return x + 1, f"{values} {values[0]:.3f}", str({"v": values, name: (values[1],)}) if not values else repr((values,))


@programs.each
def test_is_captured_twice_at_most(fn):
    counts = captures_of_calls(fn, *[lambda i=i: (X + i, f" name{i}") for i in range(6)])
    assert counts[2:] == [counts[1]] * 4, counts


def test_what_asks_for_the_value_is_captured_for_each():
    def fn(x, mode):
        return x * 2 if mode == "train" else x + 1
    counts = captures_of_calls(fn, *[lambda m=m: (X, m) for m in ("train", "eval", "train", "eval", "eval")])
    assert counts == [1, 2, 2, 2, 2]


def test_another_type_is_seen():
    def fn(x, name):
        return x * 2, f"{name:>8}"
    captures_of_calls(fn, *[lambda v=v: (X, v) for v in ("a", "b", 3, "c", None, "d")])


@pytest.mark.parametrize("template", ["%c", "%5c", "{0[1]}", "{:{w}}", "{0.real}", "%d"])
def test_templates_that_refuse_other_text(template):
    def fn(x, name):
        if template.startswith("%"):
            return x * 2, template % name
        return x * 2, template.format(name, w=name)
    captures_of_calls(fn, *[lambda v=v: (X, v) for v in ("ab", "5", "", "cd", "7")])


def test_logging():
    stream = io.StringIO()
    log = logging.getLogger("test_varying_text")
    log.propagate, log.handlers = False, [logging.StreamHandler(stream)]

    def fn(x, name):
        log.warning("run %s", name)
        log.warning(f"again {name}")
        return x * 2
    assert captures_of_calls(fn, *[lambda i=i: (X, f"n{i}") for i in range(4)]) == [1, 1, 1, 1]
    assert stream.getvalue() == "".join(f"run n{i}\nagain n{i}\n" * 2 for i in range(4))


# ---- what nobody has looked at yet ------------------------------------------------------------------------
shown = Programs()


@shown
def beside_what_is_read_after_the_graph(x, i, t):
    mean = (x * 2).mean().item()
    return ("epoch {} mean {:.3f}".format(i, mean), f"{i:>4} {mean:.3f} {t!r}", "%d of %5.2f: %s" % (i, mean, t),
            "%(epoch)d %(mean).2f %(lr)s" % {"epoch": i, "mean": mean, "lr": t})


@shown
def printed_and_kept(x, i, t):
    kept = {"epoch": i, "all": [i, t]}
    print(i, (i, t), [t], f"{i:03d}/100", end=f" {t}\n")
    return x + 1, kept, ", ".join([str(i), f"{t:.1e}"]) + " " + repr(i), str(i).zfill(4)


class Counted:
    def __init__(self):
        self.epoch, self.name = 0, "a"


@shown
def changed_after_it_was_shown(x, i, t):
    counted = COUNTED[0]
    first = f"{counted.epoch} {counted.name}"
    counted.epoch, counted.name = i, "b" + str(t)
    return x * 2, first, f"{counted.epoch} {counted.name}"


COUNTED = [Counted()]


@shown.each
def test_a_number_or_text_that_is_only_shown_is_never_guarded(fn):
    """Not at the first capture either: plain Python beside it starts with the same objects."""
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    got = []
    for function in (fn, translated):
        COUNTED[0] = Counted()
        got.append([outcome(function, (X, i, i / 3), {}) for i in range(4)])
    for want, found in zip(*got, strict=True):
        assert not same(found.result, want.result, "result") and found.printed == want.printed
    assert len(sot.translation_of(translated).captures) == 1


def test_formats_that_refuse_some_numbers_are_looked_at():
    def fn(x, n, f):
        return x + 1, "%c" % n, f"{n:c}", "%d" % f

    translated = sot.to_static(fn, backend="eager")
    for args in ((X, 65, 1.5), (X, 66, 2.5), (X, -1, 1.0), (X, 67, float("inf")), (X, 68, 3.0)):
        want, got = outcome(fn, args, {}), outcome(translated, args, {})
        assert not same(got.result, want.result, "result") and same(got.raised, want.raised) is None
