"""``Context.run``: two handlers change what context variables hold."""
from __future__ import annotations


def enter_context(context):
    raise NotImplementedError


def leave_context(context):
    raise NotImplementedError


def run_in(context, function, args, kwargs):
    enter_context(context)
    try:
        return function(*args, **kwargs)
    finally:
        leave_context(context)
