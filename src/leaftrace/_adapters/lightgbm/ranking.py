"""LightGBM's ranking objectives.

lambdarank looks its logistic function up in a table of 2^20 cells, and adds up pairs in float32.
rank_xendcg draws a number for each row and iteration, by a generator for each query.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.errors import UnsupportedModel
from ..._data.query_ids import QueryRows
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
        raise UnsupportedModel("rank_xendcg is not supported; use objective='lambdarank'.")
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
