"""Methods of exceptions that are C code."""
from __future__ import annotations

import types


def no_note():
    """CPython's message for a note that is an int, which differs between versions."""
    try:
        Exception().add_note(0)
    except TypeError as e:
        return str(e)


def no_condition():
    """CPython's message for a wrong condition of ``split``, which differs between versions."""
    try:
        ExceptionGroup("", [ValueError()]).split(0)
    except TypeError as e:
        return str(e)


def takes_any_callable():
    """Whether the condition may be any callable, as it may since 3.13."""
    try:
        return ExceptionGroup("", [ValueError()]).subgroup(id) is not None
    except TypeError:
        return False


NO_NOTE, NO_CONDITION, ANY_CALLABLE = no_note(), no_condition(), takes_any_callable()


def add_note(self, note):
    if not isinstance(note, str):
        raise TypeError(NO_NOTE.replace("int", type(note).__name__))
    if not hasattr(self, "__notes__"):
        self.__notes__ = []
    elif not isinstance(self.__notes__, list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    self.__notes__.append(note)


def representation(error, name, args):
    """``repr`` of an exception. A handler looks for its frames, to see that an exception contains itself."""
    return name + ("(" + repr(args[0]) + ")" if len(args) == 1 else repr(args))


def group_representation(name, message, excs):
    """``repr`` of an exception group where it is not that of any exception, as in newer versions of 3.14."""
    return name + "(" + repr(message) + ", " + repr(excs) + ")"


# ---- groups -----------------------------------------------------------------------------------------------------
def same_origin(a, b):
    """Whether two exceptions have one traceback, cause and context; a handler answers."""
    raise NotImplementedError


def copy_origin(group, made):
    """Give an exception the traceback, cause and context of a group; a handler does it."""
    raise NotImplementedError


def is_of(error, kinds):
    """Whether an ``except`` clause of these classes catches it, whatever their metaclasses claim."""
    return any(kind in type(error).__mro__ for kind in kinds)


def matcher(condition):
    """A function that says whether an exception fulfils the condition of ``split`` and ``subgroup``."""
    kinds = condition if isinstance(condition, tuple) else (condition,)
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return lambda e: is_of(e, kinds)
    if isinstance(condition, type) or not (callable(condition) if ANY_CALLABLE else isinstance(
            condition, types.FunctionType)):
        raise TypeError(NO_CONDITION)
    return condition


def derive(self, excs):
    return BaseExceptionGroup(self.message, excs)


def split(self, condition):
    return parts(self, matcher(condition), True)


def subgroup(self, condition):
    return parts(self, matcher(condition), False)[0]


def parts(error, matches, wants_rest):
    """What of an exception matches, and what does not; None for nothing."""
    if matches(error):
        return error, None
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    found, rest = [], []
    for e in error.exceptions:
        a, b = parts(e, matches, wants_rest)
        if a is not None:
            found.append(a)
        if b is not None:
            rest.append(b)
    return subset(error, found), subset(error, rest) if wants_rest else None


def subset(group, excs):
    """A group of some of the exceptions of a group."""
    if not excs:
        return None
    made = group.derive(excs)
    if not isinstance(made, BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    copy_origin(group, made)
    if hasattr(group, "__notes__"):
        made.__notes__ = [*group.__notes__]
    return made


def star_match(error, wanted):
    """What ``except* wanted`` leaves of an exception, and what it handles; None for nothing."""
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        if issubclass(kind, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    if error is None:
        return None, None
    if is_of(error, kinds):
        return None, error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
    if not isinstance(error, BaseExceptionGroup):
        return error, None
    found = error.split(wanted)
    if not isinstance(found, tuple):
        raise TypeError(f"{type(error).__name__}.split must return a tuple, not {type(found).__name__}")
    if len(found) < 2:
        raise TypeError(f"{type(error).__name__}.split must return a 2-tuple, got tuple of size {len(found)}")
    return found[1], found[0]


def leaves(error):
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for e in error.exceptions for leaf in leaves(e)]


def to_reraise(error, raised):
    """What a ``try`` with ``except*`` raises at its end: what its handlers have raised, and what they have left or
    raised again; None for nothing.
    """
    raised = [e for e in raised if e is not None]
    if not isinstance(error, BaseExceptionGroup):
        return raised[0] if raised else None
    new = [e for e in raised if not (isinstance(e, BaseExceptionGroup) and same_origin(e, error))]
    again = [leaf for e in raised if isinstance(e, BaseExceptionGroup) and same_origin(e, error) for leaf in leaves(e)]
    rest = None
    if again:
        rest = parts(error, lambda e: not isinstance(e, BaseExceptionGroup) and any(e is leaf for leaf in again),
                     False)[0]
    if not new:
        return rest
    if rest is not None:
        new.append(rest)
    return new[0] if len(new) == 1 else BaseExceptionGroup("", new)
