"""Programs about several devices: each kernel is launched where its tensors are, and the rest is called there."""
from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("triton", reason="the package triton is not installed")

from sot.backends.triton.source.module_source import module
from sot.graph.kernels import ir
from sot.graph.kernels.program import Buffer, Extern, Program
from sot.graph.kernels.schedule import schedule
from sot.graph.lowering import lower

TEXT = "kernel twice over p0:64\nbuffer {x} f32 64\nbuffer {y} f32 64\nv0:f32 = load {x}[p0]\n" \
       "v1:f32 = add v0 v0\nstore {y}[p0] v1"


def program(*devices: str) -> Program:
    """A kernel for each pair of devices: it reads on the first and writes on the second."""
    buffers, steps = {}, []
    for i, (read, written) in enumerate(zip(devices[::2], devices[1::2])):
        for name, device in ((f"x{i}", read), (f"y{i}", written)):
            buffers[name] = Buffer(name, torch.float32, (64,), (1,), torch.device(device))
        steps.append(ir.parse(TEXT.format(x=f"x{i}", y=f"y{i}")))
    inputs = [name for name in buffers if name.startswith("x")]
    return Program(inputs, {}, buffers, steps, tuple(b.view() for n, b in buffers.items() if n.startswith("y")))


def lines(made: Program) -> list[str]:
    text = module(made, "devices", interpreted=False).text
    return [line.strip() for line in text.partition("def run(")[2].splitlines()[1:]]


def test_the_current_device_is_that_of_the_kernel():
    found = [line for line in lines(program("cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:0", "cuda:0"))
             if line.startswith(("with", "torch.cuda", "launch"))]
    assert found == [
        "with torch.cuda.device(0):", "launch_map_0(1, x0, y0)", "torch.cuda.set_device(1)", "launch_map_0x(1, x1, y1)",
        "torch.cuda.set_device(0)", "launch_map_0(1, x2, y2)"]


def test_a_kernel_is_loaded_for_each_device():
    text = module(program("cuda:0", "cuda:0", "cuda:1", "cuda:1"), "devices", interpreted=False).text
    assert text.count("@triton.jit") == 1 and text.count("Launcher(map_0") == 2 and "device=1)" in text


def test_a_kernel_about_two_devices_is_refused():
    with pytest.raises(NotImplementedError, match="a kernel is about tensors on cuda:0, cuda:1"):
        module(program("cuda:0", "cuda:1"), "devices", interpreted=False)


def test_operators_on_other_devices_are_called():
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    sine = graph.call_function(torch.ops.aten.sin.default, (x,))
    cosine = graph.call_function(torch.ops.aten.cos.default, (y,))
    graph.output((sine, cosine))
    for node, device in ((x, "cpu"), (sine, "cpu"), (y, "meta"), (cosine, "meta")):
        node.meta["val"] = torch.empty(4, device=device)
    made = lower(torch.fx.GraphModule(torch.nn.Module(), graph), "cpu")
    assert len(list(made.kernels())) == 1
    assert [str(step.target) for step in made.steps if not isinstance(step, ir.Kernel)] == ["aten.cos.default"]


def test_a_number_on_the_cpu_is_moved_once_and_is_an_operand_of_kernels():
    """The steps that an optimizer counts are there. Without this, each of its operations is a call."""
    x, step = torch.empty(64, 64, device="meta"), torch.ones(())

    def update(x, step):
        correction = 1 - 0.9 ** step
        return [x / correction + x * correction.sqrt(), correction]
    made = schedule(lower(make_fx(update)(x, step), "meta"))
    calls = [str(s.target) for s in made.steps if isinstance(s, Extern)]
    assert calls.count("aten._to_copy.default") == 2 and len(made.kernels()) == 1
    assert not {"aten.div.Tensor", "aten.mul.Tensor", "aten.add.Tensor"} & {*calls}
    moved = next(s for s in made.steps if isinstance(s, Extern) and "_to_copy" in str(s.target))
    assert moved.kwargs == {"device": torch.device("meta"), "non_blocking": True}
