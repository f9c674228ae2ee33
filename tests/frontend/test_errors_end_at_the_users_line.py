"""What SOT refuses is raised at the user's line: one frame of ours at most below it, and no other exception before."""
import traceback

import pytest
import torch

import sot
from sot.support.own_code import is_own

X = torch.ones(2)


class Doubling(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Reading(torch.nn.Module):
    def forward(self, x):
        return x + len([0] * int(x.sum().item()))


def reads(x):
    return x + len([0] * int(x.sum().item()))


def adds(x):
    return x + 1


def failing_backend(gm, inputs):
    raise ValueError("no")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("saved")
    sot.save(Doubling(), found / "model", input_spec=[sot.InputSpec((None, 4))])
    (found / "junk.pt2").write_text("junk")
    return found


ERRORS = {
    "full_graph": lambda folder: sot.to_static(reads, backend="eager", full_graph=True)(X),
    "full_graph of a module": lambda folder: sot.to_static(Reading(), backend="eager", full_graph=True)(X),
    "a backend that raises": lambda folder: sot.to_static(adds, backend=failing_backend)(X),
    "a backend that gives no function": lambda folder: sot.to_static(adds, backend=lambda gm, inputs: 3)(X),
    "an unknown backend": lambda folder: sot.to_static(adds, backend="egaer"),
    "an unknown backend for all": lambda folder: sot.enable(backend="egaer"),
    "a backend whose graph returns no tuple": lambda folder: sot.to_static(adds, backend=lambda gm, x: lambda *x: 3)(X),
    "an unknown mode of compile": lambda folder: sot.compile(adds, mode="fast"),
    "an unknown mode of compile, as a decorator": lambda folder: sot.compile(mode="fast")(adds),
    "no function": lambda folder: sot.to_static(3),
    "no function, with settings": lambda folder: sot.to_static(full_graph=True)(3),
    "save": lambda folder: sot.save(Reading(), folder / "x", input_spec=[sot.InputSpec((4,))]),
    "save without a spec": lambda folder: sot.save(Doubling(), folder / "x"),
    "load of nothing": lambda folder: sot.load(folder / "nothing"),
    "load of junk": lambda folder: sot.load(folder / "junk"),
    "a shape": lambda folder: sot.load(folder / "model")(torch.ones(3, 5)),
    "a rank": lambda folder: sot.load(folder / "model").forward(torch.ones(3)),
    "no arguments": lambda folder: sot.load(folder / "model")(),
    "no tensor": lambda folder: sot.load(folder / "model")("a"),
    "an input_spec": lambda folder: sot.InputSpec([-1, 4]),
    "a call against its input_spec": lambda folder: sot.to_static(
        adds, backend="eager", input_spec=[sot.InputSpec((3,))])(X),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_traceback_ends_at_the_users_line(name, folder):
    with pytest.raises(Exception) as caught:
        ERRORS[name](folder)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    ours = [file for file in files if is_own(file)]
    assert len(ours) <= 1 and (not ours or files[-1] == ours[0]), files
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_the_line_of_the_backend_is_a_note():
    with pytest.raises(RuntimeError) as caught:
        sot.to_static(adds, backend=failing_backend)(X)
    assert any("failing_backend" in note for note in caught.value.__notes__)


def test_what_the_program_raises_keeps_its_traceback(folder):
    class Raising(torch.nn.Module):
        def forward(self, x):
            raise KeyError("the program's")

    for call in (lambda: sot.explain(Raising())(X), lambda: sot.to_static(Raising(), backend="eager")(X)):
        with pytest.raises(KeyError) as caught:
            call()
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "forward"


@pytest.mark.parametrize("call, meant", [
    (lambda: sot.to_static(adds, fullgraph=True), "Did you mean 'full_graph'?"),
    (lambda: sot.to_static(fullgraph=True)(adds), "Did you mean 'full_graph'?"),
    (lambda: sot.save(Doubling(), "x", input_specs=[]), "Did you mean 'input_spec'?"),
    (lambda: sot.enable(backends="eager"), "Did you mean 'backend'?"),
    (lambda: sot.explain(adds, X), "Did you mean sot.explain(f)(x)?"),
    (lambda: sot.InputSpec([-1, 4]), "Did you mean None?"),
    (lambda: sot.compile(adds, full_graph=True), "Did you mean 'fullgraph'?"),
    (lambda: sot.compile(adds, backend="inductr"), "Did you mean 'inductor'?"),
    (lambda: sot.compile(backend="inductr")(adds), "Did you mean 'inductor'?"),
    (lambda: sot.compile(adds, options={"epilogue_fusio": True}), "Did you mean 'epilogue_fusion'?"),
    (lambda: sot.InputSpec([4], dtyp="int64"), "Did you mean 'dtype'?"),
])
def test_a_mistake_is_answered_with_what_was_meant(call, meant):
    with pytest.raises((TypeError, ValueError), match="Did you mean") as caught:
        call()
    assert meant in str(caught.value)
