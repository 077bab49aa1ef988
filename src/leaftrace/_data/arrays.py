"""Array types used throughout, and the letters for their axes.

Legend: n training rows, m test rows (queries), T steps, R trees in a step, K outputs, O outputs of
one leaf (K for vector leaves, 1 when each output has its own tree), M leaves of one step (all its
trees together), B block of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Real = NDArray[Any]  # float32 or float64, chosen by the Tracer's dtype
Ids = NDArray[np.unsignedinteger[Any]]
Ints = NDArray[np.signedinteger[Any]]


def take_sample(sample: Sequence[NDArray[Any]], index: Any) -> list[NDArray[Any]]:
    """Some rows of every tree's sample; trees that share one array still share one."""
    taken = {id(s): s[index] for s in sample}
    return [taken[id(s)] for s in sample]
