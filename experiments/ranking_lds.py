"""How well influences of training queries predict retraining, on LightGBM's lambdarank example.

A ranker is trained on random halves of the training queries. For each test query, the LDS is the rank
correlation, over the halves, of its NDCG@10 (soft ranks) or loss with the sum of influences over the
training queries of the half; the table has means over test queries, and the standard error of the
mean. *Refitted* keeps the trees of the one traced model and refits their leaves on each half.

    python experiments/ranking_lds.py [halves [model ...]]        # models by number; needs LEAFTRACE_DATA/ltr
"""

from __future__ import annotations

import sys

import lightgbm as lgb
import numpy as np
import pyarrow as pa
from data import FOLDER

import leaftrace as lt

HALVES = 60
GOAL = lt.goals.ndcg(10)
SETTINGS = {"num_leaves": 15, "min_child_samples": 20, "verbosity": -1, "n_jobs": 1}
MODELS = {
    "default normalisers, 20 trees": {"n_estimators": 20},
    "lambdarank_norm=False, 20 trees": {"n_estimators": 20, "lambdarank_norm": False},
    "default normalisers, 100 trees": {"n_estimators": 100},
}
METHODS = {
    "LeafInfluence(), frozen": lt.LeafInfluence(),
    'LeafInfluence(normalisers="exact")': lt.LeafInfluence(normalisers="exact"),
    "LeafInfluence(SinglePoint())": lt.LeafInfluence(lt.SinglePoint()),
    "BoostIn()": lt.baselines.BoostIn(),
    "Random()": lt.baselines.Random(),
}


def read(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read rows, labels and sizes of queries of "train" or "test"."""
    with pa.input_stream(FOLDER / "ltr" / f"rank.{name}.query.zst", compression="zstd") as file:
        sizes = np.array(file.read().split(), int)
    with pa.input_stream(FOLDER / "ltr" / f"rank.{name}.zst", compression="zstd") as file:
        lines = file.read().decode().splitlines()
    X = np.zeros((len(lines), 301))
    y = np.zeros(len(lines))
    for row, line in enumerate(lines):
        label, *cells = line.split()
        y[row] = float(label)
        for cell in cells:
            column, value = cell.split(":")
            X[row, int(column)] = float(value)
    return X, y, sizes


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation of two columns; NaN if one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return np.nan
    ranks = [_ranks(x) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return ranks, equal values sharing the mean of theirs."""
    _, code, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[code]


def lds(predicted: np.ndarray, actual: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error over test queries of numbers (halves, queries)."""
    found = [rank_correlation(a, b) for a, b in zip(predicted.T, actual.T, strict=True)]
    found = np.array(found)[~np.isnan(found)]
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))


def compare(settings: dict, halves: int) -> list[str]:
    """Return lines of the table for one model."""
    X, y, sizes = read("train")
    X_test, y_test, test_sizes = read("test")
    model = lgb.LGBMRanker(**SETTINGS, **settings).fit(X, y, group=sizes)
    tracer = lt.Tracer(model, X, y, qid=sizes)
    rng = np.random.default_rng(0)
    Q = len(sizes)
    left_out = np.zeros((halves, Q))
    for half in left_out:
        half[rng.permutation(Q)[: Q // 2]] = 1
    numbers = {"retrained": ([], []), "refitted": ([], [])}
    for half in left_out:
        rows = tracer.rows_of_queries(np.flatnonzero(half))
        for made, (ndcg, loss) in zip(
            (tracer.retrain(without=rows), tracer.refit(without=rows)),
            numbers.values(),
            strict=True,
        ):
            ndcg.append(GOAL.values(made.scores(X_test)[:, 0], y_test, test_sizes))
            loss.append(made.loss(X_test, y_test, qid=test_sizes))
    actual = [np.array(x) for x in numbers["retrained"]]
    predicted = {"refitted": [np.array(x) for x in numbers["refitted"]]}
    for name, method in METHODS.items():
        columns = []
        for of in (GOAL, "loss"):
            if isinstance(method, lt.baselines.Random) and of is GOAL:
                columns.append(None)
                continue
            ask = {"qid": test_sizes, "by": "query", "method": method, "of": of}
            columns.append(-left_out @ tracer.influence(X_test, y_test, **ask).values)
        predicted[name] = [columns[1] if c is None else c for c in columns]
    lines = []
    for name, (ndcg, loss) in predicted.items():
        cells = ["{:.2f} ± {:.2f}".format(*lds(p, a)) for p, a in zip((ndcg, loss), actual, strict=True)]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main(halves: int = HALVES, *chosen: int) -> None:
    for number, (name, settings) in enumerate(MODELS.items()):
        if chosen and number not in chosen:
            continue
        print(f"\n**{name}**\n\n| method | NDCG@10 | loss |\n| --- | --- | --- |")
        print("\n".join(compare(settings, halves)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
