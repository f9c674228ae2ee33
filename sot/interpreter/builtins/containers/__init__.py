"""Lists, tuples, deques, dicts and sets: their methods, subscripts and lengths. Copies of these and of objects."""
