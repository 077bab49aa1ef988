"""The result of `influence`: tables, groups, files, words."""

import builtins
import datetime
import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from catboost_models import case, tracer_of

import leaftrace as lt


@pytest.fixture(scope="module")
def named():
    return case("categories and missing values")


@pytest.fixture(scope="module")
def influence(named):
    return tracer_of(named).influence(named.X_test, named.y_test)


def test_index_and_shape(named, influence):
    assert influence.shape == influence.values.shape == (380, 20)
    assert list(influence.train_index[:2]) == ["row-0", "row-1"]
    assert list(influence.test_index[:2]) == ["row-380", "row-381"]
    part = tracer_of(named).influence(named.X_test, named.y_test, rows=[5, 2])
    assert list(part.train_index) == ["row-5", "row-2"]
    np.testing.assert_allclose(part.values, influence.values[[5, 2]], atol=1e-14)


def test_top_is_sorted_and_says_what_it_means(influence):
    table = influence.top(5)
    assert list(table.columns) == [
        "test_row",
        "test_position",
        "rank",
        "train_row",
        "position",
        "effect",
        "loss_change_if_removed",
        "change_is",
    ]
    assert set(table.change_is) == {"first order, trees fixed"}
    assert len(table) == 5 * 20
    one = table[table.test_row == "row-383"]
    assert list(one["rank"]) == [1, 2, 3, 4, 5]
    column = influence.values[:, 3]
    expected = np.argsort(-np.abs(column), kind="stable")[:5]
    assert list(one.train_row) == [f"row-{i}" for i in expected]
    np.testing.assert_allclose(one.loss_change_if_removed, -column[expected])
    assert list(one.effect) == ["harmful" if column[i] > 0 else "helpful" for i in expected]
    harmful = influence.top(1000, effect="harmful")
    assert set(harmful.effect) == {"harmful"}
    assert (harmful.loss_change_if_removed < 0).all()
    assert len(harmful) == (influence.values > 0).sum()


def test_words_for_predictions(named):
    table = tracer_of(named).influence(named.X_test, of="prediction").top(3)
    assert set(table.effect) <= {"raises", "lowers"}
    assert "prediction_change_if_removed" in table
    raised = table[table.effect == "raises"]
    assert (raised.prediction_change_if_removed < 0).all()


def test_removal_takes_the_weight_away():
    c = case("logloss class weights")
    tracer = tracer_of(c)
    inf = tracer.influence(c.X_test, c.y_test, reduce="mean")
    np.testing.assert_allclose(
        inf.change[:, 0], -inf.values[:, 0] * np.float32(c.weight), rtol=1e-6
    )
    exact = tracer.influence(c.X_test, c.y_test, reduce="mean", method=lt.LeafRefit())
    assert np.corrcoef(inf.change[:, 0], exact.change[:, 0])[0, 1] > 0.95
    np.testing.assert_array_equal(exact.change, -exact.values)


def test_words_for_labels(named):
    """A label is harmful if flipping it would lower the loss."""
    flips = tracer_of(named).label_influence(named.X_test, named.y_test, reduce="mean")
    table = flips.top(1000)
    assert "loss_change_if_flipped" in table
    np.testing.assert_array_equal(table.effect == "harmful", table.loss_change_if_flipped < 0)
    y = (named.y == "yes").astype(float)
    np.testing.assert_allclose(flips.change[:, 0], flips.values[:, 0] * (1 - 2 * y))
    several = case("multiclass")
    moved = (
        tracer_of(several)
        .label_influence(several.X_test, several.y_test, to="barolo", reduce="mean")
        .top(5)
    )
    np.testing.assert_array_equal(moved.effect == "harmful", moved.loss_change_if_relabelled < 0)
    number = case("rmse default rule")
    raised = tracer_of(number).label_influence(number.X_test, number.y_test, reduce="mean").top(5)
    np.testing.assert_array_equal(raised.effect == "raises", raised.loss_change_if_label_raised > 0)


def test_words_for_candidates(named):
    scores = tracer_of(named).score_candidates(
        named.X_test, named.X_test, named.y_test, reduce="mean"
    )
    table = scores.top(5)
    np.testing.assert_array_equal(table.effect == "harmful", table.loss_change_if_added > 0)
    assert "with it added the loss changes by" in repr(scores)


def test_candidates_are_added_not_removed(named):
    scores = tracer_of(named).score_candidates(
        named.X_test[:2], named.X_test, named.y_test, named.y_test[:2]
    )
    np.testing.assert_array_equal(scores.change, scores.values)
    assert list(scores.train_index) == ["row-380", "row-381"]


def test_groups(named, influence):
    table = influence.by(named.X["kind"])
    assert len(table) == 3 * 20
    line = table[(table.test_row == "row-380") & (table.group == "red")].iloc[0]
    members = (named.X["kind"] == "red").to_numpy()
    assert line.rows == members.sum()
    assert line.total == pytest.approx(influence.values[members, 0].sum())
    assert line["mean"] == pytest.approx(influence.values[members, 0].mean())
    assert line.loss_change_if_removed == pytest.approx(-line.total)
    assert line.effect == ("harmful" if line.total > 0 else "helpful")
    with pytest.raises(lt.InvalidInput, match="groups has shape"):
        influence.by(["a", "b"])


def test_mean_and_frame(influence):
    mean = influence.mean()
    assert mean.shape == (380, 1)
    np.testing.assert_allclose(mean.values[:, 0], influence.values.mean(axis=1))
    frame = influence.to_frame()
    assert frame.loc[("row-7", 7), "row-385"] == influence.values[7, 5]
    assert frame.index.names == ["train_row", "position"]


@pytest.mark.parametrize("kind", ["strings", "numbers", "dates", "pairs", "candidates"])
def test_save_and_load(named, influence, tmp_path, kind):
    n = len(influence.train_index)
    index = {
        "strings": influence.train_index,
        "numbers": np.arange(n) * 3,
        "dates": pd.date_range("2020-01-01", periods=n).to_numpy(),
        "pairs": pd.MultiIndex.from_product([["a"], range(n)]).to_numpy(),
        "candidates": influence.train_index,
    }[kind]
    saved = lt.Influence(
        influence.values,
        index,
        influence.test_index,
        "loss",
        "m",
        "removed",
        np.ones(n),
        True,
        np.zeros(n, bool),
    )
    if kind == "candidates":
        saved = tracer_of(named).score_candidates(named.X_test[:3], named.X_test, named.y_test)
    saved.save(tmp_path / "x.npz")
    loaded = lt.Influence.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(loaded.values, saved.values)
    assert list(loaded.train_index) == list(saved.train_index)
    assert list(loaded.test_index) == list(saved.test_index)
    for name in ("of", "method", "action", "derivative"):
        assert getattr(loaded, name) == getattr(saved, name)
    np.testing.assert_array_equal(loaded.weight, saved.weight)
    np.testing.assert_array_equal(loaded.structure_changed, saved.structure_changed)
    if saved.per_label is None:
        assert loaded.per_label is None
    else:
        assert list(loaded.per_label) == list(saved.per_label) == ["no", "yes"]
        np.testing.assert_array_equal(loaded.per_label["yes"], saved.per_label["yes"])
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_files_that_cannot_be_written_or_read(influence, tmp_path):
    with pytest.raises(lt.LeaftraceError, match=r"cannot write .*choose another folder"):
        influence.save(tmp_path / "no" / "such" / "folder.npz")
    with pytest.raises(lt.LeaftraceError, match="there is no file"):
        lt.Influence.load(tmp_path / "missing.npz")
    influence.save(tmp_path / "x.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:1000])
    with pytest.raises(lt.LeaftraceError, match="not a saved Influence, or not whole"):
        lt.Influence.load(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", meta=np.array('{"format": "something"}'))
    with pytest.raises(lt.LeaftraceError, match="has the format something"):
        lt.Influence.load(tmp_path / "other.npz")


def test_names_that_json_does_not_have(influence, tmp_path):
    names = np.empty(len(influence.train_index), dtype=object)
    names[:] = [
        pd.Timestamp("2020-01-01", tz="Europe/Rome") + pd.Timedelta(days=i)
        for i in range(len(names))
    ]
    names[0] = Decimal("1.50")
    names[1] = datetime.date(2020, 2, 29)
    names[2] = datetime.datetime(2020, 2, 29, 12, 30)
    names[3] = ("a", Decimal("2"))
    replace(influence, train_index=names).save(tmp_path / "x.npz")
    loaded = lt.Influence.load(tmp_path / "x.npz").train_index
    assert loaded.tolist() == names.tolist()
    assert [type(name) for name in loaded] == [type(name) for name in names]


WRONG = {
    "no values": lambda arrays, meta: arrays.pop("values"),
    "values of one axis": lambda arrays, meta: arrays.update(values=arrays["values"][0]),
    "values as text": lambda arrays, meta: arrays.update(values=arrays["values"].astype(str)),
    "fewer rows": lambda arrays, meta: arrays.update(values=arrays["values"][:-1]),
    "fewer queries": lambda arrays, meta: arrays.update(values=arrays["values"][:, :-1]),
    "weights as text": lambda arrays, meta: arrays.update(weight=arrays["weight"].astype(str)),
    "fewer weights": lambda arrays, meta: arrays.update(weight=arrays["weight"][:-1]),
    "no names": lambda arrays, meta: meta.pop("train_index"),
    "names that are a number": lambda arrays, meta: meta.update(train_index=3),
    "a name of no known type": lambda arrays, meta: meta["train_index"].append(
        {"type": "open", "text": "x"}
    ),
    "no action": lambda arrays, meta: meta.pop("action"),
    "an unknown action": lambda arrays, meta: meta.update(action="doubled"),
    "derivative as text": lambda arrays, meta: meta.update(derivative="yes"),
    "a query that is a list": lambda arrays, meta: meta.update(of=["loss"]),
    "changes of other rows": lambda arrays, meta: arrays.update(
        structure_changed=np.zeros(2, bool)
    ),
    "labels without names": lambda arrays, meta: arrays.update(per_label=arrays["values"][None]),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_are_well_formed_and_wrong(influence, tmp_path, name):
    influence.save(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    WRONG[name](arrays, meta)
    np.savez(tmp_path / "wrong.npz", meta=np.array(json.dumps(meta)), **arrays)
    with pytest.raises(lt.LeaftraceError, match=r"wrong\.npz' is not a saved Influence"):
        lt.Influence.load(tmp_path / "wrong.npz")


def test_a_failed_save_leaves_the_old_file(influence, tmp_path, monkeypatch):
    influence.save(tmp_path / "x.npz")
    before = (tmp_path / "x.npz").read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(
        lt.LeaftraceError, match=r"cannot write '.*x\.npz': No space left on device; choose"
    ):
        influence.save(tmp_path / "x.npz")
    assert (tmp_path / "x.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_repr(influence):
    text = repr(influence)
    assert "380 training rows on 20 queries of loss" in text
    assert "LeafInfluence(update_set=AllPoints())" in text
    assert "most harmful: row row-" in text
    assert "without it the loss changes by -" in text


def test_without_pandas(influence, monkeypatch):
    """Without pandas, tables are plain columns."""
    real = builtins.__import__

    def no_pandas(name, *args, **kw):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kw)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    table = influence.top(2)
    assert isinstance(table, dict)
    assert len(table["train_row"]) == 40
    assert len(influence.by(["g"] * 380)["group"]) == 20
    assert len(influence.to_frame()["row-381"]) == 380


def test_tracer_repr(named):
    text = repr(tracer_of(named))
    assert "CatBoostClassifier, logistic loss, 30 steps" in text
    assert "fidelity: exact" in text
