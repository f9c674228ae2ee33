"""What runs on fakes in place of operations whose own kernels read the values of a tensor: those on packed sequences,
the parts of a sparse tensor, and a few others.

``pack_padded_sequence`` makes one long row of sequences of different lengths. How long that is depends on the lengths,
so the sizes of its results are symbols of data. A recurrent network over such a row has results with the sizes of its
arguments.
"""
from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from sot.graph.symbolic_sizes import function_for
from sot.torch_compat.compilers import unrolls_lstm_wrongly
from sot.torch_compat.data_symbols import is_known_true
from sot.torch_compat.functions import is_traced
from sot.torch_compat.graphs import expression


def new_size() -> Any:
    """A size that depends on data. Raises DynamicOutputShapeException where these are not admitted."""
    return torch.empty(1 << 40, dtype=torch.bool).nonzero().shape[0]     # of a fake: no size is greater


def packed(data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The row (elements, *features), and how many sequences have an element at each position."""
    first = data[0, 0]
    return first.expand(new_size(), *first.shape).clone(), torch.empty(new_size(), dtype=lengths.dtype)


def padded(data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float,
           total_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences (batch, length, *features) or (length, batch, *features), and their lengths."""
    sequences, length = new_size(), total_length if total_length > 0 else batch_sizes.shape[0]
    one = data.sum(0, dtype=data.dtype)
    made = one.expand(length, sequences, *one.shape).clone()
    return made.transpose(0, 1) if batch_first else made, torch.empty(sequences, dtype=batch_sizes.dtype)


def recurrent(network: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a network. A step on one sequence has the dtypes of the results, and needs gradients as they do."""
    def rule(data: torch.Tensor, batch_sizes: torch.Tensor, hx: Any, *options: Any) -> tuple[torch.Tensor, ...]:
        states = hx if isinstance(hx, (tuple, list)) else (hx,)
        start = [state.mean(1, keepdim=True) for state in states]
        step, *ends = network(data.mean(0).view(1, 1, -1), start if hx is states else start[0], *options, False)
        return (step.view(1, -1).expand(data.shape[0], -1).clone(),
                *(end.expand_as(state).clone() for end, state in zip(ends, states, strict=True)))
    return rule


def alignment_loss(log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Any, target_lengths: Any,
                   blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> torch.Tensor:
    """``F.ctc_loss`` of (length, batch, classes) or (length, classes): a loss for each sequence, or one for all."""
    losses = log_probs.sum((0, -1))
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else losses.sum()


def bounds_of_alignment(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: Any = 0,
                        reduction: Any = "mean", zero_infinity: Any = False) -> list[tuple] | None:
    """The lengths for which ``F.ctc_loss`` of a batch may raise on the CPU, like ``bounds_of_indices``: no length
    exceeds the scores or the padded targets. None if it may raise for something else. Arguments are fakes.
    """
    given = log_probs, targets, input_lengths, target_lengths
    if not all(isinstance(v, torch.Tensor) and v.device.type == "cpu" for v in given) or [v.dim() for v in given] != [
            3, 2, 1, 1] or any(v.dtype is not torch.int64 for v in given[1:]) or log_probs.dtype is not torch.float32:
        return None
    length, batch, classes = log_probs.shape
    if type(blank) is not int or type(classes) is not int or not 0 <= blank < classes or not all(
            v.shape[0] == batch for v in given[1:]) or length == 0 or batch == 0:
        return None
    return [(input_lengths, length + 1, False, None), (target_lengths, targets.shape[1] + 1, False, None)]


def covariance(x: torch.Tensor) -> torch.Tensor:
    """The target of the node of ``torch.cov`` of several variables. Where a compiler or ``sot.save`` traces it, it
    computes the same without torch's check of weights, which reads values.
    """
    if not is_traced():
        return torch.cov(x)
    centred = x - x.mean(1, keepdim=True)
    return ((centred @ centred.t()) / (x.shape[1] - 1)).squeeze()


def correlation(x: torch.Tensor) -> torch.Tensor:
    """The same for ``torch.corrcoef``."""
    if not is_traced():
        return torch.corrcoef(x)
    found = covariance(x)
    if not found.dim():
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clip(-1, 1)


def least_squares(a: torch.Tensor, b: torch.Tensor) -> Any:
    """``torch.linalg.lstsq`` of no more equations than unknowns, on the CPU: a solution by columns, no residuals."""
    return torch.return_types.linalg_lstsq((    # type: ignore[attr-defined]
        (b.T @ a).T, a.new_empty(0), torch.empty((), dtype=torch.int64), a.new_empty(0)))


def compressed(layout: torch.layout) -> Callable[..., torch.Tensor]:
    """The rule of a function that makes a matrix of compressed rows or columns. Its own kernel refuses fakes."""
    def rule(compressed_indices: torch.Tensor, plain_indices: torch.Tensor, values: torch.Tensor, size: Any, *,
             dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        return torch.ops.aten._sparse_compressed_tensor_with_dims(
            0, values.dim() - plain_indices.dim(), [*size], [], compressed_indices.dtype, layout=layout,
            dtype=dtype or values.dtype, device=device or values.device)
    return rule


UNROLLED = 16       # Inductor takes a second for each cell, and a kernel of PyTorch's runs as fast
RECURRENT = torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu
ON_PACKED: dict[Any, Callable[..., Any]] = {
    torch._pack_padded_sequence: packed, torch._pad_packed_sequence: padded,
    **{network: recurrent(network) for network in RECURRENT}}
OTHERS: dict[Any, Callable[..., Any]] = {
    F.ctc_loss: alignment_loss, torch.linalg.lstsq: least_squares,
    torch.sparse_csr_tensor: compressed(torch.sparse_csr), torch.sparse_csc_tensor: compressed(torch.sparse_csc)}
BY_NAME = {function.__name__: (function, fake) for function, fake in {**ON_PACKED, **OTHERS}.items()}
COVARIANCES = {torch.cov: covariance, torch.corrcoef: correlation}
BOUNDS = {F.ctc_loss.__name__: bounds_of_alignment}


def on_packed(name: str, *args: Any, **kwargs: Any) -> Any:
    """The target of the node of such an operation. Compilers cannot trace it; ``sot.save`` can."""
    if name == "_pad_packed_sequence" and not kwargs and isinstance(args[4], torch.SymInt):
        return padded_to_symbol(*args)
    return BY_NAME[name][0](*args, **kwargs)


def recurrence(name: str, *args: Any) -> Any:
    """The target of the node of a recurrent network over padded sequences, if torch's own code for fakes would unroll
    many steps. Compilers do not trace it; ``sot.save`` does.
    """
    return getattr(torch, name)(*args)


def rule_of_recurrence(name: str, input: torch.Tensor, hx: Any, params: Any, has_biases: bool, layers: int,
                       dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> tuple[torch.Tensor, ...]:
    """One step, whose result is repeated. The output has the steps first in memory."""
    steps = 1 if batch_first else 0
    step, *ends = getattr(torch, name)(input.narrow(steps, 0, 1), hx, params, has_biases, layers, dropout, train,
                                       bidirectional, batch_first)
    output = step.transpose(0, steps).expand(input.shape[steps], -1, -1).clone(memory_format=torch.contiguous_format)
    states = hx if isinstance(hx, (tuple, list)) else (hx,)
    return output.transpose(0, steps), *(end.view_as(state) for end, state in zip(ends, states, strict=True))


def has_operator(input: torch.Tensor, hidden: torch.Tensor, cells: torch.Tensor) -> bool:
    """Whether torch has an operator for an LSTM of any length. It records no gradients and drops nothing."""
    return input.device.type == "cpu" and input.dtype in (torch.float32, torch.bfloat16) and (
        hidden.shape[-1] == cells.shape[-1]) and not torch.is_grad_enabled()


def unrolls(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a compiler would unroll a recurrent network over padded sequences to more than UNROLLED cells, or again
    for each length, or wrongly.
    """
    if target not in RECURRENT or kwargs or len(args) != 9 or not all(type(args[i]) in (int, bool) for i in (4, 7, 8)):
        return False
    input, (layers, dropout, _, bidirectional, batch_first) = args[0].fake, args[4:]
    if target is torch.lstm and has_operator(input, *(state.fake for state in args[1])) and dropout == 0:
        return False
    if target is torch.lstm and unrolls_lstm_wrongly():
        return True
    steps = input.shape[1 if batch_first else 0]
    return isinstance(steps, torch.SymInt) or steps * layers * (2 if bidirectional else 1) > UNROLLED


def padded_to_symbol(data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float,
                     total_length: torch.SymInt) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator itself takes no symbol for the length. Without one it is that of the longest sequence."""
    sequences, lengths = torch._pad_packed_sequence(data, batch_sizes, batch_first, padding_value, -1)
    longest = batch_sizes.shape[0]
    if expression(total_length) == expression(longest):
        return sequences, lengths
    torch._check(total_length >= longest)
    places = [0, 0] * (sequences.dim() - (2 if batch_first else 1))
    return F.pad(sequences, [*places, 0, total_length - longest], value=padding_value), lengths     # type: ignore[list-item]


def part_of_sparse(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The target of the node for the indices or the values of a sparse tensor. On fakes they are contiguous."""
    part = getattr(tensor, name)()
    if not part.is_contiguous():
        raise RuntimeError(f"{name}() of a sparse tensor is not contiguous")
    return part


def rule_of_sparse(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The part of a sparse fake, which has no elements, with a symbol for their number."""
    part = getattr(tensor, name)()
    if tensor.layout is torch.sparse_coo:
        dim = 1 if name in ("indices", "_indices") else 0
    else:
        rows = tensor.crow_indices if tensor.layout in (torch.sparse_csr, torch.sparse_bsr) else tensor.ccol_indices
        dim = rows().dim() - 1
    sizes = [*part.shape]
    sizes[dim] = number_of_elements(tensor)
    return part.sum(dim, keepdim=True, dtype=part.dtype).expand(sizes).clone(memory_format=torch.contiguous_format)


def number_of_elements(fake: Any) -> Any:
    """The symbol for it, until the fake changes."""
    known = getattr(fake, "number_of_elements", None)
    if known is None or known[0] != fake._version:
        known = fake.number_of_elements = fake._version, new_size()
    return known[1]


def rule_on_packed(name: str, *args: Any, **kwargs: Any) -> Any:
    return BY_NAME[name][1](*args, **kwargs)


def bounds_of_rule(target: Any, args: tuple, kwargs: dict[str, Any]) -> list[tuple] | None:
    """The indices for which an operation with a rule may raise. None if it may raise for something else."""
    bounds = BOUNDS.get(args[0]) if target is on_packed else None
    return bounds(*args[1:], **kwargs) if bounds is not None else None


def of_buffer(content: str, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
    """The target of the node of ``torch.frombuffer`` of a buffer of the call. Each character is a byte."""
    return torch.frombuffer(bytearray(content, "latin-1"), dtype=dtype, count=count, offset=offset)


def rule_of_buffer(content: str, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
    return torch.empty(count if count > 0 else (len(content) - offset) // dtype.itemsize, dtype=dtype)


def bytes_of(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """The target of the node for the bytes in the storage of a tensor."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (size,), (1,)).clone()


def rule_of_bytes(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)


def element_of(tensor: torch.Tensor, dtype: torch.dtype, index: int) -> torch.Tensor:
    """The target of the node for an element of the storage of a tensor, taken as one of this dtype."""
    return torch.empty(0, dtype=dtype).set_(tensor.untyped_storage())[index].clone()


def rule_of_element(tensor: torch.Tensor, dtype: torch.dtype, index: int) -> torch.Tensor:
    return torch.empty((), dtype=dtype)


def nested_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The target of the node for attention between jagged tensors, which torch computes by their lengths."""
    result = F.scaled_dot_product_attention(query, key, value)
    if (result.shape, result.stride(), result.dtype) != (query.shape, query.stride(), query.dtype):
        raise RuntimeError("the result of attention is not like its query")
    return result


def pickled(tensor: torch.Tensor) -> torch.Tensor:
    """The target of the node that loads a tensor which was pickled."""
    return pickle.loads(pickle.dumps(tensor))       # noqa: S301 - of this process


def saved_and_loaded(tensor: torch.Tensor) -> torch.Tensor:
    """The same for ``torch.save``."""
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def select(tensor: torch.Tensor, dim: int, index: int, position: int) -> torch.Tensor:
    """The target of the node of ``tensor[index]``, whose index may be out of range. The exception has the words of a
    subscript, which name the position in the key.
    """
    with contextlib.suppress(IndexError):
        return torch.select(tensor, dim, index)
    raise IndexError(f"index {index} is out of bounds for dimension {position} with size {tensor.shape[dim]}")


RULES: dict[Any, Callable[..., Any]] = {
    select: lambda tensor, dim, index, position: torch.select(tensor, dim, index),
    nested_attention: lambda query, key, value: torch.empty_like(query),
    pickled: torch.clone, saved_and_loaded: torch.clone,
    of_buffer: rule_of_buffer, bytes_of: rule_of_bytes, element_of: rule_of_element, on_packed: rule_on_packed,
    part_of_sparse: rule_of_sparse, recurrence: rule_of_recurrence}
NEVER_REFUSE = frozenset({recurrence})      # values
PARTS_OF_SPARSE = frozenset(("indices", "_indices", "values", "_values", "col_indices", "row_indices"))


NAMES_OF_PARTS = {torch.sparse_csr_tensor: ("crow_indices", "col_indices", "values", "size"),
                  torch.sparse_csc_tensor: ("ccol_indices", "row_indices", "values", "size")}


def by_position(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The same arguments, those with these names by position."""
    rest = names[len(args):]
    if not all(name in kwargs for name in rest):
        return args, kwargs
    return (*args, *(kwargs[name] for name in rest)), {k: v for k, v in kwargs.items() if k not in rest}


def is_sparse(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.layout is not torch.strided and not fake.is_nested


def is_opaque(target: Any) -> bool:
    """Whether a node's function is marked as one that no compiler can trace."""
    return hasattr(target, "is_opaque")


def has_rule(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the rule of one of ``OTHERS`` is for these arguments, among which tensors are references."""
    if target is F.ctc_loss:
        return any(hasattr(v, "fake") for v in (*args[2:4], *(kwargs.get(f"{n}_lengths") for n in ("input", "target"))))
    fakes = [getattr(arg, "fake", None) for arg in args]
    if target is torch.linalg.lstsq:
        return len(fakes) == 2 and not kwargs and all(
            isinstance(v, torch.Tensor) and v.dim() == 2 and v.is_floating_point() and v.device.type == "cpu"
            and not v.requires_grad and all(type(n) is int for n in v.shape) for v in fakes) and (
            fakes[0].shape[0] <= fakes[0].shape[1])     # type: ignore[union-attr]
    if target in NAMES_OF_PARTS:
        return len(fakes) == 4 and kwargs.keys() <= {"dtype", "device"} and all(
            isinstance(v, torch.Tensor) and not v.requires_grad for v in fakes[:3])
    return False


def has_observations(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether these are the arguments of a covariance of several variables. It warns if there are too few observations.
    """
    fake = getattr(args[0], "fake", None) if len(args) == 1 and not kwargs else None
    return isinstance(fake, torch.Tensor) and fake.dim() == 2 and fake.is_floating_point() and is_known_true(
        fake.shape[1] > 1)


def node_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The target and arguments of the node for a call. A recurrent network gets a packed sequence if its weights are
    fourth, after the batch sizes.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name.partition(".")[0] in PARTS_OF_SPARSE and is_sparse(getattr(args[0], "fake", None)):
        return part_of_sparse, (name.partition(".")[0], args[0]), {}
    if not getattr(target, "__hash__", None):
        return target, args, kwargs
    if target in NAMES_OF_PARTS:
        args, kwargs = by_position(NAMES_OF_PARTS[target], args, kwargs)
    if target in ON_PACKED and (target not in RECURRENT or len(args) > 3 and isinstance(args[3], (tuple, list))):
        return on_packed, (target.__name__, *args), kwargs
    if target in OTHERS and has_rule(target, args, kwargs):
        return on_packed, (target.__name__, *args), kwargs
    if target in COVARIANCES and has_observations(args, kwargs):
        return COVARIANCES[target], args, kwargs
    if unrolls(target, args, kwargs):
        return recurrence, (target.__name__, *args), kwargs
    return function_for(target, args, kwargs), args, kwargs
