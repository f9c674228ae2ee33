"""Special methods with effects: capture, guards and reports call them where Python does, and nowhere else."""
import pytest
import torch

import sot

X = torch.arange(3.0)
log = []


def loud(name, result=None):
    def method(self, *args):
        log.append(name)
        if result is None:
            raise ValueError(name)
        return result(self, *args)
    return method


class Noisy:
    __slots__ = ()

    def __init__(self, v=2):
        object.__setattr__(self, "v", v)

    __repr__, __str__, __len__, __eq__, __bool__ = map(loud, ("repr", "str", "len", "eq", "bool"))
    __hash__, __format__, __iter__, __contains__ = map(loud, ("hash", "format", "iter", "contains"))

    def __getattr__(self, name):
        log.append(f"getattr {name}")
        raise AttributeError(name)

    def __call__(self, x):
        log.append("call")
        return x + 1

    def __enter__(self):
        log.append("enter")

    def __exit__(self, *details):
        log.append("exit")


class Loud(Noisy):
    pass


class Slots(Noisy):
    __slots__ = ("v",)


class Asked:
    __call__, __enter__, __exit__ = Noisy.__call__, Noisy.__enter__, Noisy.__exit__

    def __getattribute__(self, name):
        log.append(f"getattribute {name}")
        return 2 if name == "v" else object.__getattribute__(self, name)


class Items(list):
    v = 2
    __len__, __iter__ = loud("len", lambda self: 5), loud("iter", lambda self: iter([7]))
    __getitem__, __bool__ = loud("getitem", lambda self, i: 9), loud("bool", lambda self: False)
    __contains__, __eq__ = loud("contains", lambda self, o: True), loud("eq", lambda self, o: True)
    __hash__ = None


class Table(dict):
    v = 2
    __len__, __iter__ = loud("len", lambda self: 5), loud("iter", lambda self: iter(["q"]))
    __getitem__, __bool__ = loud("getitem", lambda self, i: 9), loud("bool", lambda self: False)
    __contains__, __eq__ = loud("contains", lambda self, o: True), loud("eq", lambda self, o: True)
    keys = loud("keys", lambda self: dict.keys(self))
    __hash__ = None


def tried(action):
    try:
        return action()
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as e:
        return type(e).__name__


def managed(x, o):
    if isinstance(o, Noisy | Asked):
        with o:
            x = x + 1
    return x


def changed(x, o):
    o.v = 2
    return x * o.v, tried(lambda: setattr(o, "w", x + 1)), tried(lambda: o.w), tried(lambda: o.__dict__["w"])


PROGRAMS = {
    "passed on": lambda x, o: (x * 2, [o, (o,)], {"a": o}),
    "an attribute": lambda x, o: x * o.v,
    "no attribute": lambda x, o: x * getattr(o, "nope", 3) + hasattr(o, "v"),
    "its class": lambda x, o: (x * 2, o.__class__ is int, isinstance(o, dict)),
    "identity": lambda x, o: x * (2 if o is None else 3),
    "its truth": lambda x, o: (x * 2, tried(lambda: 1 if o else 0)),
    "its length": lambda x, o: (x * 2, tried(lambda: len(o))),
    "equality": lambda x, o: (x * 2, tried(lambda: o == 3), tried(lambda: [o] == [o])),
    "membership": lambda x, o: (x * 2, tried(lambda: 1 in o), tried(lambda: o in [1, 2])),
    "a key": lambda x, o: (x * 2, tried(lambda: len({o: 1}))),
    "text": lambda x, o: (x * 2, tried(lambda: f"{o}") if isinstance(o, Noisy) else None),
    "called": lambda x, o: o(x) if callable(o) else x,
    "called by a function": lambda x, o: [*map(o, [x])] if callable(o) else x,
    "a manager": lambda x, o: managed(x, o),
    "changed": lambda x, o: changed(x, o),
    "an item": lambda x, o: (x * 2, tried(lambda: o["a"]), tried(lambda: o[0])),
    "its keys": lambda x, o: (x * 2, tried(lambda: {**o}), tried(lambda: dict(o)) if type(o) is not Asked else None),
}


def outcome(f, *args):
    log.clear()
    return f(*args), [*log]


def plain(value):
    """A result with its tensors as lists, and other objects by identity."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if type(value) is dict else (
        value if type(value) in (int, float, str, bool) else id(value))


@pytest.mark.parametrize("kind", [Loud, Slots, Asked, Items, Table], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_special_methods_run_as_often_as_in_python(name, kind, backend):
    f, given = PROGRAMS[name], kind({"a": 1}) if kind is Table else kind([1, 2]) if kind is Items else kind()
    want, called = outcome(f, X, given)
    g = sot.to_static(f, backend=backend)
    for _ in range(3):
        got, calls = outcome(g, X, given)
        assert plain(got) == plain(want)
        assert calls == called


def test_a_report_asks_for_no_text():
    g = Loud()
    log.clear()
    str(sot.explain(PROGRAMS["an attribute"])(X, g))
    assert log == []


def test_no_text_of_a_weight_is_made_to_compare_guards(backend, monkeypatch):
    """A text of a weight takes a millisecond and more. A step of an optimizer has guards of numbers of weights."""
    weight, texts = torch.nn.Parameter(torch.ones(3)), []
    optimizer = torch.optim.Adam([weight])

    def step(x):
        (x * weight).sum().backward()
        optimizer.step()

    monkeypatch.setattr(torch._tensor_str, "_str", lambda *args, **options: texts.append("") or "")
    translated = sot.to_static(step, backend=backend)
    for _ in range(3):
        translated(X)
    assert translated.captures and texts == []


def test_what_is_no_mapping_is_a_type_error(backend):
    def f(x, o):
        try:
            return x * len({**o})
        except TypeError as e:
            return x + 1, str(e), e.__context__, e.__cause__

    g = sot.to_static(f, backend=backend)
    for o in (3, [1], Asked(), {"a": 1}):
        assert plain(g(X, o)) == plain(f(X, o))
