"""What a special method returns is checked by the builtin that calls it: its type, its range, its conversion."""
import copy
import operator
import warnings
from decimal import Decimal

import pytest
import torch
from harness import check, check_by

X = torch.arange(3.0)


class Number(int):
    pass


class Text(str):
    __slots__ = ()


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


def object_with(name, result):
    """An object whose special method has this result."""
    return type("Made", (), {"result": result, name: lambda self, *args: self.result})()


BUILTINS = {
    "__len__": {"len": len, "bool": bool, "list": lambda v: isinstance(v, list), "reversed": lambda v: len(v) + 1},
    "__hash__": {"hash": hash, "a key": lambda v: len({v: 1}), "a member": lambda v: len({v})},
    "__str__": {"str": str, "an f-string": lambda v: f"{v}", "%s": lambda v: "%s" % (v,)},
    "__repr__": {"repr": repr, "str": str, "!r": lambda v: f"{v!r}", "in a list": lambda v: str([v])},
    "__format__": {"format": format, "an f-string": lambda v: f"{v:>4}", "str.format": "{:>4}".format},
    "__bool__": {"bool": bool, "not": operator.not_, "if": lambda v: 1 if v else 2},
    "__int__": {"int": int},
    "__float__": {"float": float, "complex": complex},
    "__complex__": {"complex": complex},
    "__index__": {"index": operator.index, "int": int, "float": float, "complex": complex, "range": lambda v: range(v),
                  "an item": lambda v: [1, 2, 3][v], "a character": lambda v: "abc"[v],
                  "a slice": lambda v: [1, 2, 3][v:], "repetition": lambda v: [1] * v, "hex": hex},
}
RESULTS = {
    "an int": 2, "minus one": -1, "zero": 0, "a large int": 2 ** 70, "a very negative int": -2 ** 70, "a bool": True,
    "an int of a subclass": Number(2), "a float": 1.5, "text": "word", "text of a subclass": Text("word"),
    "a complex number": 1j, "None": None, "a list": [1], "a decimal": Decimal(3), "an index": Index(2),
    "a tensor": torch.tensor(2),
}
CASES = [(name, use) for name, uses in BUILTINS.items() for use in uses]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("name,use", CASES, ids=[f"{name[2:-2]}-{use}" for name, use in CASES])
def test_the_result_of_a_special_method_is_checked(name, use, result):
    def program(x, v):
        y = x + 1
        try:
            found = BUILTINS[name][use](v)
            return y, type(found).__name__, found
        except (TypeError, ValueError, OverflowError, IndexError, MemoryError) as e:
            return y, type(e).__name__, str(e)

    if result == "a large int" and use == "repetition":
        pytest.skip("the list does not fit into memory")
    check(program, X, object_with(name, RESULTS[result]))


def test_an_integer_that_int_takes_from_trunc_is_python_s():
    class Truncated:
        def __trunc__(self):
            return 3

    def program(x, v):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return x * int(v)
            except TypeError as e:      # since 3.14
                return x, str(e)
    check(program, X, Truncated())


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_length_that_varies_is_checked_in_each_call(backend):
    import sot

    def program(x, v):
        y = x.clone()
        x.add_(1)
        return y * len(v)
    translated = sot.to_static(program, backend=backend)
    for size in (3, 4, 5, 6, 7):
        assert torch.equal(translated(X.clone(), Sized(size)), X * size)
    for size, error in (-2, ValueError), (2 ** 70, OverflowError):
        x = X.clone()
        with pytest.raises(error):
            translated(x, Sized(size))
        assert torch.equal(x, X + 1)


def test_lengths_and_texts_by_python_code_do_not_break_the_graph():
    class Named(Sized):
        def __str__(self):
            return f"{self.size} parts"

        def __hash__(self):
            return self.size

    def program(x, v):
        return x * len(v) + len(str(v)) + {v: 2}[v] + (1 if v else 0), f"{v}"
    check_by("eager", program, X, Named(3), breaks=0)


@pytest.mark.parametrize("kind", [dict, type("OfDict", (dict,), {})])
def test_an_empty_dict_does_not_ask_a_key_for_its_hash(kind):
    def program(x, v, key):
        found = []
        for default in (), (5,):
            try:
                found.append(v.pop(key, *default))
            except (KeyError, TypeError) as e:
                found.append(repr(e))
        return x + 1, found
    check(program, X, kind(), [])
    check(program, X, kind({1: 2}), [])


def test_round_without_digits_gives_the_method_no_argument():
    class Rounded:
        def __round__(self, *digits):
            return digits

    def program(x, v):
        return x + 1, round(v), round(v, None), round(v, 2)
    check(program, X, Rounded())


def test_the_dict_of_a_new_object_is_not_asked_for_by_its_class():
    class Asked:
        def __getattribute__(self, name):
            print(name)
            return object.__getattribute__(self, name)

    def program(x):
        made = Asked()
        made.number = 3
        return x + 1, made.__dict__, made.number

    def copied(x, v):
        return x + 1, copy.copy(v).number
    check(program, X)
    made = Asked()
    made.number = 2
    check_by("eager", copied, X, made)
