"""Bad input has messages that say what was given, what was expected and what to do."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from catboost import CatBoost, CatBoostClassifier, CatBoostRegressor, Pool
from catboost_models import QUIET, case, tracer_of
from lightgbm import LGBMRegressor
from sklearn.linear_model import LogisticRegression
from xgboost import XGBRegressor

import leaftrace as lt


@pytest.fixture(scope="module")
def c():
    return case("logloss newton 1")


@pytest.fixture(scope="module")
def named():
    return case("categories and missing values")


def says(error, *parts):
    return pytest.raises(error, match=".*".join(re.escape(p) for p in parts) or None)


# ---- the model ----


def test_unfitted_model(c):
    with says(lt.UnsupportedModel, "CatBoostClassifier is not fitted", "call fit()"):
        lt.Tracer(CatBoostClassifier(), c.X, c.y)


def test_unknown_model(c):
    with says(
        lt.UnsupportedModel,
        "cannot read a builtins.dict",
        "CatBoost, XGBoost, LightGBM or scikit-learn",
    ):
        lt.Tracer({"a": "model"}, c.X, c.y)
    with says(lt.UnsupportedModel, "LogisticRegression", "HistGradientBoosting"):
        lt.Tracer(LogisticRegression(), c.X, c.y)


def test_unsupported_loss():
    c = case("rmse default rule")
    rows = Pool(c.X, c.y, group_id=np.arange(len(c.y)) // 20)
    model = CatBoost({**QUIET, "iterations": 3, "loss_function": "GroupQuantile"}).fit(rows)
    with says(
        lt.UnsupportedModel,
        "the loss 'GroupQuantile' is not supported",
        "RMSE, Logloss, CrossEntropy",
    ):
        lt.Tracer(model, c.X, c.y)


@pytest.mark.parametrize(
    ("kw", "words"),
    [
        (
            {
                "langevin": True,
                "leaf_estimation_method": "Gradient",
                "leaf_estimation_iterations": 2,
            },
            "langevin",
        ),
    ],
)
def test_settings_that_cannot_be_replayed(kw, words):
    c = case("rmse default rule")
    model = CatBoostRegressor(**QUIET, iterations=3, **kw).fit(c.X, c.y)
    with says(lt.UnsupportedModel, words, "train with"):
        lt.Tracer(model, c.X, c.y)


def test_constraints_that_constrain_nothing():
    c = case("rmse default rule")
    model = CatBoostRegressor(**QUIET, iterations=3, monotone_constraints=[0] * 10).fit(c.X, c.y)
    assert lt.Tracer(model, c.X, c.y).fidelity.exact


@pytest.mark.parametrize("content", [b"CBM1 and nothing else", b"{}", b"{ not json"])
def test_broken_model_file(c, tmp_path, content):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with says(lt.UnsupportedModel, "model.bin", "is the file whole?"):
        lt.Tracer(path, c.X, c.y)


def test_other_files(c, tmp_path):
    with says(lt.UnsupportedModel, "there is no model file"):
        lt.Tracer(tmp_path / "missing.cbm", c.X, c.y)
    (tmp_path / "notes.txt").write_text("hello")
    with says(lt.UnsupportedModel, "not a model file leaftrace knows"):
        lt.Tracer(tmp_path / "notes.txt", c.X, c.y)


# ---- training data that are not the model's ----


def test_shuffled_labels_are_caught(c):
    with says(
        lt.FidelityError, "labels in another order than the rows", "step 1", 'fidelity="warn"'
    ):
        lt.Tracer(c.model, c.X, np.random.default_rng(0).permutation(c.y))


def test_other_rows_are_caught(c):
    n = len(c.y)
    with says(lt.FidelityError, f"was trained on {n} rows, here are {n - 5}", "step 1"):
        lt.Tracer(c.model, c.X[::-1][5:], c.y[::-1][5:])
    others = np.r_[np.full(5, 9), np.arange(5, n)]  # as many rows, one of them instead of five
    with says(lt.FidelityError, "fall into other leaves than in training", "other rows", "step 1"):
        lt.Tracer(c.model, c.X[others], c.y[others])


def test_forgotten_weights_are_caught():
    for name in ("logloss weights", "rmse weights", "multiclass weights", "poisson"):
        c = case(name)
        with says(lt.FidelityError):
            lt.Tracer(c.model, c.X, c.y)


def test_other_rows_and_labels_of_several_classes_are_caught():
    c = case("multiclass newton 3")
    with says(lt.FidelityError, "step 1"):
        lt.Tracer(c.model, c.X, np.roll(c.y, 1))
    n = len(c.y)
    with says(lt.FidelityError, f"was trained on {n} rows, here are {n - 5}"):
        lt.Tracer(c.model, c.X[5:], c.y[5:])


def test_forgotten_baseline_is_caught():
    c = case("logloss baseline")
    with says(lt.FidelityError, "baseline"):
        lt.Tracer(c.model, c.X, c.y)


def test_one_wrong_label_is_caught(c):
    y = c.y.copy()
    y[17] = 1 - y[17]
    with says(lt.FidelityError, "step 1"):
        lt.Tracer(c.model, c.X, y)


def test_warn_and_ignore_go_on(c):
    y = np.roll(c.y, 1)
    with pytest.warns(lt.FidelityWarning, match="differs from the model") as seen:
        tracer = lt.Tracer(c.model, c.X, y, fidelity="warn")
    assert seen[0].filename == __file__
    assert not tracer.fidelity.exact
    assert tracer.fidelity.max_error > 1e-3
    assert not lt.Tracer(c.model, c.X, y, fidelity="ignore").fidelity.exact


def test_a_failed_search_does_not_hang():
    """With wrong labels, the search for backtracking gives up instead of trying 2^10 paths a tree."""
    c = case("logloss newton 10 backtracking")
    with says(lt.FidelityError):
        lt.Tracer(c.model, c.X, np.roll(c.y, 3))


# ---- tables ----


def test_other_number_of_columns(c):
    with says(lt.InvalidInput, "X has 29 columns", "trained on 30"):
        lt.Tracer(c.model, c.X[:, 1:], c.y)
    with says(lt.InvalidInput, "X has 31 columns", "trained on 30"):
        tracer_of(c).influence(np.c_[c.X_test, c.X_test[:, 0]], c.y_test)
    with says(lt.InvalidInput, "X has shape (30,)", "a table of rows and 30 columns"):
        tracer_of(c).influence(c.X_test[0], c.y_test[:1])


def test_other_column_names(named):
    with says(
        lt.InvalidInput, "lacks the column(s) 'a'", "has 'alpha' instead", "names used in training"
    ):
        lt.Tracer(named.model, named.X.rename(columns={"a": "alpha"}), named.y)


def test_column_order_goes_by_name(named):
    mixed = named.X[["kind", "d", "a", "c", "b"]]
    tracer = lt.Tracer(named.model, mixed, named.y)
    expected = tracer_of(named, dtype="float32").influence(named.X_test, named.y_test).values
    np.testing.assert_array_equal(tracer.influence(named.X_test, named.y_test).values, expected)
    extra = named.X_test.assign(more=1)
    np.testing.assert_array_equal(tracer.influence(extra, named.y_test).values, expected)


def test_columns_that_share_a_name(named, c):
    """Which of them is meant cannot be told, so neither is taken."""
    twice = pd.concat([-named.X_test[["a"]], named.X_test], axis=1)
    with says(lt.InvalidInput, "several columns with the name 'a'"):
        tracer_of(named).influence(twice, named.y_test)
    model = XGBRegressor(n_estimators=2, n_jobs=1).fit(c.X[:, :2], c.X[:, 0])
    tracer = lt.Tracer(model, c.X[:, :2], c.X[:, 0])
    twice = pd.DataFrame(c.X_test[:, :2], columns=["a", "a"])
    arrow = pa.Table.from_arrays(list(c.X_test[:, :2].T), names=["a", "a"])
    for table in (twice, arrow):
        with says(lt.InvalidInput, "several columns with the name 'a'"):
            tracer.influence(table, c.X_test[:, 0])


@pytest.mark.parametrize("table", [None, 3.0, object()])
def test_what_is_no_table(c, table):
    model = XGBRegressor(n_estimators=2, n_jobs=1).fit(c.X, c.X[:, 0])
    tracer = lt.Tracer(model, c.X, c.X[:, 0])
    for ask in (lambda: tracer.influence(table, [0.0]), lambda: tracer.refit(added=(table, [0.0]))):
        with says(lt.InvalidInput, f"X is a {type(table).__name__}", "a table of rows"):
            ask()


def test_complex_numbers(c):
    model = LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(c.X, c.X[:, 0])
    tracer = lt.Tracer(model, c.X, c.X[:, 0])
    for X, y in ((c.X[:2] + 0j, [0.0, 0.0]), (c.X[:2], [0j, 1j])):
        with says(lt.InvalidInput, "has dtype complex128", "expected real numbers"):
            tracer.influence(X, y)


def test_labels_of_another_length(c):
    with says(lt.InvalidInput, "y_train has 3 values but X has 549 rows"):
        lt.Tracer(c.model, c.X, c.y[:3])
    with says(lt.InvalidInput, "y_test has 3 values but X has 20 rows"):
        tracer_of(c).influence(c.X_test, c.y_test[:3])
    with says(lt.InvalidInput, "y_train has shape (549, 2)"):
        lt.Tracer(c.model, c.X, np.c_[c.y, c.y])
    with says(lt.InvalidInput, "y_train is missing"):
        lt.Tracer(c.model, c.X)


def test_missing_values_in_labels_and_weights(c):
    y = c.y.copy()
    y[7] = np.nan
    with says(lt.InvalidInput, "y_train has 1 missing value(s), the first at row 7"):
        lt.Tracer(c.model, c.X, y)
    w = np.ones(len(c.y))
    w[[3, 4]] = np.nan
    with says(lt.InvalidInput, "sample_weight has 2 missing value(s), the first at row 3"):
        lt.Tracer(c.model, c.X, c.y, w)
    named = case("categories and missing values")
    labels = pd.Series(named.y, named.X.index, dtype=object).mask(np.arange(len(named.y)) == 2)
    with says(lt.InvalidInput, "y_train has 1 missing value(s), the first at row 2"):
        lt.Tracer(named.model, named.X, labels)


def test_bad_weights(c):
    w = np.ones(len(c.y))
    w[11] = -0.5
    with says(lt.InvalidInput, "1 negative value(s), the first -0.5 at row 11", "zero or more"):
        lt.Tracer(c.model, c.X, c.y, w)
    with says(lt.InvalidInput, "sample_weight has infinite values"):
        lt.Tracer(c.model, c.X, c.y, np.full(len(c.y), np.inf))
    with says(lt.InvalidInput, "sample_weight is zero for every row"):
        lt.Tracer(c.model, c.X, c.y, np.zeros(len(c.y)))
    with says(lt.InvalidInput, "sample_weight has dtype", "expected numbers"):
        lt.Tracer(c.model, c.X, c.y, ["a"] * len(c.y))
    for extreme in (1e-320, 1e300):
        w[11] = extreme
        with says(
            lt.InvalidInput, "1 value(s) that are too large or too small", f"{extreme:g} at row 11"
        ):
            lt.Tracer(c.model, c.X, c.y, w)


def test_labels_the_model_does_not_know(c, named):
    with says(lt.InvalidInput, "y_test has label(s) 2", "its classes are 0"):
        tracer_of(c).influence(c.X_test[:2], [0, 2])
    with says(lt.InvalidInput, "y_test has label(s) maybe", "its classes are no, yes"):
        tracer_of(named).influence(named.X_test[:2], ["yes", "maybe"])


def test_labels_may_come_in_other_types(c, named):
    expected = tracer_of(c).influence(c.X_test, c.y_test).values
    for y in (
        c.y_test.astype(int),
        c.y_test.astype(bool),
        c.y_test.astype(int).astype(str),
        c.y_test.astype(object),
    ):
        np.testing.assert_array_equal(tracer_of(c).influence(c.X_test, y).values, expected)
    with says(lt.InvalidInput, "y_test has label(s)", "no", "its classes are 0"):
        tracer_of(c).influence(c.X_test[:2], np.array([1, "no"], dtype=object))
    categories = pd.Series(named.y_test, named.X_test.index, dtype="category")
    assert tracer_of(named).influence(named.X_test, categories).shape == (380, 20)


@pytest.mark.parametrize(
    ("name", "label", "words"),
    [("poisson", -1.0, "zero or more"), ("cross entropy", 1.5, "0 to 1")],
)
def test_labels_outside_the_range_of_the_loss(name, label, words):
    c = case(name)
    with says(lt.InvalidInput, "y_test goes from", words):
        tracer_of(c).influence(c.X_test[:2], [0.5, label])


def test_empty_test_set(c):
    with says(lt.InvalidInput, "X_test has no rows", "at least one"):
        tracer_of(c).influence(c.X_test[:0], c.y_test[:0])


def test_wrong_baseline():
    c = case("logloss baseline")
    with says(lt.InvalidInput, "baseline has shape (3,) for"):
        lt.Tracer(c.model, c.X, c.y, baseline=c.baseline[:3])


# ---- questions ----


def test_rows_out_of_range(c):
    tracer = tracer_of(c)
    with says(lt.InvalidInput, "rows has 549", "from 0 to 548", "counted from 0"):
        tracer.influence(c.X_test, c.y_test, rows=[0, 549])
    with says(lt.InvalidInput, "rows has -1"):
        tracer.influence(c.X_test, c.y_test, rows=[-1])
    with says(lt.InvalidInput, "rows must be positions"):
        tracer.influence(c.X_test, c.y_test, rows=[0.5])
    with says(lt.InvalidInput, "rows is a mask of shape (3,)"):
        tracer.influence(c.X_test, c.y_test, rows=np.array([True, False, True]))
    with says(lt.InvalidInput, "without has 1000"):
        tracer.refit(without=[1000])
    with says(lt.InvalidInput, "leaves no training row"):
        tracer.refit(without=np.arange(549))
    with says(lt.InvalidInput, "leaves no training row"):
        tracer.retrain(without=np.arange(549))


def test_unknown_method(c):
    with says(
        lt.InvalidInput,
        "method is 'LeafInfluence'",
        "LeafRefit(), Retrain() or one of lt.baselines",
    ):
        tracer_of(c).influence(c.X_test, c.y_test, method="LeafInfluence")
    with says(lt.InvalidInput, "update set 'TopKLeaves'", "TopKLeaves(k)"):
        lt.LeafInfluence("TopKLeaves")
    with says(lt.InvalidInput, "top() streams"):
        tracer_of(c).top(c.X_test, c.y_test, method=lt.LeafRefit())


def test_bad_update_sets():
    for k in (0, -3, 1.5):
        with says(lt.InvalidInput, f"k={k}", "1 or more"):
            lt.TopKLeaves(k)
    with says(lt.InvalidInput, "sample=0"):
        lt.TopKLeaves(1, sample=0)
    with says(lt.InvalidInput, "accumulate='some'", "'all' or 'updated'"):
        lt.TopKLeaves(1, accumulate="some")


def test_bad_queries(c):
    tracer = tracer_of(c)
    with says(lt.InvalidInput, "of='loss' needs the labels"):
        tracer.influence(c.X_test)
    with says(lt.InvalidInput, "of is 'probability'", "'loss', 'prediction'"):
        tracer.influence(c.X_test, of="probability")
    with says(lt.InvalidInput, "reduce is 'max'"):
        tracer.influence(c.X_test, c.y_test, reduce="max")
    with says(lt.InvalidInput, "the array given as of= has shape (3,)", "shape (20,)"):
        tracer.influence(c.X_test, of=np.ones(3))
    with says(lt.InvalidInput, "the function given as of= returned shape ()"):
        tracer.influence(c.X_test, of=lambda F: F.sum())
    with says(lt.InvalidInput, "missing or infinite"):
        tracer.influence(c.X_test, of=np.full(20, np.nan))
    with says(lt.InvalidInput, "output is 1", "outputs 0 to 0"):
        tracer.influence(c.X_test, of="prediction", output=1)
    with says(lt.InvalidInput, "output= says which prediction"):
        tracer.influence(c.X_test, c.y_test, output=0)
    with says(lt.InvalidInput, "k is 0"):
        tracer.top(c.X_test, c.y_test, 0)
    with says(lt.InvalidInput, "effect is 'bad'", "'harmful', 'helpful'"):
        tracer.influence(c.X_test, c.y_test).top(3, effect="bad")
    with says(lt.InvalidInput, "to= names the class"):
        tracer.label_influence(c.X_test, c.y_test, to=1)
    with says(lt.InvalidInput, "say with to="):
        m = case("multiclass")
        tracer_of(m).label_influence(m.X_test, m.y_test)
    with says(lt.InvalidInput, "no class probabilities"):
        r = case("rmse default rule")
        tracer_of(r).refit([]).predict_proba(r.X_test)


def test_bad_tracer_arguments(c):
    for kw, words in (
        ({"fidelity": "maybe"}, "'raise', 'warn' or 'ignore'"),
        ({"dtype": "float16"}, "'float32' or 'float64'"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"n_jobs": 1.5}, "n_jobs is 1.5; it is a number of threads"),
        ({"n_jobs": "all"}, "n_jobs is 'all'; it is a number of threads"),
        ({"n_jobs": float("nan")}, "n_jobs is nan; it is a number of threads"),
        ({"memory_limit": 0}, "memory_limit is 0"),
        ({"memory_limit": "1GB"}, "memory_limit is '1GB'; it is a number of bytes"),
        ({"memory_limit": float("inf")}, "memory_limit is inf; it is a number of bytes"),
        ({"params": {"learning_rat": 0.1}}, "params has learning_rat"),
    ):
        with says(lt.InvalidInput, words):
            lt.Tracer(c.model, c.X, c.y, **kw)


def test_given_parameters_count_and_are_checked(c):
    with says(lt.FidelityError, "another learning_rate or regularisation", "given as params"):
        lt.Tracer(c.model, c.X, c.y, params={"l2_leaf_reg": 50.0})
    assert lt.Tracer(c.model, c.X, c.y, params={"l2_leaf_reg": 3.0}).fidelity.exact


def test_removing_the_last_row_of_a_class():
    """The base score would be infinite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.r_[1.0, np.zeros(39)]
    model = CatBoostClassifier(**QUIET, iterations=3, boost_from_average=True).fit(X, y)
    with says(lt.InvalidInput, "without training row 0", "last of its class"):
        lt.Tracer(model, X, y).influence(X[:2], y[:2], method=lt.LeafRefit())


def test_pool_as_training_data(c):
    weighted = case("logloss weights")
    pool = Pool(weighted.X, weighted.y, weight=weighted.weight)
    tracer = lt.Tracer(weighted.model, pool, dtype="float64")
    test = Pool(weighted.X_test, weighted.y_test)
    np.testing.assert_array_equal(
        tracer.influence(test).values,
        tracer_of(weighted).influence(weighted.X_test, weighted.y_test).values,
    )
    base = case("logloss baseline")
    given = lt.Tracer(base.model, Pool(base.X, base.y, baseline=base.baseline))
    assert given.fidelity.exact


def test_half_a_surrogate_pair():
    """A name of a row that no table can hold gets a sentence, and does not harm a saved result."""
    import lightgbm as lgb
    import pandas as pd

    X = np.random.default_rng(0).standard_normal((60, 2))
    names = pd.Index([f"row {i}\ud800" for i in range(60)], dtype=object)
    table = pd.DataFrame(X, index=names)
    y = X[:, 0]
    model = lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, y)
    influence = lt.Tracer(model, table, y).influence(X[:2], y[:2])
    try:
        assert influence.top(3).shape[0] == 6  # pandas 2 takes any text
    except lt.InvalidInput as error:
        assert "surrogate" in str(error)  # noqa: PT017
