"""Classes of containers with special methods of their own: capture calls them where Python does, and nowhere else."""
import collections

import pytest
import torch

import sot

X = torch.arange(3.0)
VALUES = {tuple: (1, 2), list: [1, 2], dict: {"a": 1}, set: {1, 2}, frozenset: {1}, collections.deque: [1, 2],
          collections.OrderedDict: {"a": 1}, collections.Counter: "aab", str: "ab", int: 3, float: 1.5}
NAMES = ("__len__", "__iter__", "__getitem__", "__contains__", "__eq__", "__ne__", "__lt__", "__hash__", "__repr__",
         "__str__", "__bool__", "__add__", "keys", "items", "get", "copy")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


PROGRAMS = {
    "is returned": lambda x, v: (x * 2, v),
    "is stored": lambda x, v: {"v": v, "x": x * 2},
    "is asked for its class": lambda x, v: x + isinstance(v, (tuple, dict)),
    "is compared with None": lambda x, v: x + 1 if v is None else x + 2,
    "is tested": lambda x, v: x + 1 if v else x + 2,
    "is measured": lambda x, v: x * len(v),
    "is iterated over": lambda x, v: [x * 2 for _ in v],
    "is unpacked": lambda x, v: (lambda a, *b: x)(*v),
    "is read": lambda x, v: x * v[0],
    "is asked for a key": lambda x, v: (x * 2, v.get("a")),
    "is in a list": lambda x, v: (x * 2, v in [1, v, 2]),
    "is beside a number": lambda x, v: (x * 2, 1 in [v, 2]),
    "is one of two": lambda x, v: (x * 2, max([v, v])),
    "is sorted": lambda x, v: (x * 2, sorted([v, v])),
    "is compared in a list": lambda x, v: (x * 2, [v] == [1], (v, 1) < (v, 2)),
    "is a key": lambda x, v: (x * 2, {v: 1}),
    "is shown": lambda x, v: (x * 2, f"{v}"),
    "is a local variable of a caller": lambda x, v: (Doubled.apply(x), v),
    "is copied": lambda x, v: (x * 2, set(v)),
}


def made(base, name, raises, log):
    def method(self, *args):
        log.append(name)
        if raises:
            raise NotImplementedError(name)
        return getattr(base, name)(self, *args)

    kind = type("Own", (base,), {name: method})
    return kind(VALUES[base])


def observed(call, value, log):
    log.clear()
    try:
        result, raised = call(X, value), None
    except Exception as e:  # noqa: BLE001 - to be compared
        result, raised = None, type(e)
    called = [*log]
    kinds = [type(part) for part in result] if isinstance(result, tuple) else type(result)
    return raised, called, kinds


@pytest.mark.parametrize("base", VALUES, ids=lambda base: base.__name__)
@pytest.mark.parametrize("program", PROGRAMS)
def test_methods_are_called_as_in_python(program, base):
    log: list[str] = []
    for name in NAMES:
        for raises in (True, False) if hasattr(base, name) else (True,):
            try:
                value = made(base, name, raises, log)
            except NotImplementedError:     # its constructor calls the method
                continue
            captured = sot.to_static(PROGRAMS[program])
            want = observed(PROGRAMS[program], value, log)
            assert [observed(captured, value, log) for _ in range(2)] == [want, want], (name, raises)
            stops = [c.stopped for c in sot.translation_of(captured).captures if c.stopped is not None]
            assert not [s for s in stops if s.reason.name == "INTERNAL"], name
