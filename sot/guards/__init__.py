"""What must hold for a captured graph to be used again.

``origin``: where a value came from. ``terms``: numbers that are computed from origins. ``guards`` and
``tensor_guards``: what is asked of a value. ``guard_program``: guards and origins as the program that C runs.
``assumptions``: what a capture takes for granted, and how it begins anew when that is wrong. ``symbols``: numbers that
differ from call to call, in torch.
"""
