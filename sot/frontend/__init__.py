"""The public API, the command line and the pytest plugin.

``api`` has to_static and the marks, ``input_spec`` the InputSpec. ``inspection`` and ``explanation`` show what was
captured, and ``assertion`` checks it in tests. ``global_mode`` enables translation of a whole program; ``autoload``
does so by environment variables. ``command_line`` has the command ``sot`` (``stages`` and ``checks`` are what two
of its commands do), and ``pytest_plugin`` the plugin.
"""
