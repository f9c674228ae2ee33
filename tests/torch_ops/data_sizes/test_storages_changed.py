"""Storages that are resized, and their bytes."""
import torch
from harness import Programs, check_by

captured, left = Programs(), Programs()


@captured
def emptied(x):
    y = x * 2
    z = y + 1
    y.untyped_storage().resize_(0)
    return z, y.untyped_storage().size()


@captured
def emptied_and_filled(x):
    y = x * 2
    storage = y.untyped_storage()
    print(y)
    storage.resize_(0)
    storage.resize_(24)
    y.fill_(3)
    return y, len(storage)


@captured
def bytes_of_an_argument(x):
    return x * 2, x.untyped_storage().tolist()[:4]


@captured
def bytes_before_a_change(x):
    before = x.untyped_storage().tolist()
    x.add_(1)
    return before, x.untyped_storage().tolist()


@left
def an_argument_emptied(x):
    y = x + 1
    x.untyped_storage().resize_(0)
    size = x.untyped_storage().size()
    x.untyped_storage().resize_(24)
    x.fill_(1)
    return y, size


@left
def bytes_of_a_result(x):
    y = x * 2
    return y, y.untyped_storage().tolist()


def x():
    return torch.arange(6.0).reshape(2, 3)


@captured.each
def test_storages_are_in_the_graph(fn):
    check_by("eager", fn, x(), breaks=0)
    check_by("aot_eager", fn, x())


@left.each
def test_storages_that_only_python_knows_are_left_to_it(fn):
    check_by("eager", fn, x())


def test_bytes_of_a_view_are_those_of_its_base():
    def listed(x):
        return x + 1, x.untyped_storage().tolist()
    check_by("eager", listed, x()[1:], breaks=0)
    check_by("eager", listed, torch.arange(40.0)[:2])
