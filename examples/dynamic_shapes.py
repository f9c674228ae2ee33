"""Dynamic shapes: a batch size that takes many values is captured twice, and a named dimension is checked."""
import torch

import sot


def attention(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, -1)


def main() -> None:
    f = sot.to_static(attention)
    for length in range(2, 40):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(f(x, x), attention(x, x))
    print(f"38 lengths, {len(f.captures)} captures")  # a size that changes is a symbol from its second value on
    assert len(f.captures) <= 2

    spec = [sot.InputSpec(("batch", None, 8)), sot.InputSpec(("batch", None, 8))]
    g = sot.to_static(attention, input_spec=spec)
    g(torch.randn(2, 5, 8), torch.randn(2, 7, 8))
    try:
        g(torch.randn(2, 5, 8), torch.randn(3, 7, 8))
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    main()
