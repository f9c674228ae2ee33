"""Train a small GPT on the text of this file, as nanoGPT does, and sample from it.

The model is one graph in training, and the losses are those of plain PyTorch to the last bit.
"""
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import sot

WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 32, 4, 2, 32, 8, 30
TEXT = Path(__file__).read_text(encoding="utf-8")
CHARACTERS = sorted(set(TEXT))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.before(x)).split(WIDTH, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.after(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(len(CHARACTERS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS), bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def learning_rate(step: int) -> float:
    return 1e-2 * min((step + 1) / 5, 0.5 * (1 + math.cos(math.pi * step / STEPS)))


def train(translate: bool) -> tuple[GPT, list[float]]:
    torch.manual_seed(0)
    model = GPT()
    if translate:
        sot.to_static(model, backend="eager")
    data = torch.tensor([CHARACTERS.index(c) for c in TEXT])
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(STEPS):
        starts = torch.randint(len(data) - LENGTH, (BATCH,)).tolist()
        batch = torch.stack([data[s:s + LENGTH + 1] for s in starts])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@torch.no_grad()
def sample(model: GPT, length: int) -> str:
    """A greedy continuation. The size of the input grows: it is captured twice, then it is a symbol."""
    ids = torch.zeros(1, 2, dtype=torch.int64)
    for _ in range(length):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return "".join(CHARACTERS[i] for i in ids[0].tolist())


def main() -> None:
    (plain, expected), (model, losses) = train(translate=False), train(translate=True)
    print(f"loss: {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last")
    assert losses == expected and losses[-1] < losses[0]
    assert sample(model, 20) == sample(plain, 20)
    captured = sot.translation_of(model)
    assert not captured.explain().breaks
    print(f"{len(captured.graphs)} graphs: one for training, one for all lengths of sampling")


if __name__ == "__main__":
    main()
