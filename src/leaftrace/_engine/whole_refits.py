"""LeafRefit by one replay for each set of removed rows, for models whose leaves are refitted whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._data.progress import progress
from .methods import AllPoints, LeafRefit
from .queries import Queries
from .refit import refit_on
from .workspace import Workspace


def values_by_refitting(
    work: Workspace,
    rest: Callable[[Ints], Ints],
    queries: Queries,
    method: LeafRefit,
    sets: Sequence[Ints],
) -> Real:
    """(sets, queries) Q(with) - Q(without) each set of rows.

    ``rest``: gives the positions of all rows but some.
    """
    if not isinstance(method.update_set, AllPoints):
        raise InvalidInput(
            f"{type(method.update_set).__name__} is not for this question: the leaves of this model are refitted as a "
            "whole (quantiles, smoothed along their paths, of a ranker, or SHAP values were asked for); use "
            "LeafRefit() without an update set."
        )
    e = work.trace.ensemble
    # The model itself has the rounding of its library, which a refit without a row does not repeat.
    before = refit_on(work.trace, e)

    def without_rows(rows: Ints) -> F64:
        refitted = refit_on(work.trace, e.keep(rest(rows)))
        return -queries.change_between(before, refitted)

    models = work.map(without_rows, sets)
    done = progress(models, len(sets), "training rows", "row")
    return np.array(list(done)).reshape(len(sets), len(queries)).astype(work.dtype)
