"""Tensors that a captured function pickles or saves, and loads again."""
import io
import pickle

import pytest
import torch
from harness import Programs, check, check_by

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()


@whole
def pickles(x):
    return pickle.loads(pickle.dumps(x * 2)) + 1


@whole
def pickles_an_input(x):
    y = pickle.loads(pickle.dumps(x, protocol=4))
    y.add_(1)
    return x, y, y.is_leaf, y._version


@whole
def what_is_saved_does_not_change_later(x):
    y = x * 2
    data = pickle.dumps({"y": y, "k": [1, "a", (y.shape[0], None)]})
    y.zero_()
    first, second = pickle.loads(data), pickle.loads(data)
    first["y"].mul_(3)
    first["k"].append(2)
    return first, second, y


@whole
def saves(x):
    buffer = io.BytesIO()
    torch.save({"x": x * 2, "step": 3}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    return loaded["x"] + loaded["step"]


@whole
def saves_a_tensor(x):
    buffer = io.BytesIO()
    torch.save(x, buffer)
    x += 1
    buffer.seek(0)
    y = torch.load(buffer, weights_only=True)
    return x, y, y._version


@whole
def pickles_into_a_stream(x):
    buffer = io.BytesIO()
    pickle.dump([x, x.long()], buffer)
    buffer.seek(0)
    a, b = pickle.load(buffer)
    buffer.seek(0)
    return a, b, pickle.load(buffer)[1] + 1


@whole
def one_object_twice(x):
    part = [x * 1]
    a, b = pickle.loads(pickle.dumps((part, part)))
    a.append(1)
    return a is b, len(b), a[0] + 1


@whole
def plain_values(x):
    return pickle.loads(pickle.dumps({"a": 1, "b": (2.5, True, None, "s", b"t")})), x + 1


@parts
def the_bytes(x):
    data = pickle.dumps(x * 2)
    return len(data), pickle.loads(data)


@parts
def the_bytes_of_a_stream(x):
    buffer = io.BytesIO()
    torch.save(x * 2, buffer)
    size = buffer.tell()
    buffer.seek(0)
    return size > 0, torch.load(buffer)


@parts
def returns_the_stream(x):
    buffer = io.BytesIO()
    torch.save(x * 2, buffer)
    buffer.seek(0)
    return torch.load(buffer), buffer.getvalue()[:2]


@parts
def at_the_end_of_the_stream(x):
    buffer = io.BytesIO()
    torch.save(x * 2, buffer)
    return torch.load(buffer)


@parts
def loads_twice(x):
    buffer = io.BytesIO()
    pickle.dump(x * 2, buffer)
    buffer.seek(0)
    a = pickle.load(buffer)
    try:
        return pickle.load(buffer)
    except EOFError as e:
        return str(e), a


@parts
def views(x):
    y = x[1:]
    z = pickle.loads(pickle.dumps([y, y]))
    return z, z[0].untyped_storage().nbytes(), z[0].storage_offset()


@parts
def shared_memory(x):
    y = x * 2
    buffer = io.BytesIO()
    torch.save([y, y.view(-1)], buffer)
    buffer.seek(0)
    a, b = torch.load(buffer)
    a.add_(1)
    return a, b


@parts
def requires_grad(x):
    w = torch.ones(3, requires_grad=True)
    y = pickle.loads(pickle.dumps(w))
    return y.requires_grad, y * 2


@parts
def attributes(x):
    x.tag = "kept"
    return pickle.loads(pickle.dumps(x)).tag, x + 1


@parts
def a_local_class(x):
    class Local:
        pass
    try:
        pickle.dumps([x, Local()])
    except (AttributeError, pickle.PicklingError) as e:
        return type(e), x + 1


@parts
def breaks_between(x):
    buffer = io.BytesIO()
    torch.save(x * 2, buffer)
    sot.graph_break()
    buffer.seek(0)
    return torch.load(buffer) + 1


@parts
def more_in_the_stream(x):
    buffer = io.BytesIO()
    buffer.write(b"head")
    pickle.dump(x * 2, buffer)
    buffer.seek(4)
    return pickle.load(buffer)


@parts
def numbers_of_tensors(x):
    return pickle.loads(pickle.dumps([x.sum().item(), x.shape]))


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


def test_an_argument_with_more_is_pickled_by_python():
    def loads(x):
        return pickle.loads(pickle.dumps(x))
    translated = sot.to_static(loads, backend="eager")
    plain, more = X.clone(), X.clone()
    more.tag = "kept"
    for x in (plain, more, X.clone().requires_grad_(), X[1:]):
        want, got = loads(x), translated(x)
        assert torch.equal(want, got) and vars(want) == vars(got)
        assert want.requires_grad == got.requires_grad and want.storage_offset() == got.storage_offset()
