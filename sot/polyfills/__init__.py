"""Plain Python that says what builtins and library functions do; it is followed like the user's code."""
