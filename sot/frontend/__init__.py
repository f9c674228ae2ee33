"""What users call.

``api`` has to_static and the marks, ``input_spec`` its argument of that name, ``inspection`` and ``explanation`` what
was captured, ``assertion`` the same for tests, ``global_mode`` the translator for a whole program, ``autoload`` how
the environment asks for that, ``cli`` the command line (``cache_command`` and ``stages`` are two of its commands),
``pytest_plugin`` the plugin.
"""
