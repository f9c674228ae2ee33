"""Text functions in Python, for objects that format themselves."""
from __future__ import annotations


def join(separator, iterable):
    return separator.join(list(iter(iterable)))


def substituted(function, text, matches):
    """The text with what the function makes of each match, and the number of matches. None stands for no text."""
    pieces, at = [], 0
    for match in matches:
        if match.start() > at:
            pieces.append(text[at:match.start()])
        made = function(match)
        if made is not None:
            pieces.append(made)
        at = match.end()
    if at < len(text):
        pieces.append(text[at:])
    return "".join(pieces), len(matches)


def substituted_text(function, text, matches):
    return substituted(function, text, matches)[0]


def percent(text, value):
    return text % (str(value),)


def percent_repr(text, value):
    return text % (repr(value),)


def percent_pieces(pieces):
    return "".join([piece if type(piece) is str else piece[0] % (piece[1],) for piece in pieces])


def format_pieces(pieces):
    return "".join([piece if type(piece) is str else formatted(*piece) for piece in pieces])


def formatted(value, steps, conversion, spec):
    for name, key in steps:
        value = getattr(value, name) if name else value[key]
    if conversion == "r":
        value = repr(value)
    elif conversion == "s":
        value = str(value)
    elif conversion == "a":
        value = ascii(value)
    return format(value, spec if type(spec) is str else format_pieces(spec))


def list_repr(items):
    return "[" + ", ".join([repr(item) for item in list.__iter__(items)]) + "]"


def tuple_repr(items):
    inner = ", ".join([repr(item) for item in tuple.__iter__(items)])
    return "(" + inner + (",)" if tuple.__len__(items) == 1 else ")")


def dict_repr(table):
    return "{" + ", ".join([repr(key) + ": " + repr(value) for key, value in dict.items(table)]) + "}"
