"""XGBoost's ranking objectives: rank:ndcg, rank:pairwise and rank:map.

With lambdarank_pair_method="mean" XGBoost draws, in every round and for each query, as many rows of
other labels as lambdarank_num_pair_per_sample for each row, by std::minstd_rand and
std::uniform_int_distribution of libstdc++. Rows are sorted by label, and those of one label by score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..._data.arrays import F64, Ids, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._data.query_ids import QueryRows
from ..._model.coupled.lambdas import LambdaLoss
from ..._model.coupled.loss import CoupledRows
from ..._model.coupled.pair_rules import (
    DrawnPairs,
    EqualWeights,
    FirstPlaces,
    NDCGGap,
    PairWeight,
    PrecisionGap,
)
from ..base import f32
from .model import Trees

RANKING = {  # and the range of their labels
    "rank:ndcg": (0.0, 31.0),
    "rank:pairwise": (-np.inf, np.inf),
    "rank:map": (0.0, 1.0),
}
NOT_SET = 2**32 - 1  # of lambdarank_num_pair_per_sample
MULTIPLIER = 48271
MODULUS = 2**31 - 1
LARGEST_DRAW = MODULUS - 2


@dataclass(frozen=True)
class RankedRows:
    """The training rows of a ranker, and the trees that they went through."""

    y: F64
    queries: QueryRows
    leaves: Ids  # (trees, n)
    trees: Trees
    start: F64 | float  # (n,) scores before the first round, or that of all rows

    def scores_before(self) -> Iterator[F64]:
        """(n,) scores before each round, in float32."""
        if self.trees.weight is not None:
            raise UnsupportedModel(
                "lambdarank_pair_method='mean' with booster='dart' is not supported; use 'topk'."
            )
        A = np.broadcast_to(self.start, len(self.y))
        for first, last in pairwise(self.trees.steps.tolist()):
            A = f32(A)
            yield A
            begin = self.trees.edges[first]
            for r in range(first, last):
                A = A + self.trees.values[begin + self.leaves[r], 0]


def ranking_loss(objective: str, params: Mapping[str, str], rows: RankedRows) -> LambdaLoss:
    """The loss of a ranking objective."""
    if _is_on(params.get("lambdarank_unbiased", "0")):
        raise UnsupportedModel(
            "lambdarank_unbiased=1 estimates the bias of positions while it trains, which is not replayed; train "
            "without."
        )
    first_places = params["lambdarank_pair_method"] == "topk"
    count = int(params["lambdarank_num_pair_per_sample"])
    if count == NOT_SET:
        count = 32 if first_places else 1
    weight = _pair_weight(objective, params, count if first_places else np.inf)
    if first_places:
        rule = FirstPlaces(count, weight)
    else:
        scores = enumerate(rows.scores_before())
        steps = [drawn_pairs(A, rows.y, rows.queries, count, t) for t, A in scores]
        rule = DrawnPairs(steps, weight)
    normaliser = "log2" if first_places else "drawn"
    return LambdaLoss(
        rule,
        hessian_factor=2.0,
        score_normaliser=_is_on(params["lambdarank_score_normalization"]),
        normaliser=normaliser if _is_on(params["lambdarank_normalization"]) else "none",
        drawn=count,
        mean_weight=True,
        name=objective,
    )


def _is_on(value: str) -> bool:
    return str(value).lower() in ("1", "true")


def _pair_weight(objective: str, params: Mapping[str, str], places: float) -> PairWeight:
    """Weights of pairs. ``places``: that the ideal DCG counts."""
    if objective == "rank:pairwise":
        return EqualWeights()
    if objective == "rank:map":
        return PrecisionGap()
    exponential = _is_on(params["ndcg_exp_gain"])
    gains = tuple((2.0 ** np.arange(32) - 1).tolist()) if exponential else None
    return NDCGGap(gains, places)


def labels_fixed(params: Mapping[str, str], queries: QueryRows | None) -> str:
    """Why leaf values for other labels cannot be computed; empty if they can."""
    drawn = queries is not None and params["lambdarank_pair_method"] != "topk"
    return "pairs of rows were drawn by their labels" if drawn else ""


def group_fields(queries: QueryRows, weight: F64 | None) -> dict[str, Any]:
    """Fields of a matrix with these queries; ``weight``: (n,) of rows, the same within a query."""
    fields: dict[str, Any] = {"group": queries.sizes}
    if weight is not None:
        fields["weight"] = weight[np.cumsum(queries.sizes) - queries.sizes]
    return fields


def query_weights(given: F64, queries: QueryRows) -> F64:
    """(n,) weights of rows, from one for each query or for each row; XGBoost takes the former."""
    Q = len(queries.ids)
    if len(given) == Q and len(queries.number) != Q:
        return given[queries.number]
    starts = np.cumsum(queries.sizes) - queries.sizes
    if len(given) != len(queries.number) or np.any(given[starts][queries.number] != given):
        raise InvalidInput(
            f"sample_weight has {len(given)} values; XGBoost's rankers have one weight for each query, so pass {Q} "
            "weights, or for each row that of its query."
        )
    return given


def drawn_pairs(A: F64, y: F64, queries: QueryRows, count: int, t: int) -> tuple[Ints, Ints]:
    """Rows of higher and of lower label of the pairs drawn in round t, at scores A (n,)."""
    rows = CoupledRows(y, np.ones(len(y)), queries.number, np.arange(len(y)))
    order = np.lexsort((rows.ranks(A), -y, queries.number))  # by query, label, score
    sizes = queries.sizes
    Q = len(sizes)
    same = _same_label(
        y[order], queries.number
    )  # begin and end of each place's label, in its query
    begin, end = (x - rows.spread(rows.starts) for x in same)
    others = rows.spread(sizes) - (end - begin)
    place = np.arange(len(y))
    # One label after the other, and for each `count` times through all rows that have it.
    owner = np.repeat(place, np.where(others > 0, count, 0))
    turn = np.tile(np.arange(count), len(owner) // count)
    in_order = np.lexsort((owner, turn, begin[owner], queries.number[owner]))
    owner = owner[in_order]
    query = queries.number[owner]
    first = np.searchsorted(query, np.arange(Q))
    draw = np.arange(len(owner)) - first[query]
    x = _minstd(((t + 1) * Q + np.arange(Q)) % 2**32, int(draw.max(initial=0)) + 1)[query, draw]
    scale = LARGEST_DRAW // others[owner]
    if np.any(x - 1 >= others[owner] * scale):  # one of 10^8 draws is rejected, or fewer
        x = _with_rejections(x, query, others[owner], scale, t, Q)
    other = (x - 1) // scale
    other = np.where(other < begin[owner], other, other + (end - begin)[owner])
    a = order[owner]
    b = order[rows.starts[query] + other]
    higher = y[a] > y[b]
    return np.where(higher, a, b), np.where(higher, b, a)


def _same_label(y: F64, number: Ints) -> tuple[Ints, Ints]:
    """(n,) the first row with the label of each row's query, and the row after the last."""
    begins = np.r_[True, (y[1:] != y[:-1]) | (number[1:] != number[:-1])]
    first = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    return first[run], np.r_[first[1:], len(y)][run]


def _minstd(seeds: Ints, count: int) -> Ints:
    """(Q, count) numbers of a generator for each seed."""
    power = np.empty(count, np.int64)
    factor = 1
    for k in range(count):
        factor = factor * MULTIPLIER % MODULUS
        power[k] = factor
    start = seeds % MODULUS
    start = np.where(start == 0, 1, start)
    return start[:, None] * power % MODULUS


def _with_rejections(x: Ints, query: Ints, others: Ints, scale: Ints, t: int, Q: int) -> Ints:
    """The draws, with those of queries in which one was rejected drawn one by one."""
    x = x.copy()
    for q in np.unique(query[x - 1 >= others * scale]):
        state = int(((t + 1) * Q + q) % 2**32 % MODULUS) or 1
        for draw in np.flatnonzero(query == q):
            state = state * MULTIPLIER % MODULUS
            while state - 1 >= others[draw] * scale[draw]:
                state = state * MULTIPLIER % MODULUS
            x[draw] = state
    return x
