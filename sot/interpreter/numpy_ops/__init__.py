"""NumPy arrays and numbers: their memory, and the functions that go into graphs."""
