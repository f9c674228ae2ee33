"""``torch.frombuffer`` of buffers that the call makes: a tensor that has their memory."""
import array

import torch
from harness import Programs, check_by

import sot

captured, left = Programs(), Programs()


@captured
def of_bytes(x):
    return torch.frombuffer(bytearray(b"\x01\x02\xff\x04"), dtype=torch.uint8) + x[0, 0]


@captured
def of_an_array_with_a_count(x):
    numbers = array.array("f", [1, 2, 3])
    t = torch.frombuffer(numbers, dtype=torch.float32, count=2)
    t.add_(1)
    return t * 2, t.untyped_storage().nbytes(), x + 1


@left
def the_buffer_is_returned(x):
    buffer = bytearray(b"\x01\x02\xff\x04")
    t = torch.frombuffer(buffer, dtype=torch.int16, offset=2)
    t.add_(1)
    return buffer, t + 1, x + 1


@left
def the_buffer_is_changed(x):
    buffer = bytearray(4)
    t = torch.frombuffer(buffer, dtype=torch.uint8)
    buffer[1] = 7
    return t + 1, x + 1


@left
def the_buffer_does_not_fit(x):
    try:
        return torch.frombuffer(bytearray(3), dtype=torch.int64)
    except ValueError as e:
        return str(e), x + 1


def x():
    return torch.arange(6.0).reshape(2, 3)


@captured.each
def test_tensors_of_buffers_are_in_the_graph(fn):
    check_by("eager", fn, x(), breaks=0)
    check_by("aot_eager", fn, x())


@left.each
def test_a_buffer_that_is_used_again_is_pythons(fn):
    check_by("eager", fn, x())


def test_each_call_has_memory_of_its_own():
    def made(x):
        return torch.frombuffer(bytearray(b"\x01\x02"), dtype=torch.uint8), x + 1
    translated = sot.to_static(made, backend="eager")
    first, _ = translated(x())
    first.add_(5)
    assert translated(x())[0].tolist() == [1, 2]
