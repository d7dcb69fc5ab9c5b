"""Chance by counter: a continuation's seed says what it is, never when or where it ran."""

from __future__ import annotations

import hashlib

import numpy as np

from accredit.data.chance import prf
from accredit.planners import Request

__all__ = ["fingerprint", "generator", "prf", "seed_of"]


def fingerprint(text: str) -> str:
    """Return a second digest of a text, to tell a collision of the first."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def seed_of(request: Request, replicate: int, master: int) -> int:
    """Return the seed of one continuation.

    Args:
        request: what is asked; its arm counts unless it asks for common chance, its rollout only
            where places are not shared; a named chance stands for place and arm.
        replicate: 0-based.
        master: of the whole job.
    """
    place = request.place
    own = None if request.shared else place.rollout
    if request.chance:
        return prf(master, place.group, own, "chance", request.chance, replicate, request.policy)
    arm = None if request.common else [request.arm, list(request.forced)]
    return prf(master, place.group, own, place.key, replicate, arm, request.policy)


def generator(seed: int, depth: int) -> np.random.Generator:
    """Return the chance of one step of a continuation.

    Args:
        seed: of the continuation.
        depth: 0-based step of it.
    """
    return np.random.Generator(np.random.Philox(key=seed, counter=depth))
