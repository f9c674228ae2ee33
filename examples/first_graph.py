"""A first graph: translate a function, call it twice, and see what was captured."""
import torch

import sot


@sot.to_static
def normalize(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt()


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    normalize(x)  # captures one graph
    assert torch.equal(normalize(x), normalize.__wrapped__(x))  # runs it: what plain Python computes
    print(sot.explain(normalize)(x))


if __name__ == "__main__":
    main()
