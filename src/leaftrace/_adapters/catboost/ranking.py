"""CatBoost's losses that couple rows: rankers and Cox.

Pair losses compare all rows of a group that have different labels, and their leaves are centred. In
pair losses and LambdaMart, CatBoost uses the weights of rows in its regulariser alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import catboost
import numpy as np

from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._model.coupled.cox import Cox
from ..._model.coupled.group_losses import QuerySoftmax, QuerySquares
from ..._model.coupled.lambdas import LambdaLoss
from ..._model.coupled.loss import CoupledLoss
from ..._model.coupled.pair_rules import DrawnPairs, EqualWeights, FirstPlaces, NDCGGap
from ..._model.leaf_rule import PairwiseLeaves
from ..._model.losses import Loss
from .yeti import DRAWN_BY_LABELS, YETI

RANKING = {  # and the labels they take: lowest, highest, in words
    "QueryRMSE": (-np.inf, np.inf, "finite numbers"),
    "QuerySoftMax": (0.0, np.inf, "numbers of zero or more"),
    "PairLogit": (-np.inf, np.inf, "finite numbers"),
    "PairLogitPairwise": (-np.inf, np.inf, "finite numbers"),
    "LambdaMart": (0.0, 31.0, "numbers from 0 to 31"),
    "YetiRank": (-np.inf, np.inf, "finite numbers"),
    "YetiRankPairwise": (-np.inf, np.inf, "finite numbers"),
}
LEAST_L2 = 1e-12  # CatBoost has 1e-20 where the user has none
SUBTRACTS_L2 = "LambdaMart"  # CatBoost subtracts l2_leaf_reg from its second derivatives
COUPLED = {**RANKING, "Cox": (-np.inf, np.inf, "times, negative if no event was seen")}
UNWEIGHTED = ("PairLogit", "PairLogitPairwise", "LambdaMart", *YETI, "Cox")
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
    if name in ("PairLogit", "YetiRank"):  # those of YetiRank are drawn: see yeti.py
        return RankingObjective(_pair_logit(newton, name), True)
    if name in ("PairLogitPairwise", "YetiRankPairwise"):
        prior = float(np.float32(params["bayesian_matrix_reg"]))
        leaves = PairwiseLeaves(prior, float(np.float32(params["l2_leaf_reg"])))
        return RankingObjective(_pair_logit(False, name), True, leaves)
    return RankingObjective(_lambda_mart(settings), False)


def take_pairs(given: dict[str, Any]) -> tuple[tuple[Ints, F64] | None, dict[str, Any]]:
    """Take the pairs of a Pool out of what the user gives: rows (P, 2) of winner and loser, weights.

    A Pool does not give them back."""
    pairs = given.get("pairs")
    left = {name: value for name, value in given.items() if name not in ("pairs", "pairs_weight")}
    if pairs is None:
        return None, left
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise InvalidInput(
            f"params['pairs'] has shape {rows.shape} of {rows.dtype}; it is a table of whole numbers, (pairs, 2): the "
            "rows of the winner and of the loser of each pair."
        )
    weights = given.get("pairs_weight")
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float32)
    if weights.shape != (len(rows),):
        raise InvalidInput(
            f"params['pairs_weight'] has shape {weights.shape}; expected a weight for each of {len(rows)} pairs."
        )
    return (rows.astype(np.int64), weights.astype(np.float64)), left


def with_pairs(loss: Loss, pairs: tuple[Ints, F64], T: int, number: Ints) -> LambdaLoss:
    """Return a pair loss of T steps with these pairs instead of all those of different labels.

    ``number``: (n,) the query of each row."""
    rows, weights = pairs
    if not isinstance(loss, LambdaLoss) or loss.name not in ("PairLogit", "PairLogitPairwise"):
        raise InvalidInput(
            "params['pairs'] is for models with the loss PairLogit or PairLogitPairwise."
        )
    if rows.size and (rows.min() < 0 or rows.max() >= len(number)):
        raise InvalidInput(
            f"params['pairs'] names row {rows.max()}; the training rows are 0 to {len(number) - 1}."
        )
    if np.any(number[rows[:, 0]] != number[rows[:, 1]]):
        raise InvalidInput("params['pairs'] has a pair of rows of two groups; both are of one.")
    steps = [(rows[:, 0], rows[:, 1])] * T
    return replace(loss, pair_rule=DrawnPairs(steps, EqualWeights(), [weights] * T))


def labels_fixed(name: str, pairs: Any) -> str:
    """Return why leaves for other labels cannot be computed; empty if they can."""
    if pairs is not None:
        return "pairs of rows were given"
    return DRAWN_BY_LABELS if name in YETI else ""


def refuse_unknown_pairs(X: Any, pairs: Any) -> None:
    """Raise for a Pool with pairs, if they are not given."""
    if isinstance(X, catboost.Pool) and pairs is None and X.num_pairs():
        raise InvalidInput(
            f"this Pool has {X.num_pairs()} pairs, which it does not give back; pass them as "
            "params={'pairs': pairs}, and their weights, if they have some, as 'pairs_weight'."
        )


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


def ranking_notes(name: str, n: int, params: dict[str, Any]) -> list[str]:
    """Sentences for the verdict on defects of CatBoost that the replay of a loss repeats."""
    l2 = float(params["l2_leaf_reg"])
    if name == SUBTRACTS_L2 and l2 > LEAST_L2:
        return [
            f"CatBoost's {name} subtracts l2_leaf_reg={l2:g} from second derivatives, which the replay repeats"
        ]
    wrong = int(np.count_nonzero(cox_rows(n) != np.arange(n))) if name == "Cox" else 0
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
