"""The bytes of a page. A long part is plain HTML while there is room, then compressed, and then left out.

Filters, links and browsers find compressed parts too: the script of the page unpacks one when it is opened or needed.
"""
from __future__ import annotations

import base64
import zlib

from markupsafe import Markup

LEFT_OUT = Markup('<p class="dim">There is no room for this in the page: it is in the report as JSON.</p>')


class Room:
    """What is left for the long parts of a page, in bytes of ``plain`` HTML and of ``compressed`` texts."""

    def __init__(self, plain: int, compressed: int) -> None:
        self.plain, self.compressed = plain, compressed

    def part(self, html: str) -> Markup:
        """A part of the page in the form for which there is room, or a sentence in its place."""
        found = self.fitted(html)
        return LEFT_OUT if found is None else found

    def fitted(self, html: str) -> Markup | None:
        """A part of the page in the form for which there is room; None without room."""
        size = len(html.encode())
        if size <= self.plain:
            self.plain -= size
            return Markup(html)
        packed = self.packed(html)
        return None if packed is None else Markup(f'<div data-html="{packed}"></div>')

    def packed(self, text: str) -> str | None:
        """The text as zlib's bytes in base 64; None without room."""
        packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        if len(packed) > self.compressed:
            return None
        self.compressed -= len(packed)
        return packed
