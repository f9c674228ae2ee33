"""Varying floats for a backend that compiles: they become inputs, as 0-d tensors of float64 (complex numbers, of
complex128). The backend would otherwise specialise on a float and compile the graph again for each value.

In the graph such a tensor is cast to the dtype of the tensor next to it, because a number does not change that dtype.
An operation that takes no tensor in place of a number is rewritten, or the number stays a constant.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.operators.lists_of_tensors import nodes_of_each
from sot.graph.nodes import name_of
from sot.graph.number_rules import is_of_lists, operation_of, rule_of
from sot.interpreter.torch_ops.autograd import Layout, layout_of
from sot.torch_compat.fake_tensors import FakeTensor

FILLED = frozenset(("full", "full_like", "new_full", "tensor", "as_tensor", "scalar_tensor", "new_tensor", "asarray"))
OF_LISTS = frozenset(("tensor", "as_tensor", "new_tensor", "asarray"))
SCALED = {"alpha": ("add", "sub", "rsub"), "value": ("addcmul", "addcdiv")}     # a number that scales an operand
HALF = torch.float16, torch.bfloat16, torch.complex32
DTYPES: dict[type, torch.dtype] = {float: torch.float64, complex: torch.complex128}


class NoTensor(Exception):
    """An operation needs the number as a number. ``operation`` is its name, if it is one on tensors."""

    operation = ""


def with_number_tensors(graph: Graph) -> Graph:
    """The same graph with tensors in place of its floats. Raises NoTensor if an operation does not take them."""
    places = number_places(graph)
    module = Writer(graph.module, {i: DTYPES[type(graph.real[i])] for i in places}).written()
    given = [tensor_of(v) if i in places else v for i, v in enumerate(graph.real)]
    examples = [given[i] if i in places else v for i, v in enumerate(graph.examples)]
    return replace(graph, module=module, real=tuple(given), examples=tuple(examples), floats=frozenset())


def taking_numbers(compiled: Callable[..., Any], which: Sequence[int]) -> Callable[..., Any]:
    """A callable that takes floats at these positions, and passes them on as tensors."""
    def call(*args: Any) -> Any:
        given = list(args)
        for i in which:
            given[i] = tensor_of(given[i])
        return compiled(*given)
    return call


def number_places(graph: Graph) -> list[int]:
    return [i for i, given in enumerate(graph.real) if type(given) in DTYPES]


def tensor_of(number: complex) -> torch.Tensor:
    return torch.tensor(number, dtype=DTYPES[type(number)])


class Writer:
    """The new graph, and the nodes of the old graph in it. In the new graph ``numbers`` are tensors: those that are
    given at ``places``, with their dtypes, and what is computed from them. ``mode`` is that of the fake tensors.
    """

    def __init__(self, module: fx.GraphModule, places: Mapping[int, torch.dtype], mode: Any = None) -> None:
        self.module, self.places, self.new = module, places, fx.Graph()
        self.nodes: dict[fx.Node, fx.Node] = {}
        self.numbers: set[fx.Node] = set()
        self.submodules: dict[str, fx.GraphModule] = {}     # those that take numbers
        self.lists: dict[Any, list[fx.Node]] = {}           # results of operations on lists of tensors
        fakes = (node.meta.get("example_value") for node in module.graph.nodes)
        self.mode: Any = mode or next((v.fake_mode for v in fakes if isinstance(v, FakeTensor)), None)

    def written(self) -> fx.GraphModule:
        if self.mode is None:
            raise NoTensor
        for i, node in enumerate(self.module.graph.find_nodes(op="placeholder")):
            self.copy(node)
            if i in self.places:
                self.become_number(node, self.places[i])
        for node in self.module.graph.nodes:
            if node.op != "placeholder":
                self.write(node)
        module = fx.GraphModule(self.module, self.new, class_name=type(self.module).__name__)
        module.meta.update(self.module.meta)
        for name, submodule in self.submodules.items():
            setattr(module, name, submodule)
        return module

    def copy(self, node: fx.Node) -> None:
        self.nodes[node] = self.new.node_copy(node, self.nodes.__getitem__)

    def become_number(self, node: fx.Node, dtype: torch.dtype) -> None:
        assert self.mode is not None
        with self.mode:
            self.nodes[node].meta["example_value"] = torch.empty((), dtype=dtype)
        self.numbers.add(node)

    def write(self, node: fx.Node) -> None:
        found = [n for n in node.all_input_nodes if n in self.numbers]
        if node.target is operator.getitem and node.args[0] in self.lists:
            self.nodes[node] = self.lists[node.args[0]][node.args[1]]      # type: ignore[index]
        elif not found:
            self.copy(node)
        elif (layout := layout_of(node.target)) is not None:
            self.call(node, layout)
        elif node.op == "output":
            raise NoTensor
        elif not any(isinstance(n.meta.get("example_value"), torch.Tensor) for n in (node, *node.all_input_nodes)):
            self.compute(node)
        else:
            try:
                self.operate(node)
            except NoTensor as error:
                error.operation = error.operation or name_of(node)
                raise

    def compute(self, node: fx.Node) -> None:
        """A number that is computed from others. Python's arithmetic is that of float64 tensors."""
        target = node.target
        self.copy(node)
        module, name = getattr(target, "__module__", ""), getattr(target, "__name__", "").removeprefix("_sym_")
        if module in ("math", "torch") and hasattr(torch, name):
            self.nodes[node].target = getattr(torch, name)
        elif module != "_operator" and target is not pow:
            raise NoTensor
        if not isinstance(result := self.result(self.nodes[node]), torch.Tensor):
            raise NoTensor
        self.become_number(node, result.dtype)

    def call(self, node: fx.Node, layout: Layout) -> None:
        """A call of an autograd function: its subgraphs take tensors, too."""
        forward, backward, *values = node.args
        parts = (forward, 0, layout.forward), (backward, max(layout.results, 1), layout.backward)
        for part, first, taken in parts:
            assert isinstance(part, fx.Node) and isinstance(part.target, str)
            places = {first + i: self.dtype_of(values[which]) for i, which in enumerate(taken)
                      if values[which] in self.numbers}
            if places:
                self.submodules[part.target] = Writer(
                    getattr(self.module, part.target), places, self.mode).written()
        self.copy(node)

    def operate(self, node: fx.Node) -> None:
        """A tensor operation. Its numbers are cast, and its result must not change."""
        name = operation_of(node.target)
        if name in FILLED:
            return self.fill(node)
        if is_of_lists(node.target):
            return self.operate_on_each(node)
        if node.target is F.batch_norm and self.average(node):
            return None
        cast = self.cast_to(node)
        if (rule := rule_of(node.target)) is not None:
            cast = self.nodes.__getitem__ if rule.in_double else cast
            return self.put(node, "call_function", rule.function, self.moved(node.args, cast),
                            self.moved(node.kwargs, cast))
        kwargs = dict(node.kwargs)
        args = list(node.args)
        for keyword, names in SCALED.items():
            scale, place = kwargs.get(keyword), 0 if name == "rsub" else 1
            if isinstance(scale, fx.Node) and scale in self.numbers:
                if name not in names or place >= len(args):
                    raise NoTensor
                del kwargs[keyword]
                scale = cast(scale)
                args[place] = self.method("mul", self.widened(node, args[place]), scale)
        args = [v if isinstance(v, fx.Node) and v.graph is self.new else self.moved(v, cast) for v in args]
        kwargs = {key: self.moved(v, cast) for key, v in kwargs.items()}
        if name.startswith("clamp") or name == "clip":      # it takes numbers or tensors, not both
            args = [args[0], *map(self.tensor_like(cast), args[1:])]
            kwargs = {key: self.tensor_like(cast)(v) for key, v in kwargs.items()}
        target = node.target.overloadpacket if isinstance(node.target, torch._ops.OpOverload) else node.target
        self.put(node, node.op, target, tuple(args), kwargs)

    def operate_on_each(self, node: fx.Node) -> None:
        """An operation on lists of tensors. Its result is a list that only gives its tensors."""
        with nodes_of_each(node) as nodes:
            if nodes is None:
                raise NoTensor
            for one in nodes:
                self.write(one)
            self.lists[node] = [self.nodes.pop(one) for one in nodes]

    def widened(self, node: fx.Node, operand: Any) -> Any:
        """An operand in the dtype of the result, in which the operation scales it without rounding."""
        value, moved = node.meta.get("example_value"), self.moved(operand)
        given = operand.meta.get("example_value") if isinstance(operand, fx.Node) else None
        if isinstance(value, torch.Tensor) and isinstance(given, torch.Tensor) and given.dtype is not value.dtype:
            return self.method("to", moved, value.dtype)
        return moved

    def fill(self, node: fx.Node) -> None:
        """Memory filled with a number: first with 0, then with the number."""
        numbers = [n for n in node.all_input_nodes if n in self.numbers]
        value = node.meta["example_value"]
        if not isinstance(value, torch.Tensor) or value.requires_grad:
            raise NoTensor
        name = operation_of(node.target)
        data = node.args[name == "new_tensor"] if name in OF_LISTS else None
        if isinstance(data, (list, tuple)):
            parts = [self.stacked(part, value) for part in data]
            return self.put(node, "call_function", torch.stack, (parts,), {})
        if len(numbers) != 1:
            raise NoTensor
        zero = {numbers[0]: 0.0}
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: zero.get(n) if n in zero else self.nodes[n])
        memory = self.new.create_node(node.op, node.target, args, {**kwargs, "dtype": value.dtype})
        memory.meta["example_value"] = self.result(memory)
        self.put(node, "call_method", "fill_", (memory, self.nodes[numbers[0]]), {})

    def stacked(self, data: Any, like: torch.Tensor) -> fx.Node:
        """A tensor of numbers in nested lists, of the dtype and on the device of ``like``."""
        if isinstance(data, (list, tuple)):
            return self.made("call_function", torch.stack, [self.stacked(part, like) for part in data])
        if not isinstance(data, fx.Node):
            return self.made("call_function", torch.tensor, data, dtype=like.dtype, device=like.device)
        if data not in self.numbers:
            raise NoTensor
        return self.made("call_method", "to", self.nodes[data], like.device, like.dtype)

    def average(self, node: fx.Node) -> bool:
        """A batch norm of which only the momentum is a number: new statistics are moved into the running ones
        afterwards. Returns False for any other.
        """
        names = "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"
        given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        momentum, running = given.get("momentum"), [given["running_mean"], given["running_var"]]
        if momentum not in self.numbers or given.get("eps") in self.numbers or given.get("training") is not True or (
                None in running):
            return False
        fresh = [self.new.call_function(torch.zeros_like, (self.nodes[v],)) for v in running]
        moved = {key: self.moved(v) for key, v in given.items() if key != "momentum"}
        self.put(node, "call_function", F.batch_norm, (), {
            **moved, "running_mean": fresh[0], "running_var": fresh[1], "momentum": 1.0})
        for old, new in zip(running, fresh, strict=True):
            weight = self.new.call_method("to", (self.nodes[momentum], old.meta["example_value"].dtype))
            self.new.call_method("lerp_", (self.nodes[old], new, weight))
        return True

    def method(self, name: str, *args: Any) -> fx.Node:
        return self.made("call_method", name, *args)

    def made(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call with its result, which AOTAutograd's cache asks for."""
        made = self.new.create_node(kind, target, args, kwargs)
        made.meta["example_value"] = self.result(made)
        return made

    def put(self, node: fx.Node, kind: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        made = self.nodes[node] = self.new.create_node(kind, target, args, kwargs, name=node.name)
        made.meta = dict(node.meta)
        want, got = node.meta.get("example_value"), self.result(made)
        if isinstance(want, torch.Tensor) and not (isinstance(got, torch.Tensor) and (
                got.dtype, got.shape, got.device) == (want.dtype, want.shape, want.device)):
            raise NoTensor

    # ---- values
    def cast_to(self, node: fx.Node) -> Callable[[fx.Node], fx.Node]:
        """A function that casts a number to its dtype next to the tensors of an operation."""
        beside = [v for n in node.all_input_nodes if n not in self.numbers
                  and isinstance(v := n.meta.get("example_value"), torch.Tensor)]

        def cast(number: fx.Node) -> fx.Node:
            dtype = dtype_beside(beside, self.dtype_of(number).is_complex)
            made = self.new.call_method("to", (self.nodes[number], dtype))
            assert self.mode is not None
            with self.mode:
                made.meta["example_value"] = torch.empty((), dtype=dtype)
            return made
        return cast

    def dtype_of(self, number: Any) -> torch.dtype:
        return self.nodes[number].meta["example_value"].dtype

    def moved(self, value: Any, cast: Callable[[fx.Node], fx.Node] | None = None) -> Any:
        """A value of the old graph in the new one."""
        return fx.node.map_arg(value, lambda n: cast(n) if cast is not None and n in self.numbers else self.nodes[n])

    def tensor_like(self, cast: Callable[[fx.Node], fx.Node]) -> Callable[[Any], Any]:
        def tensor(value: Any) -> Any:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return self.new.call_function(torch.tensor, (value,))
            return value
        return tensor

    def result(self, node: fx.Node) -> Any:
        """The result of an operation on fresh fake tensors."""
        assert self.mode is not None

        def fresh(n: fx.Node) -> Any:
            value = n.meta["example_value"] if "example_value" in n.meta else self.result(n)
            if not isinstance(value, torch.Tensor):
                return value
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        try:
            with self.mode.running(), torch.no_grad():
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), fresh)
                if node.op == "call_method":
                    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
                if node.op == "call_function":
                    return node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception as error:
            raise NoTensor from error
        raise NoTensor


def dtype_beside(tensors: Sequence[torch.Tensor], is_complex: bool) -> torch.dtype:
    """The dtype of a number next to these tensors."""
    number = 1j if is_complex else 1.0
    dtype = torch.get_default_dtype()
    dtype = dtype.to_complex() if is_complex else dtype
    if tensors:
        dtype = torch.result_type(tensors[0], number)
        for tensor in tensors[1:]:
            dtype = torch.promote_types(dtype, torch.result_type(tensor, number))
    dtype = dtype.to_real() if dtype.is_complex and not is_complex else dtype
    if dtype in HALF and any(tensor.dim() for tensor in tensors):
        dtype = torch.complex64 if is_complex else torch.float32
    return dtype
