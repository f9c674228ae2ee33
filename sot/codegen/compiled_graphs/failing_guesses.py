"""Counts how often the guesses of a graph about sizes and values that depend on data fail.

If a guess fails, Python runs the frame after the graph has run in vain. That is slower than Python alone, so a guess
that fails at many calls is given up: the function is captured again with a break where the sizes are made, or where the
program asks for values.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sot.interpreter.torch_ops.data_sizes.graph_numbers import Guess, Mismatch

FAILURES, SHARE = 3, 0.25   # so many failures, in so large a share of the calls
GiveUp = Callable[[Guess, str], None]


class Watch:
    """A graph that contains guesses.

    Arguments:
        compiled: the callable of the graph.
        guesses: its guesses, by the texts of their assertions.
    """

    def __init__(self, compiled: Callable[..., Any], guesses: Mapping[str, Guess]) -> None:
        self.compiled, self.guesses = compiled, guesses
        self.calls, self.failures = 0, Counter[str]()
        self.give_up: GiveUp | None = None      # called with the guess and what is wrong with it

    def call(self, *args: Any) -> Any:
        self.calls += 1
        try:
            return self.compiled(*args)
        except Mismatch as error:
            self.note(error.text)
            raise

    def note(self, text: str) -> None:
        """Count a failure."""
        guess = self.guesses.get(text)
        if guess is None:       # an assertion of the program
            return
        self.failures[text] += 1
        failures = self.failures[text]
        if self.give_up is not None and failures >= FAILURES and failures >= SHARE * self.calls:
            give_up, self.give_up = self.give_up, None
            give_up(guess, f"the graph assumed {text} for {guess.name}, which was wrong at {failures} of {self.calls} "
                           "calls; it depends on data, so Python computes it from now on")
