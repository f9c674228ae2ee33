"""Targets of nodes that make, seed, read and set generators of random numbers."""
from __future__ import annotations

import torch


def new_generator() -> torch.Generator:
    return torch.Generator()


def seed_generator(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)


def seed_generator_anew(generator: torch.Generator) -> int:
    return generator.seed()


def generator_state(generator: torch.Generator) -> torch.Tensor:
    return generator.get_state()


def set_generator_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)


def seed_all_anew() -> int:
    return torch.seed()


def seed_gpus(seed: int) -> None:
    torch.cuda.manual_seed_all(seed)


NODES = (new_generator, seed_generator, seed_generator_anew, generator_state, set_generator_state, seed_all,
         seed_all_anew, seed_gpus)
