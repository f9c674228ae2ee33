"""Breaks and guards: see where a graph ends and why, fix it, and see what makes a new capture necessary."""
import torch

import sot
from sot.reports.build import report_of
from sot.reports.recording import Recording, recorded


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    if x.abs().max() > 10:  # which way it goes is known when the graph has run: a break
        x = x / x.abs().max()
    return x * factor


def mended(x: torch.Tensor, factor: float) -> torch.Tensor:
    largest = x.abs().max()
    return torch.where(largest > 10, x / largest, x) * factor


def main() -> None:
    x = torch.linspace(-20, 20, 5)
    for f in scale, mended:
        explanation = sot.explain(f)(x, 0.5)
        print(explanation.summary())
        for record in explanation.breaks:
            print(f"  {record}\n  to fix it: {record.hint}")

    sot.assert_captured(mended, x, 0.5)  # for tests: fails with the report if it ever breaks again

    translated, calls = sot.to_static(mended), Recording("three calls")
    with recorded(calls):
        translated(x, 0.5)
        translated(x.double(), 0.5)  # another dtype: the guard on x does not hold
        translated(x, 0.5)  # the first graph again
    for again in report_of(calls).recompiles:
        print("recompiled, because", "; ".join(again.causes))


if __name__ == "__main__":
    main()
