"""Stands in for the programs' module ``harness``: it does the same, and the processes of a measurement take turns.

A machine with other work changes its speed from second to second, so two runs of one program differ by a factor of two.
Here each step of one process is followed by the same step of the next, and all of them meet the same speeds.

``HARNESS_FILE`` is the module that the programs mean. ``HARNESS_TURNS`` has the number of this process and two file
descriptors of pipes: from the process before it, and to the one after it.
"""
import os
from contextlib import suppress
from pathlib import Path

NUMBER, BEFORE, AFTER = map(int, os.environ["HARNESS_TURNS"].split(","))
GO_ON, ENDED = b"g", b"e"


class Turns(list):
    """The times of the steps. After each step the other processes do theirs. A round comes before the first, so that
    all of them have begun.
    """

    taken = True

    def append(self, time):
        super().append(time)
        if len(self) == 1 and NUMBER > 0:
            self.wait()
        self.pass_on(GO_ON)
        self.wait()

    def wait(self):
        if self.taken and os.read(BEFORE, 1) != GO_ON:
            self.end()

    def pass_on(self, message):
        if self.taken:
            with suppress(BrokenPipeError):
                os.write(AFTER, message)

    def end(self):
        """Nobody waits any more: a process that has ended cannot be waited for."""
        self.pass_on(ENDED)
        self.taken = False


exec(compile(Path(os.environ["HARNESS_FILE"]).read_text(), os.environ["HARNESS_FILE"], "exec"))
ticks, report = Turns(), done       # noqa: F821


def done(**values):
    ticks.end()
    report(**values)
