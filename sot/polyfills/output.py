"""``print`` in Python, for objects or files with user code, and what records a warning."""
from __future__ import annotations

import warnings


def recorded(log, message, category, filename, lineno):
    log.append(warnings.WarningMessage(message, category, filename, lineno))


def print_parts(*args, sep=None, end=None, file=None, flush=False):
    count = 0
    for arg in args:
        if count:
            print(" " if sep is None else sep, end="", file=file)
        print(str(arg), end="", file=file)
        count += 1
    print(end="\n" if end is None else end, file=file, flush=flush)


def print_to(*args, sep=None, end=None, file=None, flush=False):
    for option, name in ((sep, "sep"), (end, "end")):
        if option is not None and not isinstance(option, str):
            raise TypeError(f"{name} must be None or a string, not {type(option).__name__}")
    count = 0
    for arg in args:
        if count:
            file.write(" " if sep is None else sep)
        file.write(str(arg))
        count += 1
    file.write("\n" if end is None else end)
    if flush:
        file.flush()


def writelines(stream, lines):
    for line in lines:
        stream.write(line)


def fill_disabled(bar, iterable, total, disable, initial, leave):
    """``tqdm.__init__`` of a disabled bar, without its position."""
    if total is None and iterable is not None:
        try:
            total = len(iterable)
        except (TypeError, AttributeError):
            total = None
    if total == float("inf"):
        total = None
    bar.iterable = iterable
    bar.disable = disable
    bar.n = initial
    bar.total = total
    bar.leave = leave
