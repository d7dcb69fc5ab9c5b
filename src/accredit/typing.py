"""Array aliases. Axis letters end array names.

``R`` rollouts, ``S`` steps, ``T`` policy tokens, ``C`` context tokens, ``G`` groups, ``N`` graph
nodes; ``R1`` = R+1 offsets. Offsets are int64, credit, rewards and values float64, stored signals
float32.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "BoolArray", "Floats", "Ints", "Json", "Level", "Scalar", "Severity"]

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Scalar: TypeAlias = str | int | float | bool
Json: TypeAlias = Any
Level: TypeAlias = Literal["rollout", "step", "token", "context"]
Severity: TypeAlias = Literal["error", "warning", "info"]
