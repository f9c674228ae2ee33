"""SOT_LOG prints the actions of the translator to stderr.

    SOT_LOG=breaks,recompiles python train.py

``CHANNELS`` has the names for SOT_LOG; ``all`` selects every channel. Each channel is a logger ``sot.<name>`` of
Python's logging, which logs at level DEBUG, so a program may add its own handlers and set the level of ``sot`` or of a
channel. Without SOT_LOG nothing is printed, also not by a program whose own level is DEBUG.
"""
from __future__ import annotations

import difflib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable

from sot.reports.lines import at, break_lines, fallback_lines, graph_lines, guards_lines, recompile_lines
from sot.reports.records import Capture

ROOT = logging.getLogger("sot")
if ROOT.level == logging.NOTSET:    # the level that the program sets for its own messages is not meant for these
    ROOT.setLevel(logging.WARNING)


# ---- the lines of each channel for a capture; without lines nothing is printed
# -------------------------------------------
def breaks(capture: Capture) -> Iterable[str]:
    return break_lines(capture.stopped) if capture.stopped and not capture.fallback else ()


def fallbacks(capture: Capture) -> Iterable[str]:
    return fallback_lines(capture) if capture.fallback else ()


def recompiles(capture: Capture) -> Iterable[str]:
    return recompile_lines(capture) if capture.recompile_reasons else ()


def guards(capture: Capture) -> Iterable[str]:
    return (f"{capture.name}, at {at(capture.place)}", *guards_lines(capture.guards, True)) if capture.guards else ()


def graphs(capture: Capture) -> Iterable[str]:
    return graph_lines(capture.graph, verbose=True) if capture.graph else ()


def code(capture: Capture) -> Iterable[str]:
    return (f"{capture.name}, at {at(capture.place)}", *capture.code.splitlines()) if capture.code else ()


def elsewhere(capture: Capture) -> Iterable[str]:
    """No lines: the compilation of graphs has its own loggers."""
    return ()


CHANNELS: dict[str, Callable[[Capture], Iterable[str]]] = {
    "breaks": breaks, "fallbacks": fallbacks, "recompiles": recompiles, "guards": guards, "graphs": graphs,
    "code": code, "backends": elsewhere, "passes": elsewhere, "kernels": elsewhere,
}
LOGGERS = tuple((logging.getLogger(f"sot.{name}"), lines) for name, lines in CHANNELS.items())


def capture(done: Capture) -> None:
    """Log a capture. If no logger is enabled, this costs a microsecond."""
    for logger, lines_of in LOGGERS:
        if logger.isEnabledFor(logging.DEBUG) and (lines := list(lines_of(done))):
            logger.debug("\n    ".join(lines))


# ---- SOT_LOG --------------------------------------------------------------------------------------------
class Stderr(logging.Handler):
    """Writes to the current ``sys.stderr``."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


HANDLER = Stderr()
HANDLER.setFormatter(logging.Formatter("[%(name)s] %(message)s"))


def configure(names: str) -> None:
    """Print these channels, and no others, to stderr.

    Arguments:
        names: the value of SOT_LOG: names separated by commas. An unknown name is refused with a warning.
    """
    wanted = {name for word in names.split(",") if (name := word.strip())}
    for name in sorted(wanted - CHANNELS.keys() - {"all"}):
        close = difflib.get_close_matches(name, CHANNELS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        warnings.warn(f"SOT_LOG: there is no {name!r}{hint} Known: all, {', '.join(CHANNELS)}", stacklevel=2)
    on = CHANNELS.keys() if "all" in wanted else CHANNELS.keys() & wanted
    for name in CHANNELS:
        logging.getLogger(f"sot.{name}").setLevel(logging.DEBUG if name in on else logging.NOTSET)
    ROOT.removeHandler(HANDLER)
    ROOT.propagate = not on  # otherwise the program's handlers would print it again
    if on:
        ROOT.addHandler(HANDLER)


VERBOSITY = ((), ("breaks", "fallbacks", "recompiles"), ("breaks", "fallbacks", "recompiles", "graphs"),
             tuple(CHANNELS.keys() - {"code"}))
_verbosity, _code = 0, False


def set_verbosity(level: int = 0) -> None:
    """Print the actions of the translator to stderr.

    Arguments:
        level: 0 for nothing; 1 for breaks, functions left to Python and new captures of a function; 2 to add the
            graphs;
            3 to add the guards.
    """
    global _verbosity
    _verbosity = checked(level, "set_verbosity")
    apply_levels()


def set_code_level(level: int = 1) -> None:
    """Print the source of emitted functions to stderr (1), or do not (0)."""
    global _code
    _code = checked(level, "set_code_level") > 0
    apply_levels()


def checked(level: int, who: str) -> int:
    if not isinstance(level, int) or level < 0:
        raise ValueError(f"{who} needs a level from 0 to {len(VERBOSITY) - 1}, not {level!r}")
    return min(level, len(VERBOSITY) - 1)


def apply_levels() -> None:
    configure(",".join((*VERBOSITY[_verbosity], *(("code",) if _code else ()))))


if "SOT_LOG" in os.environ:
    configure(os.environ["SOT_LOG"])
