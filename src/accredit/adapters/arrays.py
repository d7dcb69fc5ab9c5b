"""Arrays of two kinds, numpy's and torch's: in, and out again as the kind that came in."""

from __future__ import annotations

from typing import Any

import numpy as np

from accredit.errors import DataError
from accredit.typing import Array, BoolArray

__all__ = ["as_kind_of", "as_mask", "as_numpy"]


def as_numpy(value: Any) -> Array:
    """Return a numpy array of a numpy array, a list or a torch tensor (detached, on the host).

    Half-precision floats of torch become float32: numpy knows no bfloat16.

    Example:
        >>> as_numpy([[1, 0]]).shape
        (1, 2)
    """
    if hasattr(value, "detach"):
        plain = value.detach().cpu()
        if plain.is_nested:
            plain = plain.to_padded_tensor(0)
        if plain.is_floating_point() and plain.element_size() < 4:
            plain = plain.float()
        return np.asarray(plain.numpy())
    return np.asarray(value)


def as_kind_of(like: Any, values: Array) -> Any:
    """Return float32 ``values`` as the kind of ``like``: a torch tensor on its device, or numpy.

    A tensor has no autograd history.
    """
    found = np.ascontiguousarray(values, np.float32)
    if not hasattr(like, "detach"):
        return found
    import torch

    return torch.from_numpy(found).to(like.device)


def as_mask(value: Any, name: str = "response_mask") -> BoolArray:
    """Return a bool mask ``[rows, length]`` of ones and zeros of any number type.

    Args:
        value: the mask.
        name: what to call it in messages.

    Raises:
        DataError: if it has other values or another number of axes.
    """
    found = as_numpy(value)
    if found.ndim != 2:
        raise DataError(f"{name} has shape {found.shape}, not (rows, length)", code="ACC875")
    odd = np.argwhere((found != 0) & (found != 1))
    if odd.size:
        row, position = odd[0].tolist()
        raise DataError(
            f"{name} row {row} position {position} is {found[row, position]}, not 0 or 1",
            code="ACC875",
            hint="Give the mask of sampled tokens, before any weighting",
        )
    return found.astype(bool)
