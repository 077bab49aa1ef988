"""Refits on other training sets (rows removed, relabelled, reweighted, added) against the oracle.

They run for every setting of the contract."""

from dataclasses import replace

import cases_xgboost
import numpy as np
import oracle
import pytest
import sklearn
from boosters import numbers, weights
from contract import CASES, accuracy, prepared
from raw_scores import raw_scores
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from training_sets import other_labels, other_weights, random_rows, take

import leaftrace as lt


def counts(case):
    return np.bincount(case.data.codes.astype(int))


# The weight of each class, from the settings of the models.
CLASS_WEIGHTS = {
    "CatBoost: logloss, weights, class weights": lambda case: case.model.get_all_params()[
        "class_weights"
    ],
    "CatBoost: categories, multiclass, Lossguide": lambda case: [1.0, 2.0, 0.5],
    "XGBoost: scale_pos_weight, weights": lambda case: [1.0, 2.5],
    "LightGBM: binary, sigmoid, is_unbalance": lambda case: np.maximum(
        counts(case)[::-1] / counts(case), 1
    ),
    "LightGBM: LGBMClassifier, balanced, scale_pos_weight, weights": lambda case: (
        len(case.w) / 2 / counts(case) * [1, 1.7]
    ),
    "LightGBM: multiclass, class_weight, weights, l1, l2, max_delta_step": lambda case: [
        1.0,
        2.5,
        1.0,
    ],
    "scikit-learn: HistGradientBoosting, balanced classes, weights and l2": lambda case: (
        len(case.w) / 2 / counts(case)
    ),
    "scikit-learn: HistGradientBoosting, early stopping, class weights": lambda case: [2.0, 0.5],
    "scikit-learn: ExtraTreesClassifier, multiclass, class weights, weights": lambda case: [
        2.0,
        0.5,
        1.0,
    ],
}
# Refits with other weights are refused for quantiles of rows without weights, and refits with other
# labels for models in which every tree has its own class weights.
UNWEIGHTED = {
    "XGBoost: absolute error",
    "LightGBM: cross_entropy_lambda",
    "survival: CatBoost, logistic",
    "LightGBM: quantile, bagging",
    "scikit-learn: HistGradientBoosting, absolute error",
    "scikit-learn: GradientBoosting, quantile, subsample",
    "scikit-learn: GradientBoosting, huber, subsample",
}
CLASSES_BY_TREE = {
    "LightGBM: multiclassova, weights, scale_pos_weight",
    "scikit-learn: RandomForest, multiclass, balanced_subsample, max_samples",
}


def with_classes(structure, name, case, codes):
    """Return the structure with class weights that follow the labels; held-out rows keep weight zero."""
    old = structure.class_weight
    if name not in CLASS_WEIGHTS:
        assert np.ndim(old) == 0 or np.ptp(old[old > 0]) == 0
        return structure
    return replace(
        structure,
        class_weight=np.where(
            old == 0, 0.0, np.asarray(CLASS_WEIGHTS[name](case))[codes.astype(int)]
        ),
    )


def with_added(structure, test_steps, name, case, count):
    """Return the structure with the first test rows appended to the training rows."""
    steps = [
        [
            (np.append(ids, more[:count]), L, o)
            for (ids, L, o), (more, _, _) in zip(step, test, strict=True)
        ]
        for step, test in zip(structure.steps, test_steps, strict=True)
    ]
    factor = structure.class_weight
    more = np.ones(count)
    if name in CLASS_WEIGHTS:
        more = np.asarray(CLASS_WEIGHTS[name](case))[case.data.test_codes[:count].astype(int)]
    if np.ndim(factor):
        factor = np.append(factor, more)
    return replace(structure, steps=steps, class_weight=factor)


@pytest.mark.parametrize("name", CASES)
def test_refits_are_the_oracles(name):
    """Remove rows, change labels and weights, all at once; then add rows."""
    case, tracer, structure, test_steps = prepared(name)
    n = len(case.w)
    X = case.data.X_test
    data = case.data
    structure = structure.strict()
    y, codes = other_labels(data)
    w = other_weights(case.w)
    if name in UNWEIGHTED:
        with pytest.raises(
            lt.UnsupportedModel,
            match=r"other weights: (it was trained without|.*weights of rows).*use retrain\(\)",
        ):
            tracer.refit(sample_weight=w)
        w = np.where(w > 0, case.w, 0.0)  # without the row of weight zero
    if name in CLASSES_BY_TREE:
        with pytest.raises(lt.UnsupportedModel, match=r"other labels: every .*; use retrain\(\)"):
            tracer.refit(y=y)
        y = data.y
        codes = data.codes
    gone = random_rows(n) if name not in UNWEIGHTED else np.union1d(random_rows(n), 3)
    keep = ~np.isin(np.arange(n), gone)
    relabelled = (codes != data.codes).reshape(n, -1).any(axis=1)
    assert keep[relabelled].any() or name in CLASSES_BY_TREE
    altered = with_classes(structure, name, case, codes).rows(keep)
    expected = oracle.predict(altered, oracle.refit(altered, codes[keep], w[keep]), test_steps)
    found = tracer.refit(gone, y=y, sample_weight=w)
    check(found, X, expected, case)
    np.testing.assert_array_equal(found.without, gone)
    unchanged = case.raw(case.model, X).reshape(expected.shape)
    assert np.abs(expected - unchanged).max() > 1e-3 * np.abs(unchanged).max()
    added = take(X, range(5)), data.y_test[:5]
    if structure.sample is not None or case.baseline is not None:
        with pytest.raises((lt.UnsupportedModel, lt.InvalidInput), match=r"drew|baseline"):
            tracer.refit(added=added)
        return
    more = with_added(structure, test_steps, name, case, 5)
    fitted = oracle.refit(
        more, np.concatenate([data.codes, data.test_codes[:5]]), np.append(case.w, np.ones(5))
    )
    check(tracer.refit(added=added), X, oracle.predict(more, fitted, test_steps), case)


def check(found, X, expected, case):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found.scores(X), expected, atol=max(3e-6, accuracy(case)) * scale)


def test_class_weights_of_a_booster():
    """An xgboost.Booster has no classes; scale_pos_weight applies to rows whose label is 1."""
    case = cases_xgboost.boosted(
        "", cases_xgboost.binary(), objective="binary:logistic", scale_pos_weight=2.5, weight=True
    )
    tracer = lt.Tracer(case.model, case.data.X, case.data.y, case.weight)
    assert tracer.classes is None
    structure, test_steps = case.structure(case)
    y, codes = other_labels(case.data)
    structure = replace(structure, class_weight=np.where(codes == 1, 2.5, 1.0))
    expected = oracle.predict(structure, oracle.refit(structure, codes, case.w), test_steps)
    check(tracer.refit(y=y), case.data.X_test, expected, case)
    more = with_added(structure, test_steps, "", case, 5)
    more = replace(
        more, class_weight=np.where(np.append(codes, case.data.test_codes[:5]) == 1, 2.5, 1.0)
    )
    fitted = oracle.refit(
        more, np.append(codes, case.data.test_codes[:5]), np.append(case.w, np.ones(5))
    )
    added = case.data.X_test[:5], case.data.y_test[:5]
    check(
        tracer.refit(y=y, added=added),
        case.data.X_test,
        oracle.predict(more, fitted, test_steps),
        case,
    )


def test_own_labels_and_weights_change_nothing():
    for name in (
        "CatBoost: categories, multiclass, Lossguide",
        "LightGBM: multiclassova, weights, scale_pos_weight",
        "XGBoost: absolute error",
        "scikit-learn: HistGradientBoosting, early stopping, class weights",
    ):
        case, tracer, *_ = prepared(name)
        same = tracer.refit(y=tracer.y_train, sample_weight=tracer.sample_weight).scores(
            case.data.X_test
        )
        np.testing.assert_allclose(
            same, tracer.refit().scores(case.data.X_test), rtol=1e-9, atol=1e-12, err_msg=name
        )


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9),
    reason="weights multiply the draws there",
)
def test_weights_that_only_set_chances():
    data = numbers()
    w = weights(len(numbers().y))
    forest = RandomForestRegressor(5, min_samples_leaf=5, random_state=0)
    model = clone(forest).fit(data.X, data.y, sample_weight=w)
    tracer = lt.Tracer(model, data.X, data.y, w)
    with pytest.raises(
        lt.UnsupportedModel, match="other weights: those of this forest only set the chances"
    ):
        tracer.refit(sample_weight=2 * w)
    plain = lt.Tracer(forest.fit(data.X, data.y), data.X, data.y)
    assert (
        np.abs(
            raw_scores(plain.refit(sample_weight=w), data.X_test)
            - raw_scores(plain.refit(), data.X_test)
        ).max()
        > 1e-3
    )


def test_what_cannot_be():
    case, tracer, *_ = prepared("LightGBM: LGBMClassifier, defaults")
    n = len(case.w)
    data = case.data
    new = data.X_test[:2]
    for arguments, message in (
        ({"y": data.y[:-1]}, f"y has {n - 1} values"),
        (
            {"y": np.where(np.arange(n) == 4, "perhaps", data.y)},
            "label.* perhaps that the model does not know",
        ),
        ({"sample_weight": -np.ones(n)}, "negative"),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values"),
        ({"without": [n]}, "positions of training rows go from 0"),
        ({"without": np.arange(n)}, "leaves no training row"),
        (
            {"without": np.arange(1, n), "sample_weight": np.r_[0.0, np.ones(n - 1)]},
            "no training row of non-zero weight",
        ),
        ({"added": (new, data.y_test[:1])}, "labels of added rows has 1 values"),
        ({"added": (new, ["yes", "perhaps"])}, "y_new has label.* perhaps"),
        ({"added": (new[["a", "b"]], data.y_test[:2])}, "lacks the column"),
        ({"added": new}, r"added is a DataFrame; .* added=\(X_new, y_new\)"),
    ):
        for way in (tracer.refit, tracer.retrain):
            with pytest.raises(lt.InvalidInput, match=message):
                way(**arguments)


def test_one_added_row_can_be_a_series():
    case, tracer, *_ = prepared("LightGBM: LGBMClassifier, defaults")
    data = case.data
    for way in (tracer.refit, tracer.retrain):
        expected = way(added=(data.X_test[:1], data.y_test[:1])).scores(data.X_test)
        found = way(added=(data.X_test.iloc[0], data.y_test[0])).scores(data.X_test)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "name",
    [
        "LightGBM: binary, sigmoid, is_unbalance",
        "XGBoost: XGBClassifier defaults",
        "scikit-learn: HistGradientBoosting, multiclass, weights, max_features",
    ],
)
def test_a_training_set_without_a_class_has_no_starting_score(name):
    """The log-odds of a class without rows are infinite; no prediction is made of them, and nothing warns."""
    case, tracer, *_ = prepared(name)
    with pytest.raises(lt.InvalidInput, match="Keep some rows of each class"):
        tracer.refit(without=np.flatnonzero(case.data.codes > 0))


def test_counts_that_are_all_zero_have_no_starting_score():
    case, tracer, *_ = prepared("LightGBM: poisson, weights, l2")
    with pytest.raises(lt.InvalidInput, match="some that are not zero"):
        tracer.refit(y=np.zeros(len(case.w)))
