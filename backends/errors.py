"""What can go wrong with a backend, as the user is told."""

from __future__ import annotations


class BackendError(RuntimeError):
    """A backend failed, or did not give back something that can be called."""


class BackendUnavailableError(BackendError):
    """The name is known, but this machine or this version cannot run it."""


class UnknownBackendError(ValueError):
    """No backend has this name."""


class BackendWarning(UserWarning):
    """A graph that a backend was to run runs eagerly; the message says why."""


class OptionsError(BackendError, ValueError):
    """Options that the backend does not know, or a mode beside them."""


def innermost(error: BaseException) -> str:
    """The line at which an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown line"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"


def one_line(error: BaseException) -> str:
    """The class of an exception and the first line of what it says."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
