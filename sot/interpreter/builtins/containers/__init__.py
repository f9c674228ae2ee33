"""Lists, tuples, deques, dicts and sets: their methods, subscripts and lengths."""
