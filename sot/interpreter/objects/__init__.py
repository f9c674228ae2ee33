"""Python's object model: attributes, calls, class statements, signatures and weak references."""
