"""Groups of training rows and slices of test rows, against pandas, the oracle and real training."""

import pickle
import re
from itertools import islice

import numpy as np
import oracle
import pandas as pd
import pytest
from boosters import frame, numbers
from catboost import Pool
from contract import prepared
from lightgbm import LGBMClassifier
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from soft_program import SoftProgram
from threadpoolctl import threadpool_limits
from xgboost import XGBRegressor

import leaftrace as lt
from leaftrace._actions import groups as module
from leaftrace._actions.groups import group_effects
from leaftrace._data.grouping import bin_edges, groups_of

MODELS = {
    "LightGBM": lambda: LGBMClassifier(
        n_estimators=20, num_leaves=8, min_child_samples=5, verbose=-1, n_jobs=1
    ),
    "scikit-learn": lambda: HistGradientBoostingClassifier(
        max_iter=20, max_leaf_nodes=8, random_state=0
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """Return a model of a weighted table with missing values and a category column."""
    data = frame(n=460)
    weight = np.random.default_rng(0).random(len(data.y)) + 0.5
    with threadpool_limits(1, "openmp"):
        model = MODELS[request.param]().fit(data.X, data.y, sample_weight=weight)
    return data, weight, model, lt.Tracer(model, data.X, data.y, weight, dtype="float64", n_jobs=1)


def member(name, x):
    """Return which values belong to a group, read from the words of its name."""
    if name == "missing":
        return pd.isna(x)
    if m := re.fullmatch(r"\[(.+), (.+)\)", name):
        return (x >= float(m[1])) & (x < float(m[2]))
    sign, edge = re.fullmatch(r"(<|>=) (.+)", name).groups()
    return x < float(edge) if sign == "<" else x >= float(edge)


# ---- which groups there are ----


def test_bins_are_what_their_names_say():
    x = np.append(np.random.default_rng(0).normal(size=1000), [np.nan] * 7)
    groups = groups_of("x", pd.DataFrame({"x": x}), len(x), "groups", bins=4)
    assert len(groups) == 5
    assert groups.names[-1] == "missing"
    for g, name in enumerate(groups.names):
        np.testing.assert_array_equal(groups.code == g, member(name, x))
    assert (
        np.abs(groups.count[:4] - 250).max() <= 10
    )  # edges are short numbers, so bins are not exactly equal
    assert all(len(name) < 20 for name in groups.names)
    assert groups.phrase(0).startswith("x < ")
    assert groups.phrase(1).startswith("x in [")
    assert groups.phrase(4) == "x is missing"


def test_bins_of_skewed_and_whole_numbers():
    gain = np.r_[np.zeros(920), np.arange(1, 81) * 100]  # a value that most rows have is a group
    groups = groups_of("gain", pd.DataFrame({"gain": gain}), 1000, "groups")
    assert list(groups.names) == ["< 100", ">= 100"]
    assert list(groups.count) == [920, 80]
    age = np.repeat(np.arange(20, 70), 4)
    groups = groups_of("age", pd.DataFrame({"age": age}), 200, "groups", bins=5)
    assert list(groups.names) == ["< 30", "[30, 40)", "[40, 50)", "[50, 60)", ">= 60"]
    close = 1e9 + np.arange(40) / 8  # names differ even where numbers are close
    assert len(set(groups_of("t", pd.DataFrame({"t": close}), 40, "groups").names)) == 5
    few = groups_of("few", pd.DataFrame({"few": [3, 1, 3, 2]}), 4, "groups")
    assert few.names.tolist() == [1, 2, 3]
    assert few.code.tolist() == [2, 0, 2, 1]
    assert bin_edges(np.array(["a", "b"] * 20), 5) is None


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", "a", None, "b"], ["a", "b", "missing"]),
        ([2.0, np.nan, 1.0, 2.0], [1.0, 2.0, "missing"]),
        (pd.Series([2, None, 1, 2], dtype="Int64"), [1, 2, "missing"]),
        (pd.Categorical(["x", None, "y", "x"]), ["x", "y", "missing"]),
        (np.array([1, "a", 2, "a"], dtype=object), [1, 2, "a"]),
        ([True, False, True, True], [False, True]),
        (pd.Series([True, None, False, True], dtype="boolean"), [False, True, "missing"]),
    ],
)
def test_labels(labels, names):
    groups = groups_of(labels, None, 4, "groups")
    assert groups.names.tolist() == names
    found = [groups.names[c] for c in groups.code]
    assert found == ["missing" if pd.isna(v) else v for v in pd.Series(labels).astype(object)]


def test_tables_without_names():
    X = np.arange(60.0).reshape(20, 3)
    for table in (X, csr_matrix(X), coo_matrix(X), X.tolist()):
        groups = groups_of(1, table, 20, "groups", bins=2)
        np.testing.assert_array_equal(groups.code, (X[:, 1] >= 31).astype(int))
    arrow = pytest.importorskip("pyarrow").table({"a": X[:, 0], "b": [None, "x"] * 10})
    assert groups_of("b", arrow, 20, "groups").names.tolist() == ["x", "missing"]


def test_training_and_test_rows_have_the_same_bins():
    train = pd.DataFrame({"x": np.arange(100.0)})
    test = pd.DataFrame({"x": [5.0, 5.0, 99.0, np.nan]})
    names = groups_of("x", train, 100, "groups").names
    slices = groups_of("x", test, 4, "test_groups", like=train)
    assert slices.names.tolist() == [names[0], names[-1], "missing"]
    assert slices.count.tolist() == [2, 1, 1]
    other = groups_of(
        "x", train, 100, "test_groups", like=train.rename(columns={"x": "z"})
    )  # its own bins then
    np.testing.assert_array_equal(other.names, names)


# ---- totals of influence ----


def by_pandas(influence, groups, slices):
    """Return {(slice, group): (total, mean, change)}: sums over rows of means over test rows."""
    table = pd.DataFrame(influence.values).T.groupby(np.asarray(slices), dropna=False).mean().T
    change = pd.DataFrame(influence.change).T.groupby(np.asarray(slices), dropna=False).mean().T
    grouped = [t.groupby(np.asarray(groups), dropna=False) for t in (table, change)]
    return grouped[0].sum(), grouped[0].mean(), grouped[1].sum()


def test_matrix_of_groups_and_slices(fitted):
    data, _, _, tracer = fitted
    influence = tracer.influence(data.X_test, data.y_test)
    found = influence.by("kind", test_groups="kind")
    assert list(found.columns) == ["slice", "test_rows", "group", "rows", "effect", "total", "mean",
                                   "loss_change_if_removed", "change_is"]  # fmt: skip
    total, mean, change = by_pandas(
        influence, data.X["kind"].astype(str), data.X_test["kind"].astype(str)
    )
    assert len(found) == total.size == 9
    for line in found.to_dict("records"):
        at = line["group"], line["slice"]
        assert line["total"] == pytest.approx(total.loc[at], rel=1e-9)
        assert line["mean"] == pytest.approx(mean.loc[at], rel=1e-9)
        assert line["loss_change_if_removed"] == pytest.approx(change.loc[at], rel=1e-9)
        assert line["rows"] == (data.X["kind"] == line["group"]).sum()
        assert line["test_rows"] == (data.X_test["kind"] == line["slice"]).sum()
        assert line["effect"] == ("harmful" if line["total"] > 0 else "helpful")
    labels = influence.by(data.X["kind"], test_groups=data.X_test["kind"].tolist())
    pd.testing.assert_frame_equal(labels, found)
    # A slice equals `reduce` over its test rows alone.
    red = (data.X_test["kind"] == "red").to_numpy()
    alone = tracer.influence(data.X_test[red], data.y_test[red], reduce="mean").by("kind")
    np.testing.assert_allclose(alone.total, found[found.slice == "red"].total, rtol=1e-9)


def test_groups_by_a_column_of_numbers(fitted):
    data, _, _, tracer = fitted
    influence = tracer.influence(data.X_test, data.y_test, reduce="mean")
    table = influence.by("a", bins=3)
    assert len(table) == 4
    for line in table.itertuples():
        inside = member(line.group, data.X["a"].to_numpy())
        assert line.rows == inside.sum() > 0
        assert line.total == pytest.approx(influence.values[inside, 0].sum())
    assert table.rows.sum() == len(data.y)


def test_groups_of_other_results(fitted):
    data, _, _, tracer = fitted
    rows = [7, 3, 50, 8]
    part = tracer.influence(data.X_test, data.y_test, reduce="mean", rows=rows)
    table = part.by("kind")
    kinds = data.X["kind"].iloc[rows].astype(str).to_numpy()
    assert table.group.tolist() == sorted(set(kinds))
    assert table.total.tolist() == pytest.approx(
        [part.values[kinds == k, 0].sum() for k in table.group]
    )
    flips = tracer.label_influence(data.X_test, data.y_test, reduce="mean").by("kind")
    assert "loss_change_if_flipped" in flips
    assert flips.rows.sum() == len(data.y)
    new = tracer.score_candidates(
        data.X_test, data.X_test, data.y_test, data.y_test, reduce="mean"
    ).by("kind")
    assert new.rows.sum() == len(data.y_test)


def test_what_files_and_pickles_do_not_keep(fitted, tmp_path):
    data, _, _, tracer = fitted
    influence = tracer.influence(data.X_test, data.y_test)
    influence.save(tmp_path / "a.npz")
    for again in (lt.Influence.load(tmp_path / "a.npz"), pickle.loads(pickle.dumps(influence))):
        with pytest.raises(
            lt.InvalidInput, match="does not know its table; pass a label for each row"
        ):
            again.by("kind")
        pd.testing.assert_frame_equal(again.by(data.X["kind"]), influence.by("kind"))
    assert len(pickle.dumps(influence)) < 1.5 * influence.values.nbytes + 50_000


def test_errors_of_by(fitted):
    data, _, _, tracer = fitted
    influence = tracer.influence(data.X_test, data.y_test)
    with pytest.raises(
        lt.InvalidInput, match="groups names the column 'age', but the columns are 'a', 'b', 'c'"
    ):
        influence.by("age")
    with pytest.raises(lt.InvalidInput, match="test_groups names the column 'age'"):
        influence.by("kind", test_groups="age")
    with pytest.raises(lt.InvalidInput, match=r"test_groups has shape \(2,\); expected \(20,\)"):
        influence.by("kind", test_groups=["x", "y"])
    with pytest.raises(lt.InvalidInput, match="2 or more"):
        influence.by("a", bins=1)
    for one in (influence.mean(), tracer.influence(data.X_test, data.y_test, reduce="mean")):
        with pytest.raises(lt.InvalidInput, match="without reduce="):
            one.by("kind", test_groups="kind")


# ---- effects of leaving groups out ----

GROUP_CASES = (
    "CatBoost: logloss, weights, class weights",
    "CatBoost: categories by target statistics, weights",
    "XGBoost: scale_pos_weight, weights",
    "XGBoost: XGBClassifier defaults, multiclass",
    "LightGBM: regression, weights, l1, l2, max_delta_step",
    "scikit-learn: HistGradientBoosting, Poisson, weights",
    "scikit-learn: HistGradientBoosting, quantile, weights",
)


@pytest.mark.parametrize("name", GROUP_CASES)
def test_refits_are_the_oracles(name):
    """Leave out each group and compare the loss of two slices.

    Leaves without derivatives have no predicted effect."""
    case, tracer, structure, test_steps = prepared(name)
    labels = np.arange(len(case.w)) % 3
    slices = np.arange(len(case.data.y_test)) < 7
    found = group_effects(tracer, labels, case.data.X_test, case.data.y_test, slices)
    fits = {None: oracle.refit(structure, case.data.codes, case.w)}
    for g in range(3):
        keep = labels != g
        fits[g] = oracle.refit(structure.rows(keep), case.data.codes[keep], case.w[keep])
    losses = {
        g: structure.loss_of(oracle.predict(structure, fit, test_steps), case.data.test_codes)
        for g, fit in fits.items()
    }
    influence = tracer.influence(case.data.X_test, case.data.y_test) if case.smooth else None
    for line in found.table.itertuples():
        part = slices == line.slice
        before = losses[None][part].mean()
        after = losses[line.group][part].mean()
        slope = 1.0
        if name.startswith("LightGBM"):  # squared errors are shown as their root
            before = np.sqrt(2 * before)
            after = np.sqrt(2 * after)
            slope = 1 / before
        expected = after - before
        assert line.before == pytest.approx(before, rel=1e-5)
        assert line.refitted == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert np.isnan(line.retrained)
        assert line.effect == ("harmful" if line.refitted < 0 else "helpful")
        if influence is None:
            assert np.isnan(line.predicted)
        else:
            first = influence.change[labels == line.group][:, part].sum(axis=0).mean()
            assert line.predicted == pytest.approx(slope * first, rel=1e-5)
    if influence is None:
        with pytest.raises(lt.UnsupportedModel, match="refit"):
            group_effects(tracer, labels, case.data.X_test, case.data.y_test, slices, refit=False)


def test_a_path_adds_the_slopes_of_the_soft_program_to_the_refit():
    """The splits' part is the integral, by the midpoint rule, of soft minus fixed slopes of the losses."""
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(50, 3)) * 3) / 3
    y = X[:, 0] + X[:, 1] ** 2 + rng.normal(size=50) * 0.3
    w = rng.uniform(0.5, 1.5, 50)
    model = XGBRegressor(n_estimators=3, max_depth=2, base_score=0.5, min_child_weight=0, n_jobs=1)
    tracer = lt.Tracer(model.fit(X, y, sample_weight=w), X, y, w, dtype="float64")
    groups = (X[:, 0] > 0).astype(int)
    slices = np.arange(8) % 2
    found = group_effects(tracer, groups, X[:8], y[:8], slices, path=2)

    def losses(scores):
        loss = (scores[:, 0] - y[:8]) ** 2 / 2
        return np.array([loss[slices == s].mean() for s in (0, 1)])

    def slopes(temperature, at, move):
        program = SoftProgram(tracer, X[:8], temperature, at, whole_leaves=True)
        return (losses(program.scores(at - move)) - losses(program.scores(at + move))) / 2e-5

    def splits_part(g, share):
        at = np.where(groups == g, 1 - share, 1) * w
        move = 1e-5 * w * (groups == g)
        return slopes(1.0, at, move) - slopes(1e-6, at, move)  # cold choices do not give way

    expected = [
        found.refitted[g] + (splits_part(g, 0.25) + splits_part(g, 0.75)) / 2 for g in (0, 1)
    ]
    # Differences of the soft program are exact to about 1e-7.
    np.testing.assert_allclose(found.path_change, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found.path_change - found.refitted).max() > 0.02 * np.abs(found.refitted).max()
    np.testing.assert_array_equal(found.change, found.path_change)
    assert "path_change" in found.table
    alone = group_effects(tracer, groups, X[:8], y[:8], slices, refit=False, path=2)
    np.testing.assert_allclose(alone.path_change, found.path_change, rtol=1e-12)
    plain = group_effects(tracer, groups, X[:8], y[:8], slices)
    assert np.isnan(plain.path_change).all()
    assert "path_change" not in plain.table


def test_paths_that_are_refused(fitted):
    data, _, _, tracer = fitted
    for path in (-1, 1.5, True, "4"):
        with pytest.raises(lt.InvalidInput, match="a number of steps"):
            group_effects(tracer, "kind", data.X_test, data.y_test, path=path)
    X = np.arange(60.0)[:, None]
    forest = RandomForestRegressor(n_estimators=2, max_depth=2).fit(X, X[:, 0], np.arange(60) + 1.0)
    drawn = lt.Tracer(forest, X, X[:, 0], np.arange(60) + 1.0)
    with pytest.raises(lt.UnsupportedModel, match="chances of rows being drawn; use path=0"):
        group_effects(drawn, np.arange(60) % 3, X[:5], X[:5, 0], path=1)


def test_retrained_is_the_model_without_the_group(fitted):
    data, weight, model, tracer = fitted
    found = group_effects(
        tracer, "kind", data.X_test, data.y_test, "kind", refit=False, retrain=True
    )
    assert found.table.refitted.isna().all()
    y = (data.y_test == model.classes_[1]).astype(int)

    def losses(m):
        p = m.predict_proba(data.X_test)[:, 1]
        return -np.where(y == 1, np.log(p), np.log(1 - p))

    change = {}
    with threadpool_limits(1, "openmp"):
        for kind in ("red", "green", "blue"):
            keep = (data.X["kind"] != kind).to_numpy()
            again = type(model)(**model.get_params()).fit(
                data.X[keep], data.y[keep], sample_weight=weight[keep]
            )
            change[kind] = losses(again) - losses(model)
    for line in found.table.itertuples():
        part = (data.X_test["kind"] == line.slice).to_numpy()
        assert line.retrained == pytest.approx(change[line.group][part].mean(), abs=1e-7)


def test_numbers_of_a_regression_and_words():
    data = numbers()
    X, X_test = (
        pd.DataFrame(x, columns=[f"f{i}" for i in range(10)]) for x in (data.X, data.X_test)
    )
    tracer = lt.Tracer(
        XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1).fit(X, data.y), X, data.y
    )
    found = group_effects(tracer, "f2", X_test, data.y_test, bins=3)
    assert found.table.slice.tolist() == ["all"] * 3
    assert (np.diff(np.abs(found.table.refitted)) <= 0).all()  # what matters most comes first
    best = found.table.loc[found.table.refitted.idxmin()]
    if best.refitted < 0:
        assert f"f2 {best.group}" in found.advice.replace(" in ", " ")
        assert "confirm it on others" in found.advice
    else:
        assert "none to leave out" in found.advice
    assert "by f2" in repr(found)
    assert (
        "ask for refit=True" in group_effects(tracer, "f2", X_test, data.y_test, refit=False).advice
    )
    assert "ask for refit=True" not in found.advice
    assert "<table" in found._repr_html_()


def test_an_interrupt_keeps_what_is_finished(fitted, monkeypatch):
    data, _, _, tracer = fitted
    whole = group_effects(tracer, "a", data.X_test, data.y_test)
    real = module.losses_without

    def stops(*args):
        yield from islice(real(*args), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "losses_without", stops)
    part = group_effects(tracer, "a", data.X_test, data.y_test, retrain=True)
    first = np.argsort(-np.abs(whole.predicted[:, 0]))[
        :2
    ]  # groups with the largest refitted effect
    assert np.flatnonzero(np.isfinite(part.refitted[:, 0])).tolist() == sorted(first)
    np.testing.assert_array_equal(part.refitted[first], whole.refitted[first])
    assert np.isnan(part.retrained).all()
    assert np.isfinite(part.predicted).all()
    assert part.advice.startswith(
        f"Interrupted: 2 of {len(whole.groups)} groups were refitted, 0 retrained."
    )


def test_no_matrix_of_rows_by_test_rows(fitted, monkeypatch):
    data, _, _, tracer = fitted
    influence = lt.Tracer.influence
    shapes = []

    def watched(self, *args, **more):
        result = influence(self, *args, **more)
        shapes.append(result.shape)
        return result

    monkeypatch.setattr(lt.Tracer, "influence", watched)
    group_effects(tracer, "kind", data.X_test, data.y_test, "kind", refit=False)
    assert shapes == [(len(data.y), 1)] * 3


def test_errors_of_group_effects(fitted):
    data, _, model, tracer = fitted
    X = data.X_test
    y = data.y_test
    with pytest.raises(lt.InvalidInput, match=r"pass a leaftrace\.Tracer"):
        group_effects(model, "kind", X, y)
    with pytest.raises(lt.InvalidInput, match="groups names the column 'age'"):
        group_effects(tracer, "age", X, y)
    with pytest.raises(lt.InvalidInput, match="all training rows are in the group 'x'"):
        group_effects(tracer, ["x"] * len(data.y), X, y)
    with pytest.raises(lt.InvalidInput, match="y_test has 3 values but X has 20 rows"):
        group_effects(tracer, "kind", X, y[:3])
    with pytest.raises(lt.InvalidInput, match="no rows"):
        group_effects(tracer, "kind", X[:0], y[:0])
    with pytest.raises(
        lt.InvalidInput, match="all training rows of the class 'no' are in the group 'no'"
    ):
        group_effects(tracer, data.y, X, y)
    assert np.isfinite(group_effects(tracer, data.y, X, y, refit=False).predicted).all()
    case, pooled, *_ = prepared("CatBoost: logloss, weights, class weights")
    with pytest.raises(lt.InvalidInput, match="a Pool has no columns; pass a label for each row"):
        group_effects(
            pooled, np.arange(len(case.w)) % 2, Pool(case.data.X_test), case.data.y_test, "a"
        )
