"""The driver: it makes an entry for a call that no cached entry answers, and keeps the state between captures.

Reading order: ``translator`` answers the hook; ``scope`` says which code is translated; ``pipeline`` makes an entry
from a frame; ``exits`` is its first step; ``stages`` prints its intermediate forms. ``code_state`` holds the state of
one code object. ``recompile_reasons`` finds the guards that failed and what the next capture learns from them.
``recompile_limit`` stops captures when a function has enough entries. ``capture_policy`` decides which code of a whole
program is worth a capture. ``suspending`` calls generator functions and coroutine functions piece by piece.
"""
