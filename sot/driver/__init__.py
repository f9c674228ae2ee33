"""From a call that no entry answers to an entry, and what is kept between captures.

In the order of reading: ``translator`` answers the hook, ``scope`` says which code is translated, ``pipeline`` is the
way from a frame to an entry, ``exits`` its first step, ``stages`` its forms as text. ``code_state`` is what is known
of a code object; ``recompile_reasons`` says why no entry fits and what that teaches, ``recompile_limit`` what is done
when there are enough entries, ``capture_policy`` which code of a whole program is worth one.
"""
