"""The engine of clusters on partitions in this process, which forget what they kept."""

from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import add
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import leaftrace as lt
from leaftrace._engine.backward import leaf_adjoint
from leaftrace._tracer.cluster import scratch
from leaftrace._tracer.cluster.backward import part_leaf_space, row_form
from leaftrace._tracer.cluster.draws import pack_draws
from leaftrace._tracer.cluster.part import Part, facts_of, without_rows
from leaftrace._tracer.cluster.refitting import RemovedNames, RemovedPositions, refit_without
from leaftrace._tracer.cluster.replaying import replay_on

N = 300
M = 3


@dataclass
class Here:
    """Three partitions; before every ``forgets``-th question about states, one of them is lost.

    ``goes_on``  whether states are asked for at all
    """

    parts: list[Part]
    goes_on: bool = True
    forgets: int = 0
    asked: list[str] = field(default_factory=list)
    further: int = 0

    def send(self, data: Any) -> Any:
        return data

    def total(self, fn: Any, **common: Any) -> Any:
        self.asked.append(fn.__name__)
        return reduce(add, (fn(part, **common) for part in self.parts))

    def forget(self, key: str) -> None:
        scratch.take_all(key)

    def go_on(self, key: str, fn: Any, **common: Any) -> Any:
        self.further += 1
        if not self.goes_on:
            return None
        if self.forgets and self.further % self.forgets == 0:
            scratch.take(key, self.parts[0].identity)
        numbers, total = scratch.sum_over_states(key, scratch.take_all(key), fn, common)
        return total if sorted(numbers) == [part.number for part in self.parts] else None


@cache
def world():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + M, 4))
    return X, (X[:, 0] - X[:, 1] * X[:, 2] + rng.normal(size=N + M) > 0).astype(int)


MODELS = {
    "boosting": lgb.LGBMClassifier(n_estimators=6, num_leaves=5, verbosity=-1, n_jobs=1),
    "bagging": lgb.LGBMClassifier(
        n_estimators=6, num_leaves=5, verbosity=-1, n_jobs=1, subsample=0.6, subsample_freq=1
    ),
    "DART": xgb.XGBClassifier(
        n_estimators=6, max_depth=2, booster="dart", rate_drop=0.5, n_jobs=1, subsample=0.7
    ),
    "smoothed": lgb.LGBMClassifier(
        n_estimators=4, num_leaves=5, verbosity=-1, n_jobs=1, path_smooth=2.0
    ),
}


@cache
def opened(name):
    """Return a tracer in memory, partitions of its rows, and its trace without them."""
    X, y = world()
    near = lt.Tracer(MODELS[name].fit(X[:N], y[:N]), X[:N], y[:N], dtype="float64")
    e = near.engine.ensemble
    parts = [
        Part(p, a, e.leaves[:, a:b].copy(), facts_of(e, slice(a, b)), np.arange(a, b), p)
        for p, (a, b) in enumerate([(0, 90), (90, 91), (91, N)])
    ]
    return near, parts, replay_on(Here(parts), near.engine.source, True)


def by_leaf(adjoint):
    """Return the derivatives (leaves, E, B), of which leaves may share rows."""
    return adjoint.fbar if adjoint.place is None else adjoint.fbar[adjoint.place]


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_states_that_are_lost_are_made_again(name, goes_on):
    near, parts, trace = opened(name)
    X, y = world()
    assert trace.fidelity.exact
    queries = near.engine.queries(X[N:], y[N:], "loss", None, None, None)[0]
    expected = leaf_adjoint(near.engine.work, queries, slice(0, M))
    for forgets in (0, 2):
        here = Here(parts, goes_on, forgets)
        found = row_form(here, trace, trace, queries, slice(0, M), np.dtype("float64"))
        np.testing.assert_allclose(by_leaf(found), by_leaf(expected), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(found.base, expected.base, rtol=1e-9, atol=1e-14)
        steps = trace.ensemble.n_steps
        # the first step, and those that have lost a state
        expected_totals = 1 + (steps - 1) // 2 if forgets else 1
        assert len(here.asked) == (expected_totals if goes_on else steps)
    gone = np.arange(0, N, 3)
    scores = near.refit(without=gone).scores(X[N:])
    leaves = near.engine.source.rows(X[N:])[0]
    for removal in (RemovedPositions(gone), RemovedNames(gone, "id")):
        refitted, count = refit_without(Here(parts, goes_on, 2), trace, removal)
        assert count == len(gone)
        np.testing.assert_allclose(refitted.scores(leaves), scores, rtol=1e-9, atol=1e-12)


def test_a_partition_in_another_order_has_no_state():
    """Rows of a partition that was computed again can be in another order: then nothing is kept."""
    near, parts, trace = opened("boosting")
    X, y = world()
    queries = near.engine.queries(X[N:], y[N:], "loss", None, None, None)[0]
    expected = leaf_adjoint(near.engine.work, queries, slice(0, M))

    class Shuffled(Here):
        def total(self, fn, **common):
            first, *others = self.parts
            order = np.random.default_rng(len(self.asked)).permutation(len(first))
            e = first.ensemble(trace.ensemble).take(order)
            facts = facts_of(e, slice(None))
            mark = first.mark + 1
            self.parts = [replace(first, leaves=e.leaves, facts=facts, mark=mark), *others]
            return super().total(fn, **common)

    shuffled = Shuffled(parts, goes_on=False)
    found = row_form(shuffled, trace, trace, queries, slice(0, M), np.dtype("float64"))
    np.testing.assert_allclose(found.fbar, expected.fbar, rtol=1e-9, atol=1e-14)


def test_leaf_space_of_partitions():
    near, parts, trace = opened("bagging")
    X, y = world()
    queries = near.engine.queries(X[N:], y[N:], "loss", None, None, None)[0]
    dtype = np.dtype("float64")
    space = Here(parts).total(part_leaf_space, trace=trace, dtype=dtype)
    found = space.adjoint(near.engine.work, queries, slice(0, M))
    expected = leaf_adjoint(near.engine.work, queries, slice(0, M))
    np.testing.assert_allclose(found.fbar, expected.fbar, rtol=1e-9, atol=1e-14)


def test_draws_are_packed_without_loss():
    rng = np.random.default_rng(0)
    few = rng.random(1000) < 0.3
    counts = rng.integers(0, 5, 1000).astype(np.uint8)
    many = rng.random(1000)
    same = np.ones(1000)
    sample = [few, few, counts, many, same]
    part = slice(100, 990)
    packed = pack_draws(sample, part)
    found = packed.unpack()
    for drawn, here in zip(found, sample, strict=True):
        np.testing.assert_array_equal(drawn, here[part])
        assert drawn.dtype == here.dtype
    assert found[0] is found[1]
    assert pack_draws([few], part).nbytes == -(-890 // 8)


def test_the_trace_has_no_rows():
    near, _, trace = opened("bagging")
    assert trace.ensemble.n_rows == 0
    assert trace.ensemble.sample is None
    assert without_rows(near.engine.ensemble).leaves.shape[1] == 0
