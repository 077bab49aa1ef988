"""LightGBM's ranking objectives.

lambdarank looks its logistic function up in a table of 2^20 cells, and adds up pairs in float32.
rank_xendcg draws a number for each row and iteration, by a generator for each query.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.query_ids import QueryRows
from ..._model.coupled.cross_entropy import CrossEntropyNDCG
from ..._model.coupled.lambdas import LambdaLoss
from ..._model.coupled.pair_rules import FirstPlaces, NDCGGap
from ..._model.leaf_rule import Rounding
from ..._model.start import Mean
from .objectives import Objective

RANKING = ("lambdarank", "rank_xendcg")
TABLE_CELLS = 1 << 20
LABELS = 31  # labels that have a gain where the user gives none


def ranking_objective(name: str, params: dict[str, Any], queries: QueryRows) -> Objective:
    """The ranking objective of this name. It has no starting score."""
    if name == "rank_xendcg":
        draws = QueryDraws(int(params["objective_seed"]), queries)
        return Objective(CrossEntropyNDCG(draws), Mean(), Rounding(terms=True), labels=(0.0, 31.0))
    gains = label_gains(params)
    k = float(params["lambdarank_truncation_level"])
    norm = bool(params["lambdarank_norm"])
    loss = LambdaLoss(
        FirstPlaces(k, NDCGGap(gains, k)),
        sigma=float(params["sigmoid"]),
        score_normaliser=norm,
        normaliser="log2" if norm else "none",
        table_cells=TABLE_CELLS,
        name="lambdarank",
    )
    rounding = Rounding(terms=True)
    return Objective(loss, Mean(), rounding, labels=(0.0, len(gains) - 1.0))


def label_gains(params: dict[str, Any]) -> tuple[float, ...]:
    """The gain of each label: 2^y - 1, unless the user gave others."""
    given = str(params.get("label_gain", "")).strip()
    if given:
        return tuple(float(gain) for gain in given.split(","))
    return tuple((2.0 ** np.arange(LABELS) - 1).tolist())


class QueryDraws:
    """Numbers that rank_xendcg draws: one a row and iteration, by a generator for each query.

    A generator is x <- 214013 x + 2531011 modulo 2^32 from x = objective_seed + query, of which bits
    16 to 30 count. So the k-th number follows from the seed by A^k x + C (1 + A + ... + A^(k-1)).
    Queries of one row draw nothing, which changes no other.
    """

    def __init__(self, seed: int, queries: QueryRows) -> None:
        self._sizes = queries.sizes
        self._number = queries.number
        self._place = (
            np.arange(len(queries.number)) - (np.cumsum(self._sizes) - self._sizes)[self._number]
        )
        self._start = (seed + np.arange(len(self._sizes))).astype(np.uint32)

    @cached_property
    def _largest(self) -> int:
        return int(self._sizes.max())

    def __call__(self, t: int) -> F64:
        """(n,) the numbers of iteration t."""
        drawn = t * self._sizes[self._number] + self._place  # before this one
        count = (t + 1) * self._largest
        power = np.cumprod(np.full(count, 214013, np.uint32), dtype=np.uint32)
        added = np.uint32(2531011) * np.cumsum(
            np.r_[1, power[:-1]].astype(np.uint32), dtype=np.uint32
        )
        x = power[drawn] * self._start[self._number] + added[drawn]
        return ((x >> np.uint32(16)) & np.uint32(0x7FFF)) / 32768.0
