"""Train a small model: forward in one graph, backward through it, and the loss of plain PyTorch to the last bit."""
import torch
from torch import nn

import sot


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 3))
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1  # a counter: two captures, however many steps
        return self.layers(x)


def train(translate: bool) -> list[float]:
    torch.manual_seed(0)
    model = Classifier()
    if translate:
        sot.to_static(model)
    data, labels = torch.randn(256, 8), torch.randint(0, 3, (256,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for start in range(0, 256, 32):
        loss = nn.functional.cross_entropy(model(data[start:start + 32]), labels[start:start + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    plain, translated = train(translate=False), train(translate=True)
    print("loss:", ", ".join(f"{loss:.4f}" for loss in translated))
    assert plain == translated, "dropout included: the random numbers are the same"


if __name__ == "__main__":
    main()
