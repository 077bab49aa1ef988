"""CatBoost's losses that couple rows: rankers and Cox.

Pair losses compare all rows of a group that have different labels, and their leaves are centred. In
pair losses and LambdaMart, CatBoost uses the weights of rows in its regulariser alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import UnsupportedModel
from ..._model.coupled.cox import Cox
from ..._model.coupled.group_losses import QuerySoftmax, QuerySquares
from ..._model.coupled.lambdas import LambdaLoss
from ..._model.coupled.loss import CoupledLoss
from ..._model.coupled.pair_rules import EqualWeights, FirstPlaces, NDCGGap
from ..._model.leaf_rule import PairwiseLeaves

RANKING = {  # and the labels they take: lowest, highest, in words
    "QueryRMSE": (-np.inf, np.inf, "finite numbers"),
    "QuerySoftMax": (0.0, np.inf, "numbers of zero or more"),
    "PairLogit": (-np.inf, np.inf, "finite numbers"),
    "PairLogitPairwise": (-np.inf, np.inf, "finite numbers"),
    "LambdaMart": (0.0, 31.0, "numbers from 0 to 31"),
}
LEAST_L2 = 1e-12  # CatBoost has 1e-20 where the user has none
COUPLED = {**RANKING, "Cox": (-np.inf, np.inf, "times, negative if no event was seen")}
UNWEIGHTED = ("PairLogit", "PairLogitPairwise", "LambdaMart", "Cox")
MIXED_UP = 500  # rows whose derivatives Cox takes for all others of a block
ONE_BLOCK = 10_000  # rows from which on there are several blocks
BLOCKS = 128


class RankingObjective(NamedTuple):
    """A loss, whether its leaves are centred, and the rule of leaves that are solved all at once."""

    loss: CoupledLoss
    centred: bool
    pairwise: PairwiseLeaves | None = None


def read_ranking(description: str, params: dict[str, Any]) -> RankingObjective:
    """Translate CatBoost's description of a loss, such as "LambdaMart:sigma=2;top=3"."""
    name, _, text = description.partition(":")
    settings = dict(part.split("=") for part in text.split(";") if part)
    newton = params["leaf_estimation_method"] == "Newton"
    if int(params["leaf_estimation_iterations"]) > 1:
        raise UnsupportedModel(
            f"leaf_estimation_iterations={params['leaf_estimation_iterations']} is not supported with {name}; train "
            "with leaf_estimation_iterations=1, which is its default."
        )
    if name == "Cox":
        return RankingObjective(Cox(ties_at_risk=False, taken_from=cox_rows), False)
    if name == "QueryRMSE":
        return RankingObjective(QuerySquares(name=name), False)
    if name == "QuerySoftMax":
        beta = float(settings.get("beta", 1.0))
        floor = float(settings.get("lambda", 0.01))
        return RankingObjective(QuerySoftmax(beta, floor, newton, name), False)
    if name == "PairLogit":
        return RankingObjective(_pair_logit(newton, name), True)
    if name == "PairLogitPairwise":
        prior = float(np.float32(params["bayesian_matrix_reg"]))
        leaves = PairwiseLeaves(prior, float(np.float32(params["l2_leaf_reg"])))
        return RankingObjective(_pair_logit(False, name), True, leaves)
    if float(params["l2_leaf_reg"]) > LEAST_L2:
        raise UnsupportedModel(
            f"l2_leaf_reg={params['l2_leaf_reg']:g} with LambdaMart is not supported: CatBoost subtracts it from the "
            "second derivatives instead of adding it, which makes leaves huge. Train with l2_leaf_reg=0, the default "
            "of LambdaMart."
        )
    return RankingObjective(_lambda_mart(settings), False)


def _pair_logit(newton: bool, name: str) -> LambdaLoss:
    return LambdaLoss(
        FirstPlaces(np.inf, EqualWeights()),
        score_normaliser=False,
        normaliser="none",
        newton=newton,
        name=name,
    )


def _lambda_mart(settings: dict[str, str]) -> LambdaLoss:
    metric = settings.get("metric", "NDCG")
    if metric != "NDCG":
        raise UnsupportedModel(
            f"LambdaMart with metric={metric} is not supported; train with metric=NDCG."
        )
    top = float(settings.get("top", -1))
    places = np.inf if top < 0 else top
    exponential = settings.get("type", "Base") == "Exp"
    gains = tuple((2.0 ** np.arange(32) - 1).tolist()) if exponential else None
    norm = settings.get("norm", "true").lower() in ("true", "1")
    return LambdaLoss(
        FirstPlaces(places, NDCGGap(gains, places)),
        sigma=float(settings.get("sigma", 1.0)),
        score_normaliser=norm,
        normaliser="log2" if norm else "none",
        name="LambdaMart",
    )


def cox_rows(n: int) -> Ints:
    """(n,) the row whose derivatives CatBoost 1.2 uses for each row in the leaves of Cox.

    Rows are in one block, or from 10,000 on in 128. In a block, the row at place j has those of the
    row at place j modulo 500.
    """
    size = max(n if n < ONE_BLOCK else -(-n // BLOCKS), 1)
    row = np.arange(n)
    return size * (row // size) + row % size % MIXED_UP


def cox_note(n: int) -> list[str]:
    """A sentence for the verdict, if leaves of Cox have derivatives of other rows."""
    wrong = int(np.count_nonzero(cox_rows(n) != np.arange(n)))
    if not wrong:
        return []
    return [
        f"CatBoost's Cox computes leaves from the derivatives of other rows for {wrong:,} of the {n:,} rows (a defect "
        "for 501 to 9,999 rows, and above 64,000), which the replay repeats"
    ]


def refuse_ignored_weights(name: str, w: F64) -> None:
    """Raise for weights (n,) of rows that the loss does not use."""
    if name in UNWEIGHTED and np.any(w != 1):
        raise UnsupportedModel(
            f"CatBoost uses the weights of rows in {name} for its regulariser alone, which is not supported; train "
            "without weights."
        )
