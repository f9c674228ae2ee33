"""The command ``sot``: its ``commands``, the ``programs`` that they run, and the ``cache``.

Only ``running`` needs torch. Help, versions and errors in the use of a command are there without it, at once.
"""
