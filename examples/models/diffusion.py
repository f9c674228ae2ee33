"""Sample from a small diffusion model (DDIM). The loop over the steps is Python's; each step is one graph, and the step
number is a symbol in it.
"""
import math

import torch
from torch import nn

import sot

STEPS, SIZE = 20, 8
ALPHAS = torch.cos(torch.linspace(0, math.pi / 2, STEPS + 2))[1:-1] ** 2


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.first, self.last = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angles = t.float()[:, None] * torch.exp(-torch.arange(8) * math.log(1e4) / 8)
        shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        return self.last(torch.nn.functional.silu(self.norm(self.first(x) + shift[:, :, None, None])))


def step(model: nn.Module, x: torch.Tensor, t: torch.Tensor, now: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
    """One step of DDIM: from the noise of step t to that of the next."""
    noise = model(x, t.expand(len(x)))
    clean = (x - (1 - now).sqrt() * noise) / now.sqrt()
    return then.sqrt() * clean.clamp(-3, 3) + (1 - then).sqrt() * noise


@torch.no_grad()
def sample(model: nn.Module, advance=step) -> torch.Tensor:
    torch.manual_seed(1)
    x = torch.randn(4, 1, SIZE, SIZE)
    for i in range(STEPS - 1, 0, -1):
        x = advance(model, x, torch.tensor(i), ALPHAS[i], ALPHAS[i - 1])
    return x


def main() -> None:
    torch.manual_seed(0)
    model = Denoiser().eval()
    translated = sot.to_static(step, backend="eager")
    assert torch.equal(sample(model, translated), sample(model))
    print(f"{STEPS - 1} steps, {len(translated.graphs)} graph")
    assert len(translated.graphs) == 1 and not translated.explain().breaks


if __name__ == "__main__":
    main()
