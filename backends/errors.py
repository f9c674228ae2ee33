"""The errors and warnings of backends."""

from __future__ import annotations


class BackendError(RuntimeError):
    """A backend failed, or did not return a callable."""


class BackendUnavailableError(BackendError):
    """The name is known, but this machine or this version cannot run the backend."""


class UnknownBackendError(ValueError):
    """No backend has this name."""


class BackendWarning(UserWarning):
    """Eager PyTorch runs a graph in place of its backend. The message says why."""


class OptionsError(BackendError, ValueError):
    """Options that the backend does not know, or options together with a mode."""


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
    """The class of an exception and the first line of its message."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
