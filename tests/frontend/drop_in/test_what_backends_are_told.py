"""A backend that compiles is told of a graph what torch.compile tells it: static inputs, mutations, lines, sizes."""
import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext

import sot

X = torch.ones(2, 3)


class Counting(nn.Module):
    """A buffer that a call changes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x) * self.count


MODELS = {
    "linear": lambda: nn.Linear(3, 3),
    "layers": lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
    "shared": lambda: nn.Sequential(*[nn.Linear(3, 3)] * 2),
    "counting": Counting,
    "embedding": lambda: nn.Sequential(nn.Flatten(0), nn.Linear(6, 6), nn.Embedding(4, 3)).requires_grad_(False)[:2],
}


def told(compile_, model, *args):
    """What the backend's graph for the forward pass is given."""
    seen = []

    def forward(gm, inputs):
        about = TracingContext.try_get().fw_metadata
        seen.append({
            "inputs": len(inputs), "static": len(about.static_input_indices),
            "changed": sum(info.mutates_data for info in about.input_info),
            "without a line": sum(n.op == "call_function" and not n.meta.get("stack_trace") for n in gm.graph.nodes)})
        return gm.forward

    def backend(gm, inputs):
        return aot_module_simplified(gm, inputs, fw_compiler=forward, bw_compiler=lambda gm, inputs: gm.forward)
    torch._dynamo.reset()
    compile_(model, backend=backend)(*args)
    return seen[0]


@pytest.mark.parametrize("grad", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", MODELS)
def test_static_inputs_and_mutations_are_torchs(name, grad):
    with torch.set_grad_enabled(grad):
        ours, theirs = (told(compile_, MODELS[name](), X) for compile_ in (sot.compile, torch.compile))
    keys = ("inputs", "static", "changed")
    assert [ours[key] for key in keys] == [theirs[key] for key in keys]
    assert ours["without a line"] <= theirs["without a line"]


def test_each_node_has_the_users_line():
    lines = []

    def backend(gm, inputs):
        lines.extend(n.meta["stack_trace"] for n in gm.graph.nodes if n.op.startswith("call"))
        return lambda *args: gm(*args)
    sot.compile(Counting(), backend=backend)(X)
    assert len(lines) >= 3
    assert all(f'File "{__file__}"' in line and "in forward" in line for line in lines)


def test_readable_graphs_have_the_users_source_as_torchs_have():
    shown = []

    def forward(gm, inputs):
        shown.append(gm.print_readable(print_output=False))
        return gm.forward

    def backend(gm, inputs):
        return aot_module_simplified(gm, inputs, fw_compiler=forward)
    with torch.no_grad():
        for compile_ in (sot.compile, torch.compile):
            compile_(Counting(), backend=backend)(X)
    for text in shown:
        assert "in forward, code: self.count.add_(1)" in text
        assert "No stacktrace" not in text


def test_the_last_line_of_a_node_is_the_programs_as_with_torch():
    model, lines = Counting(), {}

    def backend(gm, inputs):
        def forward(gm, inputs):
            shown = [n.meta["stack_trace"] for n in gm.graph.nodes if n.op == "call_function"]
            lines[compile_] = {text.rpartition('File "')[2].splitlines()[1].strip() for text in shown}
            return gm.forward
        return aot_module_simplified(gm, inputs, fw_compiler=forward)
    with torch.no_grad():
        for compile_ in (sot.compile, torch.compile):
            compile_(model, backend=backend)(X)
    assert lines[sot.compile] == lines[torch.compile] == {
        "self.count.add_(1)", "return self.linear(x) * self.count"}


def test_the_range_of_a_marked_dimension_is_that_of_its_symbol():
    found = []

    def forward(gm, inputs):
        found.append([str(r) for r in TracingContext.get().fake_mode.shape_env.var_to_range.values()])
        return gm.forward
    for compile_ in (sot.compile, torch.compile):
        x = torch.ones(4, 3)
        torch._dynamo.mark_dynamic(x, 0, min=3, max=64)
        torch._dynamo.reset()
        compile_(lambda x: x * 2, backend=lambda gm, inputs: aot_module_simplified(gm, inputs, fw_compiler=forward))(x)
    assert found == [["VR[3, 64]"], ["VR[3, 64]"]]


def test_a_function_that_traces_its_graphs_compiles_for_all_sizes():
    model, graphs = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []

    def forward(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def f(x):
        y = model(x)
        return y[:x.shape[0] - 1].view(-1, 3) + x.sum(1)[1:, None]
    compiled = sot.compile(f, backend=lambda gm, inputs: aot_module_simplified(gm, inputs, fw_compiler=forward))
    with torch.no_grad():
        for rows in range(3, 10):
            x = torch.rand(rows, 3)
            torch.testing.assert_close(compiled(x), f(x))
    assert len(graphs) == 2


def test_a_size_outside_of_the_marked_range_is_captured_again():
    ranges = []

    def backend(gm, inputs):
        ranges.append(gm)
        return gm.forward
    f = sot.compile(lambda x: x * 2 if x.shape[0] <= 64 else x * 3, backend=backend)
    for rows, most, graphs in ((4, 64, 1), (64, 64, 1), (65, 100, 2), (101, 200, 3), (90, 100, 3), (7, 5, 3)):
        x = torch.ones(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=most)
        assert torch.equal(f(x), x * 2 if rows <= 64 else x * 3)
        assert len(ranges) == graphs


def test_dimensions_that_vary_are_symbols_of_the_backends_inputs():
    shapes = []

    def backend(gm, inputs):
        shapes.append([tuple(map(str, n.meta["example_value"].shape)) for n in gm.graph.find_nodes(op="placeholder")
                       if isinstance(n.meta["example_value"], torch.Tensor)])
        return lambda *args: gm(*args)
    f = sot.compile(lambda x: x * 2, backend=backend)
    for rows in (4, 5, 6):
        f(torch.ones(rows, 3))
    assert shapes[0] == [("4", "3")] and len(shapes) == 2
    assert not shapes[1][0][0].isdigit() and shapes[1][0][1] == "3"
