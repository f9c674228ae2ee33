"""Methods of exceptions that are C code."""
from __future__ import annotations


def no_note():
    """CPython's message for a note that is an int, which differs between versions."""
    try:
        Exception().add_note(0)
    except TypeError as e:
        return str(e)


NO_NOTE = no_note()


def add_note(self, note):
    if not isinstance(note, str):
        raise TypeError(NO_NOTE.replace("int", type(note).__name__))
    if not hasattr(self, "__notes__"):
        self.__notes__ = []
    elif not isinstance(self.__notes__, list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    self.__notes__.append(note)
