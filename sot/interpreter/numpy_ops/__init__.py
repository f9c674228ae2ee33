"""Arrays and numbers of NumPy: what is known of their memory, and the functions that go into graphs."""
