"""Chance by counter: a continuation's seed says what it is, never when or where it ran."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from accredit.planners import Request

__all__ = ["fingerprint", "generator", "prf", "seed_of"]


def prf(*parts: Any) -> int:
    """Return the first 8 bytes of BLAKE2b over the canonical JSON list of the parts, as a number.

    Example:
        >>> prf(0, "g", "s", 0) == prf(0, "g", "s", 0) != prf(0, "g", "s", 1)
        True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def fingerprint(text: str) -> str:
    """Return a second digest of a text, to tell a collision of the first."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def seed_of(request: Request, replicate: int, master: int) -> int:
    """Return the seed of one continuation.

    Args:
        request: what is asked; its arm counts unless it asks for common chance, its rollout only
            where places are not shared.
        replicate: 0-based.
        master: of the whole job.
    """
    place = request.place
    own = None if request.shared else place.rollout
    arm = None if request.common else [request.arm, list(request.forced)]
    return prf(master, place.group, own, place.key, replicate, arm, request.policy)


def generator(seed: int, depth: int) -> np.random.Generator:
    """Return the chance of one step of a continuation.

    Args:
        seed: of the continuation.
        depth: 0-based step of it.
    """
    return np.random.Generator(np.random.Philox(key=seed, counter=depth))
