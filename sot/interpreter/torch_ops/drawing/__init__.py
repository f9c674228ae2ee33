"""Random numbers: generators, their seeds and states, and numbers that are known at capture."""
