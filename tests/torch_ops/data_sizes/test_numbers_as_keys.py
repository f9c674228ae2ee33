"""A number that a tensor has, as a key: Python looks it up, so another number needs no other capture."""
import enum

import pytest
import torch
from harness import Programs, check, same

import sot

programs = Programs()
WORDS = {i: str(i) for i in range(100)}


class Move(enum.IntEnum):
    UP = 0
    DOWN = 1
    LEFT = 2


class Suit(enum.Enum):
    RED = 0
    BLACK = 1
    GREEN = 2


def one_hot(i, size=20):
    x = torch.zeros(size)
    x[i] = 1
    return x


@programs
def read(x):
    return WORDS[x.argmax().item()], x + 1


@programs
def read_if_there(x):
    return WORDS.get(x.argmax().item() * 10, "none"), x + 1


@programs
def written(x):
    table = {}
    table[x.argmax().item()] = x * 2
    return table


@programs
def displayed(x):
    return {x.argmax().item(): x * 2}


@programs
def member_of_a_set(x):
    return x.argmax().item() in {0, 3}, x + 1


@programs
def part_of_a_key(x):
    return (x.argmax().item(), 5) in {(1, 5): 1}, x + 1


@programs
def counted(x):
    counts = dict.fromkeys(range(3), 0)
    counts[x.argmax().item()] = 7
    return counts, x + 1


@programs.each
def test_no_capture_for_each_number(fn):
    translated = sot.to_static(fn)
    for i in range(12):
        assert same(translated(one_hot(i)), fn(one_hot(i))) is None
    assert len(translated.captures) <= 4      # the two sides of the break, and the truths of what Python looked up
    assert "is needed as a Python number: it is a key" in str(translated.captures[0].stopped)


@pytest.mark.parametrize("kind", [Move, Suit])
def test_a_member_of_an_enum(kind):
    def member(x):
        return kind(x.argmax().item()), x + 1
    translated = sot.to_static(member)
    for i in range(3):
        assert same(translated(one_hot(i, 3)), member(one_hot(i, 3))) is None
    assert "is needed as a Python number: it is the value of an enum member" in str(translated.captures[0].stopped)


def test_a_key_that_is_missing():
    def missing(x):
        y = x + 1
        return y, WORDS[x.argmax().item() + 500]
    with pytest.raises(KeyError, match="503"):
        sot.to_static(missing)(one_hot(3))


def test_bytes_of_a_number():
    def packed(x):
        return bytes([x.argmax().item()]), x + 1
    translated = sot.to_static(packed)
    for i in range(3):
        assert same(translated(one_hot(i)), packed(one_hot(i))) is None
    assert "bytes() of a value that is not known during capture" in str(translated.captures[0].stopped)


def test_a_name_of_a_class_that_is_not_known():
    def named(x):
        return vars(Move).get(x.sum().item()), x + 1
    translated = sot.to_static(named)
    for i in range(3):
        assert same(translated(one_hot(i)), named(one_hot(i))) is None
    assert "get() of the dict of a class, with a value that is not known during capture, cannot be followed" in str(
        translated.captures[1].stopped)


@pytest.mark.parametrize("shape", [(), (0,), (2,)])
def test_the_error_of_a_position_that_is_read_is_python_s(shape):
    def program(x, y):
        seen = []
        for position in x.argmax().item(), (x.argmax().item(),):
            try:
                seen.append(y[position])
            except IndexError as e:
                seen.append(str(e))
        return x + 1, seen
    check(program, torch.arange(4.0), torch.zeros(shape))
