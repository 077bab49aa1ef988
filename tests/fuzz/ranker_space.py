"""Random rankers, and what is checked of them: fidelity, both forms of the pass, libraries' own refits."""

from __future__ import annotations

import catboost
import lightgbm as lgb
import numpy as np
import xgboost as xgb

import leaftrace as lt
from leaftrace._engine.queries import make_queries

from .asking import asked, quiet
from .checks import trained_case
from .outcome import Outcome
from .reference import ROUNDING

ACCURACY = 1e-4  # of a refit; LightGBM adds pairs in float32
OBJECTIVES = {
    "LightGBM": ["lambdarank", "rank_xendcg"],
    "XGBoost": ["rank:ndcg", "rank:pairwise", "rank:map"],
    "CatBoost": ["QueryRMSE", "QuerySoftMax", "PairLogit", "LambdaMart", "YetiRank"],
}


def draw_configuration(draw):
    """Draw a ranker: plain values, so that they can be printed."""
    library = draw.pick(list(OBJECTIVES))
    data = {"seed": draw.whole(1000), "queries": draw.pick([2, 10, 40]), "columns": 3}
    data |= {"largest": draw.pick([3, 12, 40]), "labels": draw.pick([2, 5])}
    configuration = {"model": library, "objective": draw.pick(OBJECTIVES[library]), "data": data}
    return configuration | {"rate": draw.pick([0.1, 0.5]), "rounds": draw.pick([1, 4, 10])}


class Ranker:
    """A ranker of a configuration with its rows."""

    def __init__(self, configuration):
        self.configuration = configuration
        data = configuration["data"]
        rng = np.random.default_rng(data["seed"])
        self.sizes = rng.integers(1, data["largest"] + 1, data["queries"])
        n = int(self.sizes.sum())
        self.number = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.X = rng.normal(size=(n, data["columns"]))
        highest = 1 if configuration["objective"] == "rank:map" else data["labels"] - 1
        self.y = np.clip(np.round(self.X[:, 0] + rng.normal(size=n)), 0, highest)
        self.model = getattr(self, configuration["model"].lower())()

    def lightgbm(self):
        c = self.configuration
        params = {"objective": c["objective"], "verbosity": -1, "num_threads": 1}
        params |= {"learning_rate": c["rate"], "num_leaves": 6, "min_data_in_leaf": 3}
        return lgb.train(params, lgb.Dataset(self.X, self.y, group=self.sizes), c["rounds"])

    def xgboost(self):
        c = self.configuration
        params = {"objective": c["objective"], "eta": c["rate"], "max_depth": 3, "nthread": 1}
        rows = xgb.DMatrix(self.X, self.y)
        rows.set_group(self.sizes)
        return xgb.train({**params, "verbosity": 0}, rows, c["rounds"])

    def catboost(self):
        c = self.configuration
        params = {"loss_function": c["objective"], "iterations": c["rounds"], "depth": 3}
        params |= {"learning_rate": c["rate"], "verbose": 0, "thread_count": 1}
        model = catboost.CatBoost({**params, "allow_writing_files": False})
        return model.fit(catboost.Pool(self.X, self.y, group_id=self.number))


def run(configuration):
    """Train the ranker of a configuration and check it. Return the outcome."""
    out = Outcome(configuration)
    with quiet():
        case = trained_case(configuration, out, Ranker)
    if case is None:
        return out

    def trace():
        # As many sizes as rows, all of them one, are read as names.
        qid = case.sizes if len(case.sizes) < len(case.y) else case.number
        return lt.Tracer(case.model, case.X, case.y, qid=qid, dtype="float64", n_jobs=1)

    tracer = asked(out, "tracer", False, trace)
    if tracer is None:
        return out
    out.checks["fidelity"] += 1
    passes = tracer.engine.coupled
    e = tracer.engine.ensemble
    query = make_queries(e, e.leaves[:, :5], None, None, "prediction", "sum", None)
    for normalisers in ("frozen", "exact"):
        method = lt.LeafInfluence(normalisers=normalisers)
        [(_, found)] = passes.blocks(query, method, None)
        slopes = passes.slopes(query, slice(0, 1), frozen=normalisers == "frozen")
        compare(out, f"matrices, {normalisers}", found, slopes.weights, 1e-9)
    if configuration["model"] == "LightGBM" and len(case.sizes) > 2:
        own_refit(case, tracer, out)
    return out


def own_refit(case, tracer, out):
    """Compare the refit without a query with LightGBM's.

    Nothing is decided where roundings of weights change LightGBM's own refit: they exchange two rows then. Nor where
    scores of two rows are equal by the sums of different leaves, as roundings decide which row is first."""
    if case.configuration["objective"] == "rank_xendcg":
        return  # draws go by the number of the query
    keep = case.number != 1
    rng = np.random.default_rng(0)

    def refitted(weight=None):
        group = np.delete(case.sizes, 1)
        return case.model.refit(
            case.X[keep], case.y[keep], decay_rate=0.0, group=group, weight=weight
        )

    def scores(model):
        return model.predict(case.X, raw_score=True)[:, None]

    again = refitted()
    if has_chance_ties(again, case.X[keep], case.number[keep]):
        out.note("undecided", "refit")
        return
    expected = scores(again)
    scale = max(np.abs(expected).max(), 1e-6)
    for _ in range(5):
        rounded = 1 + ROUNDING * rng.choice([-1.0, 1.0], keep.sum())
        if np.abs(scores(refitted(rounded)) - expected).max() > ACCURACY * scale / 10:
            out.note("undecided", "refit")
            return
    found = asked(out, "refit", True, lambda: tracer.refit(without=~keep).scores(case.X))
    if found is not None:
        compare(out, "refit", found, expected, ACCURACY)


def has_chance_ties(model, X, number):
    """Return whether two rows of a query come to equal scores, but for rounding, by different leaves."""
    leaves = model.predict(X, pred_leaf=True).reshape(len(X), -1)
    same_query = np.triu(number[:, None] == number, 1)
    for t in range(1, leaves.shape[1]):
        scores = model.predict(X, raw_score=True, num_iteration=t)
        near = np.abs(scores[:, None] - scores) < 1e-12
        other = (leaves[:, None, :t] != leaves[:, :t]).any(axis=2)
        if (same_query & near & other).any():
            return True
    return False


def compare(out, check, found, expected, accuracy):
    out.checks[check] += 1
    distance = np.abs(found - expected).max()
    # Scores are of the size of one; effects that cancel to next to nothing have the rounding of their terms.
    if not distance <= accuracy * max(np.abs(expected).max(), 1e-3):
        out.note("wrong", check, f"differs by {distance:.3g} of {np.abs(expected).max():.3g}")
