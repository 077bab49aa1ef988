"""Values of training rows as the results of other packages for data valuation: pyDVL, OpenDataVal."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.arrays import F64, Ints
from .._data.errors import LeaftraceError


def as_pydvl(
    values: F64,
    names: np.ndarray,
    positions: Ints,
    algorithm: str,
    error: F64 | None = None,
    count: int = 1,
) -> Any:
    """A `ValuationResult` of pyDVL with these values (n,); positive is valuable there, too.

    ``error``  (n,) standard errors; ``count``: number of models that they come from
    """
    try:
        from pydvl.utils.status import Status  # pyright: ignore[reportMissingImports]
        from pydvl.valuation.result import ValuationResult  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise LeaftraceError(
            f"to_pydvl() needs pyDVL 0.10 or newer (pip install 'leaftrace[pydvl]'): {problem}"
        ) from None
    n = len(values)
    return ValuationResult(
        values=np.asarray(values, np.float64),
        # pyDVL has variances of single updates, of which there are `count`
        variances=np.zeros(n) if error is None else np.asarray(error, np.float64) ** 2 * count,
        counts=np.full(n, count),
        indices=np.asarray(positions),
        data_names=np.asarray(names),
        algorithm=algorithm,
        status=Status.Converged,
    )


def as_opendataval(values: F64) -> Any:
    """A `DataEvaluator` of OpenDataVal that is finished: its `data_values` are these (n,)."""
    try:
        from opendataval.dataval import DataEvaluator  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise LeaftraceError(f"to_opendataval() needs OpenDataVal: {problem}") from None

    class Leaftrace(DataEvaluator):
        """Values that leaftrace has computed; there is nothing to train."""

        def __init__(self, found: F64) -> None:
            self._found = found

        def train_data_values(self, *args: Any, **kwargs: Any) -> Any:
            return self

        def evaluate_data_values(self) -> np.ndarray:
            return self._found

    return Leaftrace(np.asarray(values, np.float64))
