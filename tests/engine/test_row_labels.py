"""Rows by position, mask, table and label: a label is never taken for a position."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor

import leaftrace as lt

N = 120
OPTIONS = {"n_estimators": 6, "min_child_samples": 5, "verbose": -1}


def make_rows(index):
    """Return rows whose labels are numbers, but not their positions; and labels of the model."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"], index=index)
    y = 2 * X["a"] + X["b"] + rng.normal(size=N)
    return X, y


@pytest.fixture(scope="module")
def shuffled():
    """Return X, y and a tracer; the labels of the rows are their positions in another order."""
    X, y = make_rows(np.random.default_rng(1).permutation(N))
    model = LGBMRegressor(**OPTIONS).fit(X, y)
    return X, y, lt.Tracer(model, X, y)


def scores_without(shuffled, without):
    X, _, tracer = shuffled
    return tracer.refit(without=without).scores(X)


def test_top_names_both(shuffled):
    X, y, tracer = shuffled
    influence = tracer.influence(X[5:8], y[5:8], rows=[40, 3, 17])
    for top in (
        influence.top(3),
        tracer.influence(X[5:8], y[5:8]).top(4),
        tracer.top(X[5:8], y[5:8], 4),
    ):
        assert (X.index[top["position"]] == top["train_row"]).all()
        assert (X[5:8].index[top["test_position"]] == top["test_row"]).all()
    assert set(influence.top(3)["position"]) == {40, 3, 17}
    frame = influence.to_frame()
    assert frame.index.get_level_values("position").tolist() == [40, 3, 17]
    assert frame.index.get_level_values("train_row").tolist() == X.index[[40, 3, 17]].tolist()


def test_other_tables_name_both(shuffled):
    X, y, tracer = shuffled
    noise = lt.label_noise(tracer)
    tables = [noise.table, noise.issues, noise.scores, tracer.neighbours(X[:4], 3)]
    tables.append(lt.fix(tracer, X[:1], float(y.iloc[0]) + 2).table)
    for table in tables:
        assert (X.index[table["position"]] == table["train_row"]).all()
    moved = lt.removal_impact(tracer, [3], X[10:40], y[10:40], retrain=False).table
    assert (X[10:40].index[moved["test_position"]] == moved["test_row"]).all()


def test_a_table_stands_for_its_rows(shuffled):
    X, y, tracer = shuffled
    top = tracer.influence(X[:6], y[:6]).top(3)
    some = top[top["effect"] == "harmful"]  # rows come more than once, and the index has gaps
    positions = pd.unique(some["position"])
    expected = scores_without(shuffled, positions.tolist())
    frame = tracer.influence(X[:2], rows=positions, of="prediction").to_frame()
    kinds = [some, pl.DataFrame(some.to_dict("list")), pa.Table.from_pandas(some), frame]
    kinds.append({name: some[name].to_numpy() for name in some})
    for table in kinds:
        np.testing.assert_array_equal(scores_without(shuffled, table), expected)
        found = tracer.influence(X[:2], y[:2], rows=table)
        assert found.train_index.tolist() == X.index[positions].tolist()
    assert not np.allclose(scores_without(shuffled, some["train_row"].to_numpy()), expected)


def test_actions_take_tables(shuffled):
    X, y, tracer = shuffled
    top = tracer.influence(X[:30], y[:30], reduce="mean").top(5)
    impact = lt.removal_impact(tracer, top, X[:30], y[:30], retrain=False)
    assert impact.rows.tolist() == sorted(top["position"])
    by_table = lt.removal_curve(tracer, top, X[40:60], y[40:60], counts=[2, 5])
    by_position = lt.removal_curve(tracer, top["position"], X[40:60], y[40:60], counts=[2, 5])
    np.testing.assert_array_equal(by_table.refitted, by_position.refitted)
    fixed = lt.fix(tracer, X[:1], float(y.iloc[0]) + 2, rows=top, max_rows=5)
    assert set(fixed.rows) <= set(top["position"])


def test_tables_about_other_rows_are_refused(shuffled):
    X, y, tracer = shuffled
    other = top = tracer.influence(X[:2], y[:2]).top(3)
    other = top.assign(train_row=top["train_row"] + 1000)
    with pytest.raises(lt.InvalidInput, match="a table about other rows"):
        tracer.refit(without=other)
    with pytest.raises(lt.InvalidInput, match="columns 'train_row' and 'position'"):
        tracer.refit(without=X[:3])
    new = tracer.score_candidates(X[:5], X[:2], y[:2], y[:5]).top(2)
    assert (X.index[new["position"]] == new["new_row"]).all()
    with pytest.raises(lt.InvalidInput, match="columns 'train_row' and 'position'"):
        tracer.refit(without=new)


def test_labels_are_refused_as_positions(shuffled):
    X, y, tracer = shuffled
    top = tracer.influence(X[:2], y[:2]).top(3)
    with pytest.raises(lt.InvalidInput, match=r"tracer.positions\(labels\)"):
        tracer.refit(without=["a", "b"])
    for labels in (top["train_row"], X.index[:3]):
        with pytest.raises(lt.InvalidInput, match=r"tracer.positions\(labels\)"):
            tracer.refit(without=labels)
        expected = scores_without(shuffled, tracer.positions(labels))
        assert np.isfinite(expected).all()


def test_positions_of_labels(shuffled):
    X, _, tracer = shuffled
    labels = X.index[[7, 3, 90]]
    for asked in (labels, labels.tolist(), labels.to_series(), np.array(labels), tuple(labels)):
        assert tracer.positions(asked).tolist() == [7, 3, 90]
    assert tracer.positions(labels[0]).tolist() == [7]
    with pytest.raises(lt.InvalidInput, match="no training row has the label 777, 888;"):
        tracer.positions([labels[0], 777, 888])


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2026-01-01", periods=N, freq="h"),
        pd.MultiIndex.from_arrays([np.repeat(list("abcd"), N // 4), np.tile(np.arange(N // 4), 4)]),
        pd.Index([f"row {i}" for i in range(N)]),
    ],
    ids=["times", "tuples", "text"],
)
def test_labels_of_other_types(index):
    X, y = make_rows(index)
    tracer = lt.Tracer(LGBMRegressor(**OPTIONS).fit(X, y), X, y)
    assert tracer.positions(index[[5, 2]]).tolist() == [5, 2]
    assert tracer.positions(index[5]).tolist() == [5]
    top = tracer.influence(X[:2], y[:2]).top(3)
    np.testing.assert_array_equal(
        tracer.refit(without=top).scores(X), tracer.refit(without=top["position"]).scores(X)
    )
    mask = pd.Series(np.arange(N) < 4, index=index)[::-1]
    np.testing.assert_array_equal(
        tracer.refit(without=mask).scores(X), tracer.refit(without=[0, 1, 2, 3]).scores(X)
    )


def test_a_mask_goes_by_its_index(shuffled):
    X, _, tracer = shuffled
    mask = X["a"] > 1
    expected = scores_without(shuffled, mask.to_numpy())
    for same in (mask, mask.sort_index(), mask.astype("boolean").sort_index(), mask.tolist()):
        np.testing.assert_array_equal(scores_without(shuffled, same), expected)
    with pytest.raises(lt.InvalidInput, match="without has another index than X_train"):
        tracer.refit(without=mask.reset_index(drop=True).set_axis(range(N, 2 * N)))


def test_columns_for_rows_go_by_their_index(shuffled):
    """Labels, weights, given scores and groups of training and of test rows."""
    X, y, tracer = shuffled
    w = pd.Series(np.linspace(0.5, 2, N), index=X.index)
    given = pd.Series(np.linspace(-1, 1, N), index=X.index)
    model = LGBMRegressor(**OPTIONS).fit(X, y, sample_weight=w, init_score=given)
    assert lt.Tracer(
        model, X, y.sort_index(), w.sort_index(), baseline=given.sort_index()
    ).fidelity.exact
    np.testing.assert_array_equal(
        tracer.refit(y=-y.sort_index(), sample_weight=w.sort_index()).scores(X),
        tracer.refit(y=-y.to_numpy(), sample_weight=w.to_numpy()).scores(X),
    )
    part = slice(10, 40)
    turned = y[part][::-1]
    right = tracer.influence(X[part], y[part].to_numpy())
    np.testing.assert_array_equal(tracer.influence(X[part], turned).values, right.values)
    np.testing.assert_array_equal(
        tracer.refit([]).loss(X[part], turned), tracer.refit([]).loss(X[part], y[part].to_numpy())
    )
    groups = pd.Series(np.where(X["a"] > 0, "high", "low"), index=X.index)
    for a, b in (
        (right.by(groups.sort_index()), right.by(groups.to_numpy())),
        (
            lt.group_effects(tracer, groups.sort_index(), X[part], turned).table,
            lt.group_effects(tracer, groups.to_numpy(), X[part], y[part].to_numpy()).table,
        ),
    ):
        pd.testing.assert_frame_equal(a, b)
    some = tracer.influence(X[part], y[part], rows=np.arange(N)[::-1])
    pd.testing.assert_frame_equal(some.by(groups), some.by(groups.to_numpy()[::-1]))
    gap = lt.goals.SliceLoss((X["a"] > 0)[part][::-1])
    same = lt.goals.SliceLoss((X["a"] > 0)[part].to_numpy())
    np.testing.assert_array_equal(
        tracer.influence(X[part], y[part], of=gap).values,
        tracer.influence(X[part], y[part], of=same).values,
    )


@pytest.mark.parametrize("what", ["y_train", "sample_weight", "baseline"])
def test_columns_of_other_rows_are_refused(shuffled, what):
    X, y, tracer = shuffled
    columns = {"y_train": y, "sample_weight": None, "baseline": None}
    columns[what] = y.abs().set_axis(range(1000, 1000 + N))
    with pytest.raises(lt.InvalidInput, match=f"{what} has another index than X_train"):
        lt.Tracer(tracer.engine.source.model, X, columns.pop("y_train"), **columns)


def test_columns_of_other_test_rows_are_refused(shuffled):
    X, y, tracer = shuffled
    with pytest.raises(lt.InvalidInput, match="y_test has another index than X_test"):
        tracer.influence(X[:5], y[5:10])
    with pytest.raises(lt.InvalidInput, match="y has another index than X"):
        tracer.refit([]).loss(X[:5], y[5:10])
    with pytest.raises(lt.InvalidInput, match="groups has another index"):
        tracer.influence(X[:5], y[:5]).by(y.set_axis(range(1000, 1000 + N)) > 0)


def test_rows_without_labels_have_positions(shuffled):
    """Columns with an index go by position where the rows have none."""
    X, y, _ = shuffled
    model = LGBMRegressor(**OPTIONS).fit(X.to_numpy(), y)
    by_position = lt.Tracer(model, X.to_numpy(), y)
    assert by_position.fidelity.exact
    assert by_position.positions([5, 7]).tolist() == [5, 7]
    mask = y > 0
    np.testing.assert_array_equal(
        by_position.refit(without=mask).scores(X.to_numpy()),
        by_position.refit(without=mask.to_numpy()).scores(X.to_numpy()),
    )


def test_duplicate_labels_are_announced():
    X, y = make_rows(np.repeat(np.arange(N // 2), 2))
    model = LGBMRegressor(**OPTIONS).fit(X, y)
    with pytest.warns(lt.IndexWarning, match=r"60 labels .* such as 0") as seen:
        tracer = lt.Tracer(model, X, y)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert tracer.positions([3, 0]).tolist() == [6, 7, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        top = tracer.influence(X[:2], y[:2]).top(3)
        np.testing.assert_array_equal(
            tracer.refit(without=top).scores(X), tracer.refit(without=top["position"]).scores(X)
        )
    with pytest.raises(lt.InvalidInput, match="another index"):
        lt.Tracer(model, X, y.iloc[::-1])


def test_saved_results_keep_positions(shuffled, tmp_path):
    X, y, tracer = shuffled
    influence = tracer.influence(X[:3], y[:3], rows=[9, 4])
    influence.save(tmp_path / "saved.npz")
    pd.testing.assert_frame_equal(
        lt.Influence.load(tmp_path / "saved.npz").top(2), influence.top(2)
    )


def test_followed_model_keeps_labels(shuffled):
    X, y, tracer = shuffled
    later = tracer.follow(tracer.retrain(without=[0, 50]))
    label = X.index[60]
    assert later.positions([label]).tolist() == [58]
    with pytest.raises(lt.InvalidInput, match="no training row has the label"):
        later.positions([X.index[50]])
    top = later.influence(X[:2], y[:2]).top(3)
    with pytest.raises(lt.InvalidInput, match="a table about other rows"):
        tracer.refit(without=top[top["position"] > 0])


def test_classes_go_by_their_index():
    X, y = make_rows(np.random.default_rng(2).permutation(N))
    label = pd.Series(np.where(y > 0, "yes", "no"), index=X.index)
    model = LGBMClassifier(**OPTIONS).fit(X, label)
    tracer = lt.Tracer(model, X, label.sort_index())
    assert tracer.fidelity.exact
    assert tracer.y_train.tolist() == label.tolist()
