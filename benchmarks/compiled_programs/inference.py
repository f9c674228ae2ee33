"""Inference: vision, language, diffusion, graphs, sequences, detection."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from compiled_programs.program import Compile, Program, program


def inferring(module: nn.Module, compile_: Compile, arguments: Any) -> Program:
    module.eval()
    compiled = compile_(module)

    def run(*args: Any) -> Any:
        with torch.no_grad():
            return compiled(*args)

    return Program(run, arguments)


def block(a: int, b: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b, self.norm = block(n, n), nn.Conv2d(n, n, 3, 1, 1), nn.BatchNorm2d(n)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.norm(self.b(self.a(x))))


@program("vision")
def resnet(compile_: Compile, part: Compile) -> Program:
    model = nn.Sequential(block(3, 16), Residual(16), block(16, 32, 2), Residual(32), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(32, 10))
    return inferring(model, compile_, lambda i: (torch.randn(2 + i, 3, 32, 32),))


class Attention(nn.Module):
    def __init__(self, n: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.causal = nn.Linear(n, 3 * n), nn.Linear(n, n), heads, causal

    def forward(self, x: Any, mask: Any = None) -> Any:
        batch, length, n = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, n // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal and mask is None)
        return self.out(x.transpose(1, 2).reshape(batch, length, n))


class Layer(nn.Module):
    def __init__(self, n: int, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(n, heads, causal), nn.LayerNorm(n), nn.LayerNorm(n)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))

    def forward(self, x: Any, mask: Any = None) -> Any:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 64, 8, 8), nn.Parameter(torch.zeros(1, 1, 64))
        self.place, self.layers = nn.Parameter(torch.randn(1, 17, 64) / 8), nn.ModuleList(Layer(64) for _ in range(2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


@program("vision")
def vit(compile_: Compile, part: Compile) -> Program:
    return inferring(ViT(), compile_, lambda i: (torch.randn(2 + i, 3, 32, 32),))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.up = block(3, 16), block(16, 32, 2), block(48, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: Any) -> Any:
        a = self.down(x)
        b = F.interpolate(self.middle(a), size=a.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(self.up(torch.cat([a, b], 1))).sigmoid()


@program("vision, dynamic size")
def segmentation(compile_: Compile, part: Compile) -> Program:
    return inferring(UNet(), compile_, lambda i: (torch.randn(1, 3, 32 + 4 * i, 32 + 4 * i),))


class Mobile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depth, self.point = block(3, 16, 2), nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Conv2d(16, 32, 1)
        self.squeeze, self.excite, self.head = nn.Linear(32, 8), nn.Linear(8, 32), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = F.hardswish(self.point(F.hardswish(self.depth(self.stem(x)))))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3))))))
        return self.head((x * gate[:, :, None, None]).mean((2, 3)))


@program("vision, AMP")
def mobile_amp(compile_: Compile, part: Compile) -> Program:
    program_ = inferring(Mobile(), compile_, lambda i: (torch.randn(2 + i, 3, 32, 32),))
    run = program_.run

    def amp(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return run(x)

    program_.run = amp
    return program_


class GPT(nn.Module):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(100, 64), nn.Embedding(256, 64)
        self.layers, self.norm = nn.ModuleList(Layer(64, 4, causal) for _ in range(2)), nn.LayerNorm(64)

    def forward(self, ids: Any, mask: Any = None) -> Any:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        if mask is not None:
            mask = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.tokens.weight.T


@program("language, dynamic length")
def gpt(compile_: Compile, part: Compile) -> Program:
    return inferring(GPT(), compile_, lambda i: (torch.arange(2 * (16 + i)).reshape(2, -1) % 100,))


@program("language, padding mask")
def bert(compile_: Compile, part: Compile) -> Program:
    def arguments(i: int) -> tuple:
        ids = torch.arange(3 * (12 + i)).reshape(3, -1) % 100
        return ids, (torch.arange(12 + i)[None] < torch.tensor([[5], [9], [12]])).long()

    return inferring(GPT(causal=False), compile_, arguments)


def rotary(x: Any, place: Any) -> Any:
    half = x.shape[-1] // 2
    angle = place[:, None] / 10000 ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Llama(nn.Module):
    """Decodes with a cache of keys and values, which grows with each token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.q, self.kv = nn.Embedding(100, 64), nn.Linear(64, 64), nn.Linear(64, 128)
        self.gate, self.up, self.down = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64)
        self.norm1, self.norm2 = nn.RMSNorm(64), nn.RMSNorm(64)

    def forward(self, ids: Any, cache: Any = None) -> Any:
        x = self.tokens(ids)
        batch, length, _ = x.shape
        start = 0 if cache is None else cache[0].shape[2]
        place = torch.arange(start, start + length, dtype=torch.float32)
        h = self.norm1(x)
        q = rotary(self.q(h).view(batch, length, 4, 16).transpose(1, 2), place)
        k, v = self.kv(h).view(batch, length, 2, 4, 16).permute(2, 0, 3, 1, 4)
        k = rotary(k, place)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + a.transpose(1, 2).reshape(batch, length, 64)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), (k, v)


@program("language, growing cache")
def llama_decode(compile_: Compile, part: Compile) -> Program:
    def arguments(i: int) -> tuple:
        return torch.full((2, 1), 7), (torch.randn(2, 4, 8 + i, 16), torch.randn(2, 4, 8 + i, 16))

    return inferring(Llama(), compile_, arguments)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(4))

    def forward(self, x: Any) -> Any:
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            result = result + expert(x) * (weight * (chosen == i)).sum(-1, keepdim=True)
        return result


@program("language, mixture of experts")
def experts(compile_: Compile, part: Compile) -> Program:
    return inferring(Experts(), compile_, lambda i: (torch.randn(20 + i, 32),))


class StateSpace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.decay, self.out = nn.Linear(16, 32), nn.Parameter(-torch.rand(32)), nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        u, state, seen = self.inp(x), x.new_zeros(x.shape[0], 32), []
        for t in range(8):
            state = state * self.decay.exp() + u[:, t]
            seen.append(state)
        return self.out(torch.stack(seen, 1))


@program("recurrent, unrolled loop")
def state_space(compile_: Compile, part: Compile) -> Program:
    return inferring(StateSpace(), compile_, lambda i: (torch.randn(2 + i, 8, 16),))


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.inp = nn.Linear(32, 32), nn.Conv2d(3, 32, 3, padding=1)
        self.out = nn.Conv2d(32, 3, 3, padding=1)
        self.norm = nn.GroupNorm(8, 32)

    def forward(self, x: Any, t: Any) -> Any:
        angle = t[:, None] * torch.exp(torch.arange(16) * (-math.log(10000) / 16))
        time = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        return self.out(F.silu(self.norm(self.inp(x)) + time[:, :, None, None]))


@program("diffusion")
def denoiser(compile_: Compile, part: Compile) -> Program:
    return inferring(Denoiser(), compile_, lambda i: (torch.randn(2 + i, 3, 16, 16), torch.arange(2.0 + i)))


@program("diffusion, a step with floats")
def ddim_step(compile_: Compile, part: Compile) -> Program:
    model = Denoiser().eval()

    @compile_
    def step(x: Any, t: float, alpha: float, before: float) -> Any:
        noise = model(x, torch.full((x.shape[0],), t))
        first = (x - (1 - alpha) ** 0.5 * noise) / alpha ** 0.5
        return before ** 0.5 * first + (1 - before) ** 0.5 * noise

    def run(*args: Any) -> Any:
        with torch.no_grad():
            return step(*args)

    return Program(run, lambda i: (torch.randn(2, 3, 16, 16), 50.0 - i, 0.5 + i / 50, 0.52 + i / 50))


class DiT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.adapt = Attention(32, 4), nn.Linear(32, 96)
        self.norm = nn.LayerNorm(32, elementwise_affine=False)

    def forward(self, x: Any, c: Any) -> Any:
        shift, scale, gate = self.adapt(F.silu(c))[:, None].chunk(3, -1)
        return x + gate * self.attention(self.norm(x) * (1 + scale) + shift)


@program("diffusion, transformer")
def dit(compile_: Compile, part: Compile) -> Program:
    return inferring(DiT(), compile_, lambda i: (torch.randn(2, 16 + i, 32), torch.randn(2, 32)))


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)

    def spread(self, x: Any, edges: Any) -> Any:
        degree = torch.zeros(x.shape[0]).index_add(0, edges[1], torch.ones(edges.shape[1])).clamp(min=1)
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]) / degree[:, None]

    def forward(self, x: Any, edges: Any) -> Any:
        return self.spread(self.b(F.relu(self.spread(self.a(x), edges))), edges)


def graph(i: int) -> tuple:
    nodes = 20 + i
    return torch.randn(nodes, 8), torch.randint(0, nodes, (2, 60 + 3 * i))


@program("graph, dynamic nodes and edges")
def gcn(compile_: Compile, part: Compile) -> Program:
    return inferring(GCN(), compile_, graph)


class GAT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.a = nn.Linear(8, 16), nn.Linear(32, 1)

    def forward(self, x: Any, edges: Any) -> Any:
        h = self.w(x)
        score = F.leaky_relu(self.a(torch.cat([h[edges[0]], h[edges[1]]], -1)).squeeze(-1), 0.2)
        highest = torch.full((x.shape[0],), -1e9).scatter_reduce(0, edges[1], score, "amax")
        weight = (score - highest[edges[1]]).exp()
        total = torch.zeros(x.shape[0]).index_add(0, edges[1], weight)
        return torch.zeros_like(h).index_add(0, edges[1], h[edges[0]] * (weight / total[edges[1]])[:, None])


@program("graph, attention")
def gat(compile_: Compile, part: Compile) -> Program:
    return inferring(GAT(), compile_, graph)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(16, 32), nn.Linear(32, 4)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.shape[0], 32)
        for t in range(6):
            h, c = self.cell(x[:, t], (h, c))
        return self.out(h)


@program("recurrent, cells")
def lstm_cells(compile_: Compile, part: Compile) -> Program:
    return inferring(Cells(), compile_, lambda i: (torch.randn(2 + i, 6, 16),))


class Detector(nn.Module):
    """Heads over two scales, boxes decoded, the best kept, and those over a threshold selected."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = block(3, 16, 4), block(16, 16, 2), nn.Conv2d(16, 5, 1)

    def forward(self, x: Any) -> dict[str, Any]:
        a = self.a(x)
        found = [self.head(level).flatten(2).transpose(1, 2) for level in (a, self.b(a))]
        all_ = torch.cat(found, 1)
        score, index = all_[..., 4].sigmoid().topk(10, 1)
        box = all_[..., :4].gather(1, index[..., None].expand(-1, -1, 4))
        centre, size = box[..., :2].sigmoid() * x.shape[-1], box[..., 2:].exp()
        return {"boxes": torch.cat([centre - size / 2, centre + size / 2], -1), "scores": score}


@program("detection")
def detector(compile_: Compile, part: Compile) -> Program:
    return inferring(Detector(), compile_, lambda i: (torch.randn(2 + i, 3, 64, 64),))


class Selecting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.detector = Detector()

    def forward(self, x: Any) -> list[Any]:
        found = self.detector(x)
        keep = found["scores"][0] > 0.5
        return [found["boxes"][0][keep], found["scores"][0][keep]]


@program("detection, a selection by value")
def selection(compile_: Compile, part: Compile) -> Program:
    return inferring(Selecting(), compile_, lambda i: (torch.randn(1, 3, 64 + 8 * i, 64),))


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Conv1d(1, 16, 10, 5), nn.Conv1d(16, 32, 4, 2), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        return self.out(F.gelu(self.b(F.gelu(self.a(x[:, None])))).transpose(1, 2)).log_softmax(-1)


@program("audio, dynamic length")
def speech(compile_: Compile, part: Compile) -> Program:
    return inferring(Speech(), compile_, lambda i: (torch.randn(2, 400 + 20 * i),))


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(4))
        self.dense, self.top = nn.Linear(8, 16), nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: Any, sparse: Any) -> Any:
        x = torch.stack([F.relu(self.dense(dense)), *(t(sparse[:, i]) for i, t in enumerate(self.tables))], 1)
        pairs = x @ x.transpose(1, 2)
        rows, columns = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([x[:, 0], pairs[:, rows, columns]], 1)).sigmoid()


@program("recommendation")
def clicks(compile_: Compile, part: Compile) -> Program:
    return inferring(Clicks(), compile_, lambda i: (torch.randn(4 + i, 8), torch.randint(0, 50, (4 + i, 4))))
