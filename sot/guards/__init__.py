"""Guards: the conditions under which a captured graph may be reused.

``origin``: where a value came from. ``terms``: numbers that are computed from origins. ``guards`` and
``tensor_guards``: conditions on values. ``guard_program``: guards and origins as the program that C runs.
``assumptions``: what a capture takes for granted, and how it restarts if that is wrong. ``symbols``: varying numbers
as torch's symbols.
"""
