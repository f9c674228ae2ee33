"""Operations whose kernels take a size only as a constant: two captures serve all sizes, also of backends that compile,
and in saved files.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from torch import nn

import sot
from sot import InputSpec

programs = Programs()
SIZES = [6, 7, 9, 5, 12, 4, 6]


@programs
def linspace(x):
    n = x.shape[1]
    return x * torch.linspace(0, 1, n)[:, None], torch.linspace(-1, n, steps=n, dtype=torch.float64)


@programs
def logspace(x):
    return torch.logspace(0, 1, x.shape[1], base=2.0)[:, None] * x


@programs
def windows(x):
    n = x.shape[1]
    return (torch.hann_window(n), torch.hamming_window(n, periodic=False), torch.hamming_window(n, True, 0.5),
            torch.blackman_window(window_length=n, dtype=torch.float64), torch.bartlett_window(n),
            torch.bartlett_window(n, periodic=False), torch.kaiser_window(n), torch.kaiser_window(n, False, beta=5.0))


@programs
def signals(x):
    window, signal = torch.hann_window(4) + 0.1, x[..., 0]
    spectrum = torch.stft(signal, 4, 3, window=window, pad_mode="constant", return_complex=True)
    return (torch.istft(spectrum, 4, 3, window=window, length=x.shape[1]),
            spectrum.istft(4, 3, window=window, center=False, length=x.shape[1] + 6))


@programs
def powers(x):
    n, row = x.shape[1], x[0, 0].detach()
    return torch.vander(row, n), torch.vander(row, N=n, increasing=True), torch.vander(row.long(), n)


@programs
def covariances(x):
    return torch.cov(x.flatten(0, 1)), torch.corrcoef(x.flatten(0, 1))


@programs
def triangles(x):
    n = x.shape[1]
    return torch.ones(n, n + 3).tril(n - 3), torch.triu(torch.ones(2, n, n + 3), diagonal=n - 5), x.tril(3 - n)


@programs
def pairs(x):
    n = x.shape[1]
    i, j = torch.triu_indices(n, n, 1)
    return x[:, i] * x[:, j], torch.tril_indices(n, n), torch.tril_indices(n, n, -2), torch.triu_indices(n, n)


@programs
def one_hot(x):
    return F.one_hot(x.argmax(1), x.shape[1])


@programs
def gathered(x):
    places = x.argsort(1)
    return torch.take_along_dim(x, places, 1), x.take_along_dim(places[:1], 1), x.take_along_dim(places.flatten())


@programs
def kron(x):
    return torch.kron(x[0], x[1])


@programs
def distances(x):
    return torch.cdist(x, x[:, 1:])


@programs
def a_grid(x):
    theta = torch.eye(2, 3).expand(x.shape[0], 2, 3) * 0.5
    return [F.affine_grid(theta, (x.shape[0], 1, x.shape[1], 4), align_corners=a) for a in (True, False)]


@programs
def pooled(x):
    rows = x.transpose(1, 2).contiguous()
    return F.max_pool1d(rows, rows.shape[2]).squeeze(-1), F.avg_pool1d(rows, rows.shape[2]), torch.max_pool1d(
        rows, kernel_size=rows.size(2)), F.max_pool2d(x[:, None], x.shape[1:]), F.avg_pool2d(x[:, None], x.size()[1:])


def flat(values):
    return list(values) if isinstance(values, (tuple, list)) else [values]


def gradient(results, x):
    """That of the results by x, each element weighed by its place; None if no result depends on x."""
    losses = [(v * torch.arange(1.0, v.numel() + 1).view(v.shape)).sum() for v in results if v.requires_grad]
    return torch.autograd.grad(torch.stack(losses).sum(), x)[0] if losses else None


def check_sizes(fn, backend):
    """Calls with these sizes give PyTorch's results, strides and gradients, with two captures."""
    translated = sot.to_static(fn, backend=backend)
    for n in SIZES:
        inputs = [torch.rand(2, n, 4, generator=torch.Generator().manual_seed(n)).requires_grad_() for _ in range(2)]
        mine, its = (flat(f(x)) for f, x in zip((translated, fn), inputs, strict=True))
        torch.testing.assert_close(mine, its)
        assert [(a.stride(), a.requires_grad) for a in mine] == [(a.stride(), a.requires_grad) for a in its]
        if backend == "eager":
            assert all(map(torch.equal, mine, its))
        torch.testing.assert_close(gradient(mine, inputs[0]), gradient(its, inputs[1]))
    assert len(sot.translation_of(translated).captures) <= 2
    assert not any(capture.stopped for capture in sot.translation_of(translated).captures)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_two_captures_serve_all_sizes(fn, backend):
    check_sizes(fn, backend)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [one_hot, pooled])
def test_inductor_compiles_them_twice(fn):
    check_sizes(fn, "inductor")


class Saved(nn.Module):
    def __init__(self, program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x):
        return self.program(x)


@programs.each
def test_a_saved_file_takes_any_size(fn, tmp_path):
    loaded = sot.load(sot.save(Saved(fn), tmp_path / "m", input_spec=[InputSpec((2, None, 4))]))
    for n in (*SIZES, 2, 1):
        x = torch.rand(2, n, 4)
        torch.testing.assert_close(flat(loaded(x)), flat(fn(x)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_covariance_of_any_number_of_observations(backend):
    translated = sot.to_static(lambda x: (torch.cov(x), torch.corrcoef(x)), backend=backend)
    for n in SIZES:
        x = torch.rand(3, n)
        torch.testing.assert_close(translated(x), (torch.cov(x), torch.corrcoef(x)), rtol=0, atol=0)
    captures = sot.translation_of(translated).captures
    assert len(captures) <= 2 and not any(capture.stopped for capture in captures)


def test_an_index_that_is_out_of_range_is_an_error_at_any_size():
    def f(x, i):
        return F.one_hot(i, x.shape[0])
    translated = sot.to_static(f, backend="eager")
    for n in (3, 4, 5):
        assert torch.equal(translated(torch.ones(n), torch.tensor([2])), f(torch.ones(n), torch.tensor([2])))
    for g in (f, translated):
        with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
            g(torch.ones(6), torch.tensor([6]))


def test_a_window_over_a_part_is_captured_for_each_size():
    """Its size is not that of the whole, and torch's kernel takes it as a constant."""
    def f(x):
        return F.max_pool1d(x, x.shape[1] // 2)
    translated = sot.to_static(f, backend="eager")
    for n in (8, 10, 12):
        x = torch.rand(2, n)
        assert torch.equal(translated(x), f(x))
