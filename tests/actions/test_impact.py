"""Deletion requests: moves against the libraries' own retraining and the oracle's refit; hashes."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

import boosters
import numpy as np
import oracle
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import small_models as models
from catboost import Pool
from hypothesis import given
from hypothesis import settings as examples
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from small_models import SMALL, trained_without
from tiny import ensemble_of, leaves_of, tiny, workspace_of

import leaftrace as lt
from leaftrace._actions.impact.action import removal_impact
from leaftrace._engine.engine import Engine
from leaftrace._engine.forward import along, tangent
from leaftrace._engine.methods import AllPoints
from leaftrace._model.hashes import NOT_HASHED, hash_model, hash_table, hash_values

MODELS = {
    "CatBoost, weights": models.CATBOOST,
    "CatBoost, three classes": models.CATBOOST_THREE,
    "LightGBM, numbers, weights": models.LIGHTGBM_NUMBERS,
    "XGBoost, three classes": models.XGBOOST_THREE,
    "HistGradientBoosting, categories": models.HIST_CATEGORIES,
}
GONE = np.array([3, 50, 51, 52, 90, 100, 101])


@cache
def prepared(name):
    make, data = MODELS[name]
    data = data()
    w = boosters.weights(len(data.y)) if "weights" in name else None
    model = make().fit(data.X, data.y, sample_weight=w)
    return make, data, w, model, lt.Tracer(model, data.X, data.y, w, dtype="float64", n_jobs=1)


def retrained(name, gone=GONE):
    make, data, w, _, _ = prepared(name)
    return trained_without(make, data.X, data.y, w, gone)


@cache
def found(name):
    _, data, _, _, tracer = prepared(name)
    return removal_impact(tracer, GONE, data.X_test, data.y_test)


def line(result, of):
    table = result.effects
    return table[table["of"] == of].iloc[0]


# ---- moves ----


@examples(max_examples=100, deadline=None)
@given(tiny())
def test_a_direction_of_weights_is_the_sum_of_the_tangents(case):
    structure, y, w, test_steps, _ = case
    work = workspace_of(ensemble_of(structure, y, w))
    direction = np.random.default_rng(0).normal(size=len(y))
    leaves = leaves_of(test_steps)
    one = along(work, direction).score_changes(work.trace.ensemble, leaves)[..., 0]
    each = tangent(work, np.arange(len(y)), AllPoints()).score_changes(work.trace.ensemble, leaves)
    np.testing.assert_allclose(one, each @ direction, atol=1e-12 * max(1.0, np.abs(each).max()))


@pytest.mark.parametrize("name", MODELS)
def test_retrained_is_the_library_without_the_rows(name):
    _, data, _, model, _ = prepared(name)
    result = found(name)
    again = retrained(name)
    if "numbers" in name:
        before, after = (m.predict(data.X_test) for m in (model, again))
        move = np.abs(after - before)
        unit = "predictions"
        losses = [(m.predict(data.X_test) - data.y_test) ** 2 / 2 for m in (model, again)]
    else:
        before, after = (m.predict_proba(data.X_test) for m in (model, again))
        move = np.abs(after - before).max(axis=1)
        unit = "probabilities"
        flips = np.count_nonzero(
            np.ravel(model.predict(data.X_test)) != np.ravel(again.predict(data.X_test))
        )
        assert line(result, "decisions changed")["retrained"] == flips
        number = {label: i for i, label in enumerate(model.classes_)}
        codes = [number[label] for label in data.y_test]
        losses = [-np.log(p[np.arange(len(codes)), codes]) for p in (before, after)]
    close = {"rtol": 1e-4, "atol": 1e-6}  # XGBoost's scores are float32
    np.testing.assert_allclose(result.answers["before"], before, **close)
    np.testing.assert_allclose(result.answers["retrained"], after, **close)
    np.testing.assert_allclose(
        line(result, f"mean move of {unit}")["retrained"], move.mean(), **close
    )
    np.testing.assert_allclose(
        line(result, f"largest move of {unit}")["retrained"], move.max(), **close
    )
    levels = [loss.mean() for loss in losses]
    name_of_loss = "mean log loss"
    if "numbers" in name:  # in the unit of the labels
        levels = [np.sqrt(2 * level) for level in levels]
        name_of_loss = "RMSE"
    loss = line(result, name_of_loss)
    expected = [levels[0], levels[1] - levels[0], levels[1]]
    np.testing.assert_allclose(
        [loss["before"], loss["retrained"], loss["after"]], expected, **close
    )
    # The table: those that move most, in order.
    names = data.X_test.index if hasattr(data.X_test, "iloc") else np.arange(len(data.y_test))
    moved = dict(zip(names, move, strict=True))
    shown = [moved[row] for row in result.table["test_row"]]
    np.testing.assert_allclose(shown, np.sort(move)[::-1][: len(shown)], **close)


@pytest.mark.parametrize("name", ["CatBoost, weights", "CatBoost, three classes"])
def test_refitted_and_predicted_are_the_oracles(name):
    _, data, w, model, _ = prepared(name)
    structure, steps = oracle.from_catboost(model, data.X)
    steps = steps(data.X_test)
    w = np.float32(np.ones(len(data.y)) if w is None else w).astype(float)
    number = {label: i for i, label in enumerate(model.classes_)}
    codes, test_codes = (np.array([float(number[v]) for v in y]) for y in (data.y, data.y_test))
    keep = np.setdiff1d(np.arange(len(w)), GONE)
    direction = np.zeros(len(w))
    direction[GONE] = -w[GONE]

    def scores(w):
        return oracle.predict(structure, oracle.refit(structure, codes, w), steps)

    def probabilities(F):
        return (
            np.hstack([oracle.sigmoid(-F), oracle.sigmoid(F)])
            if F.shape[1] == 1
            else oracle.softmax(F)
        )

    start = scores(w)
    rest = structure.rows(keep)
    ways = {
        "predicted": start + oracle.slope(lambda e: scores(w + e * direction), 1e-3),
        "refitted": oracle.predict(rest, oracle.refit(rest, codes[keep], w[keep]), steps),
    }
    result = found(name)
    for way, F in ways.items():
        np.testing.assert_allclose(result.answers[way], probabilities(F), atol=1e-8)
        move = np.abs(probabilities(F) - probabilities(start)).max(axis=1)
        assert line(result, "mean move of probabilities")[way] == pytest.approx(
            move.mean(), rel=1e-5
        )
        assert line(result, "largest move of probabilities")[way] == pytest.approx(
            move.max(), rel=1e-5
        )
        change = (
            oracle.loss_value(structure.loss, F, test_codes)
            - oracle.loss_value(structure.loss, start, test_codes)
        ).mean()
        assert line(result, "mean log loss")[way] == pytest.approx(change, rel=1e-4)
    top = result.table.iloc[0]
    row = int(top["test_row"])
    old = probabilities(start)[int(top["test_row"])].argmax()
    assert top["decision"] == model.classes_[old]
    assert top["refitted"] == pytest.approx(
        (probabilities(ways["refitted"]) - probabilities(start))[row, old], abs=1e-8
    )


def test_leaves_without_derivatives_are_refitted_and_retrained():
    _, data, _, _, _ = prepared("LightGBM, numbers, weights")
    make = lambda: LGBMRegressor(**SMALL, num_leaves=8, verbose=-1, objective="regression_l1")  # noqa: E731
    tracer = lt.Tracer(make().fit(data.X, data.y), data.X, data.y, n_jobs=1)
    result = removal_impact(tracer, GONE, data.X_test)
    keep = np.setdiff1d(np.arange(len(data.y)), GONE)
    again = make().fit(data.X[keep], data.y[keep])
    np.testing.assert_allclose(result.answers["retrained"], again.predict(data.X_test), atol=1e-6)
    assert np.isnan(result.effects["predicted"]).all()
    assert np.isfinite(result.effects["refitted"]).all()
    assert "mean log loss" not in list(result.effects["of"])


def test_without_retraining_nothing_is_claimed():
    _, data, _, _, tracer = prepared("CatBoost, weights")
    result = removal_impact(tracer, GONE, data.X_test, data.y_test, retrain=False)
    assert np.isnan(result.effects["retrained"]).all()
    assert "Training again may also choose other splits" in result.advice
    assert result.audit()["retrained"] is None
    mask = np.isin(np.arange(len(data.y)), GONE)
    pd.testing.assert_frame_equal(
        removal_impact(tracer, mask, data.X_test, data.y_test, retrain=False).effects,
        result.effects,
    )


def test_controls_are_random_groups_of_the_same_size():
    name = "CatBoost, weights"
    _, data, _, model, tracer = prepared(name)
    result = removal_impact(tracer, GONE, data.X_test, data.y_test, controls=2, seed=5)
    rng = np.random.default_rng(5)
    for control in result.controls:
        others = rng.choice(len(data.y), len(GONE), replace=False)
        move = np.abs(
            retrained(name, others).predict_proba(data.X_test) - model.predict_proba(data.X_test)
        ).max(axis=1)
        assert control == pytest.approx(move.mean(), rel=1e-6)
    assert f"{result.controls.max():.2g}" in result.advice


def test_ctrl_c_keeps_what_is_finished(monkeypatch):
    _, data, _, _, tracer = prepared("CatBoost, weights")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lt.Tracer, "retrain", interrupted)
    result = removal_impact(tracer, GONE, data.X_test, data.y_test)
    assert result.interrupted
    assert result.audit()["interrupted"]
    assert np.isfinite(result.effects["refitted"]).all()
    assert np.isnan(result.effects["retrained"]).all()
    assert "Ctrl-C" in result.advice
    monkeypatch.setattr(Engine, "score_changes_along", interrupted)
    with pytest.raises(KeyboardInterrupt):
        removal_impact(tracer, GONE, data.X_test, data.y_test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "say which training rows"),
        ({"rows": None}, "say which training rows"),
        ({"rows": [10**6]}, "positions of training rows go from 0"),
        ({"rows": slice(None)}, "leaves no training row"),
        ({"X_test": np.zeros((0, 30))}, "X_test has no rows"),
        ({"y_test": ["cancer"]}, "y_test has 1 values"),
        ({"retrain": False, "controls": 2}, "need retrain=True"),
        ({"when": datetime(2020, 1, 1)}, "with a time zone"),
        ({"when": "yesterday"}, "with a time zone"),
    ],
)
def test_what_is_refused(change, message):
    _, data, _, _, tracer = prepared("CatBoost, weights")
    ask = {"rows": GONE, "X_test": data.X_test, "y_test": data.y_test} | change
    if isinstance(ask["rows"], slice):
        ask["rows"] = np.arange(len(data.y))
    with pytest.raises(lt.InvalidInput, match=message):
        removal_impact(tracer, **ask)


# ---- audit files ----


def test_the_audit_file_is_json_that_says_it_all(tmp_path):
    name = "CatBoost, weights"
    _, data, w, _, tracer = prepared(name)
    when = datetime(2024, 5, 6, 7, 8, tzinfo=timezone(timedelta(hours=2)))
    result = removal_impact(tracer, GONE, data.X_test, data.y_test, when=when)
    path = tmp_path / "request.json"
    result.save(path)
    audit = json.loads(
        path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )
    assert audit == result.audit()
    assert audit["time"] == "2024-05-06T05:08:00+00:00"
    assert audit["removed"] == {"count": 7, "positions": GONE.tolist(), "row_names": GONE.tolist()}
    assert audit["training"]["rows"] == len(data.y)
    assert audit["training"]["sha256"] == {
        "table": hash_table(data.X),
        "labels": hash_values(data.y),
        "weights": hash_values(tracer.sample_weight),
        "row_names": hash_values(np.arange(len(data.y))),
    }
    assert audit["test"]["sha256"] == {
        "table": hash_table(data.X_test),
        "labels": hash_values(data.y_test),
    }
    keep = np.setdiff1d(np.arange(len(data.y)), GONE)
    after = lt.Tracer(retrained(name), data.X[keep], data.y[keep], w[keep], n_jobs=1)
    assert audit["retrained"]["sha256"] == hash_model(after.engine.ensemble)
    assert (
        audit["model"]["sha256"]
        == hash_model(tracer.engine.ensemble)
        != audit["retrained"]["sha256"]
    )
    assert audit["model"]["settings"]["learning_rate"] == pytest.approx(0.2)
    assert set(audit["versions"]) >= {"leaftrace", "numpy", "python", "catboost"}
    for found_line, (_, shown) in zip(audit["effects"], result.effects.iterrows(), strict=True):
        assert found_line == shown.to_dict()
    changed = result.audit()
    changed["removed"]["count"] = 0
    assert result.audit()["removed"]["count"] == 7


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    result = found("CatBoost, weights")
    monkeypatch.setattr(json, "dumps", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        result.save(tmp_path / "audit.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(lt.LeaftraceError, match="choose another folder"):
        result.save(tmp_path / "nowhere" / "audit.json")


def test_now_is_in_utc():
    moment = datetime.fromisoformat(found("CatBoost, weights").audit()["time"])
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=10)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_names_that_json_does_not_know(unit):
    _, data, _, _, _ = prepared("HistGradientBoosting, categories")
    X = data.X.set_axis(pd.date_range("2024-01-01", periods=len(data.X)).as_unit(unit))
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype").fit(
        X, data.y
    )
    result = removal_impact(lt.Tracer(model, X, data.y, n_jobs=1), [1], data.X_test, retrain=False)
    assert json.loads(json.dumps(result.audit()))["removed"]["row_names"][0].startswith(
        "2024-01-02"
    )


def test_it_prints():
    result = found("CatBoost, three classes")
    assert "Without 7 of 158 training rows" in repr(result)
    assert "decisions changed" in result._repr_html_()


# ---- fingerprints ----

FRAME = pd.DataFrame(
    {
        "number": [1.5, np.nan, -0.0, 3.25],
        "count": [1, 2, 3, 4],
        "flag": [True, False, True, True],
        "text": ["a", None, "bc", "é"],
        "kind": pd.Categorical(["x", "y", None, "x"], ["x", "y", "z"]),
        "day": pd.to_datetime(["2024-01-01", None, "2024-01-03", "2024-01-04"]),
        "maybe": pd.array([1, None, 3, 4], dtype="Int64"),
    }
)


def test_a_frame_has_one_fingerprint_in_every_process():
    assert hash_table(FRAME) == hash_table(FRAME.copy()) == hash_table(FRAME[::-1][::-1])
    code = (
        "import numpy as np, pandas as pd; from leaftrace._model.hashes import hash_table; "
        "print(hash_table(pd.DataFrame({'number': [1.5, np.nan], 'text': ['a', None], "
        "'kind': pd.Categorical(['x', 'y'])})))"
    )
    seeds = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    frame = pd.DataFrame(
        {"number": [1.5, np.nan], "text": ["a", None], "kind": pd.Categorical(["x", "y"])}
    )
    assert seeds[0] == seeds[1] == hash_table(frame) + "\n"


def changed(column, value):
    frame = FRAME.copy()
    frame.loc[2, column] = value
    return frame


@pytest.mark.parametrize(
    "other",
    [
        changed("number", np.nextafter(0, 1)),
        changed("number", np.nan),
        changed("count", 5),
        changed("flag", False),
        changed("text", "bd"),
        changed("text", None),
        changed("kind", "y"),
        changed("day", pd.Timestamp("2024-01-05")),
        changed("maybe", 7),
        FRAME.rename(columns={"flag": "Flag"}),
        FRAME[FRAME.columns[::-1]],
        FRAME[::-1],
        FRAME[:3],
        FRAME.assign(kind=FRAME["kind"].astype(object)),
        FRAME.assign(text=["ab", None, "c", "é"]),  # the same letters
    ],
)
def test_a_fingerprint_differs_with_anything_said(other):
    assert hash_table(other) != hash_table(FRAME)


def test_tables_of_every_kind_have_one_fingerprint():
    renumbered = FRAME.assign(kind=FRAME["kind"].cat.reorder_categories(["y", "x", "z"]))
    arrow = pa.Table.from_pandas(FRAME)
    for same in (
        renumbered,
        arrow,
        pa.concat_tables([arrow[:1], arrow[1:]]),
        arrow.to_batches()[0],
        pl.from_pandas(FRAME),
    ):
        assert hash_table(same) == hash_table(FRAME)
    for name in ("count", "text", "flag", "number", "maybe", "kind"):
        assert (
            hash_values(pl.from_pandas(FRAME)[name])
            == hash_values(arrow[name])
            == hash_values(FRAME[name])
        )


def test_a_fingerprint_does_not_know_memory():
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    X[3, 1] = np.nan
    X[4, 2] = 0.0
    one = hash_table(X)
    wide = np.zeros((50, 8), np.float32)
    wide[:, ::2] = X
    odd = X.copy()
    odd.view(np.uint32)[3, 1] |= 1  # another NaN
    odd[4, 2] = -0.0
    names = {i: X[:, i] for i in range(4)}
    for same in (
        np.asfortranarray(X), wide[:, ::2], X.astype(">f4"), X.astype(np.float64), X[::-1].copy()[::-1], X.tolist(),
        odd, pd.DataFrame(names), pd.DataFrame(X.astype(float)), pa.table({str(i): X[:, i] for i in range(4)}),
    ):  # fmt: skip
        assert hash_table(same) == one
    assert hash_table(X.T) != one
    assert hash_table(np.zeros((2, 3))) != hash_table(np.zeros((3, 2)))
    integers = np.arange(6).reshape(3, 2)
    assert hash_table(integers) == hash_table(integers.astype(np.uint8))
    assert hash_table(integers) != hash_table(
        integers.astype(float)
    )  # another kind of column to a library
    assert hash_values(np.array([-1])) != hash_values(np.array([2**64 - 1], np.uint64))
    assert (
        hash_values(np.array(["a", "b"]))
        == hash_values(np.array(["a", "b"], object))
        == hash_values(pd.Series(["a", "b"]))
    )


def test_arrow_tables_whatever_their_chunks():
    table = pa.table(
        {
            "n": [1.0, 2.0, 3.0],
            "s": ["a", "b", None],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    chunks = pa.concat_tables([table[:1], table[1:]])
    assert chunks["n"].num_chunks == 2
    assert hash_table(chunks) == hash_table(table)
    other = table.set_column(1, "s", pa.array(["a", "b", "c"]))
    assert hash_table(other) != hash_table(table)


def test_sparse_tables_by_what_they_store():
    dense = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    csr = sp.csr_matrix(dense)
    for same in (
        sp.csc_matrix(dense),
        sp.coo_matrix(dense),
        csr.astype(np.float32),
        sp.csr_array(dense),
    ):
        assert hash_table(same) == hash_table(csr)
    stored = csr.tolil().tocsr()
    stored.data[0] = 0.0  # stored zeros are values to a library, absent ones may be missing
    absent = stored.copy()
    absent.eliminate_zeros()
    assert len({hash_table(x) for x in (csr, stored, absent, csr[:2], csr[:, :2], csr[::-1])}) == 6
    row = sp.csr_matrix((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    assert not row.has_sorted_indices
    assert hash_table(row) == hash_table(sp.csr_matrix([[2.0, 0.0, 1.0]]))
    assert not row.has_sorted_indices  # the user's own is left alone


def test_a_boosters_own_matrix_is_not_hashed():
    _, data, w, model, _ = prepared("CatBoost, weights")
    pool = Pool(data.X, data.y, weight=w)
    result = removal_impact(lt.Tracer(model, pool, n_jobs=1), GONE, Pool(data.X_test, data.y_test))
    audit = result.audit()
    assert audit["training"]["sha256"]["table"] == audit["test"]["sha256"]["table"] == NOT_HASHED
    assert (
        audit["training"]["sha256"]["labels"]
        == found("CatBoost, weights").audit()["training"]["sha256"]["labels"]
    )
    pd.testing.assert_frame_equal(
        result.effects, found("CatBoost, weights").effects, rtol=1e-4
    )  # float32 passes


def test_models_differ_in_fingerprint_where_they_differ():
    _, data, w, model, tracer = prepared("CatBoost, weights")
    e = tracer.engine.ensemble
    assert len(hash_model(e)) == hashlib.sha256().digest_size * 2
    again = lt.Tracer(
        MODELS["CatBoost, weights"][0]().fit(data.X, data.y, sample_weight=w), data.X, data.y, w
    )
    assert hash_model(again.engine.ensemble) == hash_model(e)
    shorter = model.copy()
    shorter.shrink(20)
    assert hash_model(lt.Tracer(shorter, data.X, data.y, w).engine.ensemble) != hash_model(e)
    values = e.values.copy()
    values[7, 0] = np.nextafter(values[7, 0], 1)
    leaves = np.asfortranarray(e.leaves.astype(np.uint32))
    assert (
        hash_model(replace(e, values=values))
        != hash_model(e)
        == hash_model(replace(e, leaves=leaves))
    )
    leaves[2, 3] ^= 1
    assert hash_model(replace(e, leaves=leaves)) != hash_model(e)
