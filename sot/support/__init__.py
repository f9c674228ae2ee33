"""Shared by all stages: errors, limits, registries, the capture lock. It uses no private parts of torch."""
