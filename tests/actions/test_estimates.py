"""Estimates of actions count the parts that the actions do."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier

import leaftrace as lt
from leaftrace._actions.estimates import parts
from leaftrace._engine import many_refits
from leaftrace._engine.engine import Engine
from leaftrace._engine.retrainings import Retrainings

rng = np.random.default_rng(0)
X = rng.normal(size=(160, 3))
y = (X[:, 0] + rng.normal(size=160) > 0).astype(int)
X_TEST = rng.normal(size=(90, 3))
Y_TEST = (X_TEST[:, 0] > 0).astype(int)
GROUPS = np.repeat([0, 1, 2, 3], 40)


def make_model(seed):
    return LGBMClassifier(
        n_estimators=4, min_child_samples=5, random_state=seed, n_jobs=1, verbose=-1
    )


@pytest.fixture(scope="module")
def tracer():
    return lt.Tracer(make_model(0).fit(X, y), X, y, n_jobs=1)


@pytest.fixture
def counts(monkeypatch):
    """Count refits, retrainings and influences, however they are asked for."""
    done = {"refits": 0, "retrainings": 0, "influences": 0}

    def counted(owner, name, what):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            done[what] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(Engine, "refit", "refits")
    counted(many_refits, "refit_on", "refits")
    counted(Retrainings, "train", "retrainings")
    counted(lt.Tracer, "influence", "influences")
    return done


@pytest.fixture
def price(monkeypatch):
    """Let each part take a second."""
    timed = parts.timed
    monkeypatch.setattr(parts, "timed", lambda work: (1.0, timed(work)[1]))


def estimated(monkeypatch, *call, **options):
    """The parts that an estimate counts, by kind: (fewest, most)."""
    found = []
    estimate = parts.Course.estimate

    def keep(course, limit):
        found.extend(course.parts)
        return estimate(course, limit)

    monkeypatch.setattr(parts.Course, "estimate", keep)
    lt.estimate(*call, **options)
    return {part.what: (part.fewest, part.most) for part in found}


def run(counts, function, *arguments, **options):
    """What an action does, and its result."""
    for what in counts:
        counts[what] = 0
    result = function(*arguments, **options)
    return dict(counts), result


def test_groups(tracer, counts, monkeypatch):
    call = (lt.group_effects, tracer, GROUPS, X_TEST, Y_TEST, X_TEST[:, 1] > 0)
    known = estimated(monkeypatch, *call, retrain=True)
    done, _ = run(counts, *call, retrain=True)
    assert known["refits"] == (4, 4)
    assert known["retrainings"] == (4, 4)
    assert known["influences"] == (2, 2)
    assert done == {"refits": 4, "retrainings": 4, "influences": 2}
    assert "retrainings" not in estimated(monkeypatch, *call)


def test_refits_run_side_by_side(monkeypatch):
    tracer = lt.Tracer(make_model(0).fit(X, y), X, y, n_jobs=2)
    known = estimated(monkeypatch, lt.group_effects, tracer, np.arange(160) % 5, X_TEST, Y_TEST)
    assert known["times 2 refits side by side"] == (3, 3)


def test_impact(tracer, counts, monkeypatch):
    call = (lt.removal_impact, tracer, [1, 2], X_TEST, Y_TEST)
    known = estimated(monkeypatch, *call, controls=2)
    done, _ = run(counts, *call, controls=2)
    assert known["refits"][0] == known["retrainings"][0] == 3
    assert done["refits"] == done["retrainings"] == 3


@pytest.mark.parametrize("retrain", [False, True])
def test_sources(tracer, counts, monkeypatch, retrain):
    call = (lt.source_values, tracer, GROUPS, X_TEST, Y_TEST)
    known = estimated(monkeypatch, *call, retrain=retrain)
    done, _ = run(counts, *call, retrain=retrain)
    what = "retrainings" if retrain else "refits"
    assert known == {what: (15, 15)}
    assert done[what] == 15


def test_orders_of_sources(tracer, counts, monkeypatch):
    call = (lt.source_values, tracer, np.arange(160) % 16, X_TEST, Y_TEST)
    known = estimated(monkeypatch, *call, pairs=3)["refits"][0]
    done, _ = run(counts, *call, pairs=3)
    assert 0.9 * known <= done["refits"] <= known  # orders may share a few coalitions


def test_fix(tracer, counts, monkeypatch):
    wrong = np.flatnonzero(tracer.engine.reading.decision(tracer.refit().scores(X_TEST)) != Y_TEST)
    for i in wrong[:4]:
        call = (lt.fix, tracer, X_TEST[[i]], Y_TEST[i])
        known = estimated(monkeypatch, *call)
        done, found = run(counts, *call)
        assert known["retrainings"][0] == 1
        for what in ("refits", "retrainings", "influences"):
            fewest, most = known[what]
            assert fewest <= done[what] <= most
        if len(found.attempts) == 1:  # the shortest course, but for probes that were not enough
            assert done["influences"] == known["influences"][0]
            assert done["refits"] <= known["refits"][0] + 4
    right = np.setdiff1d(np.arange(90), wrong)[0]
    estimate = lt.estimate(lt.fix, tracer, X_TEST[[right]], Y_TEST[right])
    assert estimate.seconds == 0
    assert estimate.form == "nothing to do"


@pytest.mark.parametrize("action", ["remove", "auto"])
def test_clean(tracer, counts, monkeypatch, action):
    call = (lt.clean, tracer, X_TEST[:45], Y_TEST[:45], X_TEST[45:], Y_TEST[45:])
    options = {"action": action, "max_rounds": 6}
    known = estimated(monkeypatch, *call, **options)
    done, found = run(counts, *call, **options)
    assert known["retrainings"] == (3, 6)
    assert done["retrainings"] == len(found.rounds)
    assert 3 <= len(found.rounds) <= 6
    assert estimated(monkeypatch, *call, max_rounds=2)["retrainings"] == (2, 2)


@pytest.mark.parametrize("features", [None, ["a"]])
def test_mismatch(counts, monkeypatch, features):
    train, test = (pd.DataFrame(rows, columns=list("abc")) for rows in (X, X_TEST))
    tracer = lt.Tracer(make_model(0).fit(train, y), train, y, n_jobs=1)
    # Labels that the training rows do not have let groups move.
    for labels in (Y_TEST, 1 - Y_TEST):
        call = (lt.mismatch, tracer, test, labels, features)
        known = estimated(monkeypatch, *call, steps=3)
        done, found = run(counts, *call, steps=3)
        assert known["retrainings"] == (0, 1)
        assert done["retrainings"] == (found.model is not None)
        assert known["refits"][1] + 3 >= done["refits"]
        folds = known["influences"][0] + (features is None)
        effects = 2 if found.judged else 0
        assert done["influences"] == folds + effects


def test_members(counts, monkeypatch, tracer):
    call = (lt.ensemble_influence, make_model, X, y, X_TEST, Y_TEST)
    options = {"members": 6, "bag": (0.5, 0.9), "n_jobs": 1}
    known = estimated(monkeypatch, *call, **options)
    assert known == {"members of 80 rows": (3, 3), "members of 144 rows": (3, 3)}
    assert run(counts, *call, **options)[0]["influences"] == 12  # with fixed trees, too
    call = (lt.data_values, tracer, X_TEST, Y_TEST)
    assert estimated(monkeypatch, *call, members=9, bag=0.3) == {"members of 48 rows": (9, 9)}
    assert run(counts, *call, members=9, bag=0.3)[0]["retrainings"] == 9
    assert estimated(monkeypatch, *call, members=None) == {"members of 16 rows": (20, 200)}


def test_seconds_are_the_sum_over_parts(tracer, price):
    estimate = lt.estimate(lt.group_effects, tracer, GROUPS, X_TEST, Y_TEST, retrain=True)
    # Finding the leaves of the test rows is in the trial of a refit, and done once.
    assert estimate.seconds == 1 + 1 + 1 + 4 * 0 + 4
    assert estimate.most is None
    assert estimate.form == (
        "1 loss calculation, 1 influence, 1 leaf lookup, 4 refits, 4 retrainings"
    )
    estimate = lt.estimate(lt.data_values, tracer, X_TEST, Y_TEST, members=None)
    assert (estimate.seconds, estimate.most) == (20, 200)
    assert "20 s to 3 min 20 s" in repr(estimate)
    estimate = lt.estimate(lt.data_values, tracer, X_TEST, Y_TEST, members=None, time_limit=30)
    assert (estimate.seconds, estimate.most) == (20, 31)
    estimate = lt.estimate(lt.data_values, tracer, X_TEST, Y_TEST, members=None, time_limit=3)
    assert (estimate.seconds, estimate.most) == (4, None)


def test_what_cannot_be_estimated(tracer):
    with pytest.raises(lt.InvalidInput, match=r"action is 'report'.*knows clean, data_values"):
        lt.estimate(lt.report, tracer)
    with pytest.raises(lt.InvalidInput, match=r"fix\(\) cannot be called so: .*'x'"):
        lt.estimate(lt.fix, tracer)
    with pytest.raises(lt.InvalidInput, match=r"time_limit is 0"):
        lt.estimate(lt.fix, tracer, X_TEST[:1], 1, time_limit=0)
    with pytest.raises(lt.InvalidInput, match="one row, as a table"):
        lt.estimate(lt.fix, tracer, X_TEST, Y_TEST)


def test_an_estimate_leaves_the_action_as_it_is(tracer):
    call = (tracer, X_TEST[:45], Y_TEST[:45], X_TEST[45:], Y_TEST[45:])
    before = lt.clean(*call)
    lt.estimate(lt.clean, *call)
    after = lt.clean(*call)
    np.testing.assert_array_equal(after.rows, before.rows)
    assert [r.judged for r in after.rounds] == [r.judged for r in before.rounds]
