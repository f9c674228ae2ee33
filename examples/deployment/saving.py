"""Save a captured model, and serve it without the program that made it."""
import tempfile
from pathlib import Path

import torch
from torch import nn

import sot


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 4), nn.Tanh())
        self.decoder = nn.Linear(4, 12)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x)

    def decode(self, code: torch.Tensor) -> torch.Tensor:
        return self.decoder(code)


def main() -> None:
    torch.manual_seed(0)
    model = AutoEncoder().eval()
    with tempfile.TemporaryDirectory() as folder:
        file = sot.save(model, Path(folder) / "autoencoder", methods={
            "encode": [sot.InputSpec((8, 12))], "decode": [sot.InputSpec((8, 4))]})
        print(f"{file.name}: {file.stat().st_size} bytes")
        served = sot.load(file)
    x = torch.randn(8, 12)
    assert torch.equal(served.decode(served.encode(x)), model.decode(model.encode(x)))
    print(served)


if __name__ == "__main__":
    main()
