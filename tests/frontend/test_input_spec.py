"""What an InputSpec promises: a call that contradicts it raises, naming the argument, before anything runs."""

import numpy as np
import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.frontend.input_spec import InputSpecError

F32 = torch.zeros(2, 3)


def refusal(fn, *args, **kwargs):
    """What the InputSpecError says that a call raises."""
    with pytest.raises(InputSpecError) as refused:
        fn(*args, **kwargs)
    assert isinstance(refused.value, sot.SotError) and isinstance(refused.value, ValueError)
    return str(refused.value)


def made(spec, fn=lambda x, y=None: x, **settings):
    return sot.to_static(fn, input_spec=spec, **settings)


# ---- the specification of one tensor --------------------------------------------------------------------


def test_an_input_spec_is_a_value_that_prints_itself():
    spec = InputSpec([None, "length", 3], "float16")
    assert hash(spec) == hash(InputSpec(spec.shape, "float16"))
    assert spec == InputSpec((None, "length", 3), torch.float16)
    assert str(spec) == "float16 tensor of shape (any, length, 3)"
    assert str(InputSpec((4,))) == "float32 tensor of shape (4,)" and str(InputSpec(())) == "float32 tensor of shape ()"
    with pytest.raises(AttributeError):
        spec.shape = ()


def test_from_tensor_and_from_numpy():
    assert InputSpec.from_tensor(torch.zeros(2, 3, dtype=torch.int64), "ids") == InputSpec((2, 3), "int64", "ids")
    assert InputSpec.from_numpy(np.zeros((4, 1))) == InputSpec((4, 1), "float64")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InputSpec(3), "the shape of an InputSpec is a list of dimensions, not 3"),
        (lambda: InputSpec("abc"), "is a list of dimensions"),
        (lambda: InputSpec([-1]), "a dimension is an int from 0, None .any size. or a name"),
        (lambda: InputSpec([True]), "a dimension is"),
        (lambda: InputSpec([2.0]), "a dimension is"),
        (lambda: InputSpec([2], "float33"), "is a torch.dtype or the name of one, not 'float33'"),
        (lambda: InputSpec([2], "nn"), "is a torch.dtype"),
        (lambda: InputSpec([2], name=3), "the name of an InputSpec"),
        (lambda: InputSpec.from_tensor(3), "needs a tensor, not 3"),
        (lambda: InputSpec.from_numpy(F32), "needs a NumPy array"),
        (lambda: InputSpec.from_numpy(np.array([object()])), "torch has no dtype for NumPy's object"),
    ],
)
def test_what_is_no_specification_is_refused(make, message):
    with pytest.raises(InputSpecError, match=message):
        make()


# ---- a call ---------------------------------------------------------------------------------------------


def test_a_call_that_fits_runs_and_is_captured(backend):
    fn = sot.to_static(lambda x, y: x @ y, input_spec=[InputSpec([None, 3]), InputSpec([3, None])], backend=backend)
    assert torch.equal(fn(F32, y=torch.zeros(3, 4)), torch.zeros(2, 4))
    assert torch.equal(fn(F32[:1], torch.zeros(3, 5)), torch.zeros(1, 5))
    assert backend.graphs


def test_nothing_runs_when_a_call_contradicts():
    ran = []
    refusal(made([InputSpec([3])], lambda x: ran.append(x)), F32)
    assert ran == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2), "argument 'x': expected a float32 tensor of shape (any, 3), "
                         "got a float32 tensor of shape (2,) on cpu: 1 dimensions, not 2"),
        (torch.zeros(2, 4), "shape (2, 4) on cpu: dimension 1 is 4, not 3"),
        (torch.zeros(2, 3, dtype=torch.int64), "got an int64 tensor of shape (2, 3) on cpu: the dtype differs"),
        ([1.0], "got a list of 1"),
        (None, "got None (NoneType)"),
        (np.zeros((2, 3)), "(ndarray)"),
    ],
)
def test_rank_size_dtype_and_type_are_checked(given, message):
    assert message in refusal(made([InputSpec([None, 3])]), given)


def test_dimensions_of_one_name_have_one_size_in_each_call():
    fn = made([InputSpec(["n", 3]), InputSpec(["n"])])
    fn(F32, torch.zeros(2))
    fn(torch.zeros(5, 3), torch.zeros(5))
    assert refusal(fn, F32, torch.zeros(4)).endswith("dimension 0 (n) is 4, and dimension 0 of argument 'x' is 2")


def test_missing_arguments_and_too_many():
    fn = made([InputSpec([2, 3]), InputSpec([2])])
    assert "argument 'y' is missing: expected a float32 tensor of shape (2,)" in refusal(fn, F32)
    assert "missing a required argument: 'x'" in refusal(fn)
    assert "too many positional arguments; expected x: a float32" in refusal(fn, F32, F32, F32)
    assert "unexpected keyword argument 'z'" in refusal(fn, F32, z=1)


def test_tensors_without_an_entry_are_refused_and_other_arguments_are_not():
    fn = made([InputSpec([2, 3])])
    fn(F32, 3)
    assert "argument 'y' has no entry in input_spec, and is or contains a tensor" in refusal(fn, F32, [F32])


def test_none_is_an_argument_that_is_not_checked():
    made([None, InputSpec([3])])(F32, torch.zeros(3))


def test_entries_by_parameter_name():
    fn = made({"y": InputSpec([3]), "x": None})
    fn(F32, torch.zeros(3))
    assert "argument 'y'" in refusal(fn, F32, F32)


def test_the_name_of_a_spec_is_shown_beside_the_parameter():
    assert "argument 'x' (pixels): expected" in refusal(made([InputSpec([1], name="pixels")]), F32)


def test_lists_and_dicts_of_specs():
    fn = made([[InputSpec([1]), {"mask": InputSpec([None], "bool")}]])
    fn([torch.zeros(1), {"mask": torch.zeros(4, dtype=torch.bool)}])
    assert "argument 'x[1]['mask']': expected a bool tensor" in refusal(fn, [torch.zeros(1), {"mask": F32}])
    assert "argument 'x[1]': expected a dict with the keys ['mask'], got a dict with the keys ['m']" in refusal(
        fn, [torch.zeros(1), {"m": F32}])
    assert "argument 'x': expected a list or tuple of 2, got a tuple of 1" in refusal(fn, (F32,))


def test_star_arguments_have_entries_too():
    fn = made([InputSpec([1]), InputSpec([2])], lambda *rest, **more: rest)
    fn(torch.zeros(1), torch.zeros(2))
    assert "argument 'rest[1]': expected" in refusal(fn, torch.zeros(1), torch.zeros(1))
    assert "argument 'rest[2]' has no entry" in refusal(fn, torch.zeros(1), torch.zeros(2), F32)


# ---- whose arguments ------------------------------------------------------------------------------------


def test_methods_and_modules_have_no_entry_for_self():
    class Holder:
        @sot.to_static(input_spec=[InputSpec([3])])
        def method(self, x):
            return x

        @sot.to_static(input_spec=[InputSpec([3])])
        @classmethod
        def on_class(cls, x):
            return x

    model = sot.to_static(nn.Linear(3, 4), input_spec=[InputSpec([None, 3])])
    bound = sot.to_static(Holder().method, input_spec=[InputSpec([2])])
    Holder().method(torch.zeros(3)), Holder.on_class(torch.zeros(3)), model(F32), bound(torch.zeros(2))
    for fn in (Holder().method, Holder().on_class, bound):
        assert "argument 'x': expected" in refusal(fn, F32)
    assert "Linear.forward: argument 'input': expected" in refusal(model, torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([InputSpec([1])] * 3, r"input_spec has 3 entries, and .*lambda.* takes 2 arguments \(x, y\)"),
        ({"z": InputSpec([1])}, "input_spec has an entry for 'z', and .* no such parameter; it has x, y"),
        (InputSpec([1]), "input_spec is a list of InputSpec, one for each argument"),
        ([3], "the entry of input_spec for 'x' is 3; it must be an InputSpec"),
        ([[InputSpec([1]), "float32"]], r"the entry of input_spec for 'x\[1\]' is 'float32'"),
        ([F32], "is a tensor; use InputSpec.from_tensor"),
    ],
)
def test_a_specification_that_no_call_fits_is_refused_at_decoration(spec, message):
    with pytest.raises(InputSpecError, match=message):
        made(spec)
