"""`Tracer(class_names=...)`: names for the classes of saved models that have only numbers for them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier, LGBMRegressor
from raw_scores import raw_scores
from xgboost import XGBClassifier

import leaftrace as lt

TWO = ["no", "yes"]
THREE = ["red", "green", "blue"]  # not in alphabetical order: the order given counts
KINDS = [("lightgbm", TWO), ("lightgbm", THREE), ("xgboost", TWO), ("xgboost", THREE)]
IDS = [f"{library} {len(names)}" for library, names in KINDS]


@dataclass
class Saved:
    """A saved model, its training and test rows, and a tracer with names and one without."""

    path: Path
    names: list[str]
    X: pd.DataFrame
    codes: np.ndarray
    X_test: pd.DataFrame
    test_codes: np.ndarray
    params: dict[str, Any]

    @property
    def y(self):
        return self.named(self.codes)

    @property
    def y_test(self):
        return self.named(self.test_codes)

    def named(self, codes):
        return np.array(self.names, dtype=object)[codes]

    def tracer(self, y=None, **settings):
        y = self.codes if y is None else y
        return lt.Tracer(self.path, self.X, y, n_jobs=1, params=self.params, **settings)


def rows(n, classes, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    score = X.a + 0.5 * rng.normal(size=n)
    return X, np.digitize(score, [-0.5, 0.5] if classes == 3 else [0.0])


@pytest.fixture(scope="module", params=KINDS, ids=IDS)
def saved(request, tmp_path_factory):
    library, names = request.param
    folder = tmp_path_factory.mktemp("named")
    X, codes = rows(150, len(names), 0)
    if library == "lightgbm":
        path = folder / "model.txt"
        model = LGBMClassifier(n_estimators=5, num_leaves=5, n_jobs=1, verbose=-1)
        model.fit(X, codes).booster_.save_model(path)
        params = {}
    else:
        path = folder / "model.ubj"
        XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(X, codes).save_model(path)
        # The file does not hold these, and refits ask for them.
        params = {"max_depth": 3, "min_child_weight": 1, "max_delta_step": 0}
    return Saved(path, names, X, codes, *rows(40, len(names), 1), params)


@pytest.fixture(scope="module")
def both(saved):
    return saved.tracer(saved.y, class_names=saved.names), saved.tracer()


def test_influence_is_that_of_numbers(saved, both):
    named, plain = both
    assert plain.classes.tolist() == list(range(len(saved.names)))
    assert named.classes.tolist() == saved.names
    assert named.y_train.tolist() == saved.y.tolist()
    expected = plain.influence(saved.X_test, saved.test_codes).values
    found = named.influence(saved.X_test, saved.y_test).values
    np.testing.assert_array_equal(found, expected)
    by_number = named.influence(saved.X_test, saved.test_codes).values
    np.testing.assert_array_equal(by_number, expected)


def test_training_labels_by_number(saved):
    tracer = saved.tracer(class_names=saved.names)
    assert tracer.classes.tolist() == saved.names
    assert tracer.y_train.tolist() == saved.y.tolist()


def test_tables_have_names(saved, both):
    named, plain = both
    neighbours = named.neighbours(saved.X_test, 3)
    numbers = plain.neighbours(saved.X_test, 3)["label"].to_numpy()
    assert neighbours["label"].tolist() == saved.named(numbers).tolist()
    noise = lt.label_noise(named).table
    by_number = lt.label_noise(plain).table
    for column in ("given_label", "predicted_label"):
        assert noise[column].tolist() == saved.named(by_number[column].to_numpy()).tolist()
    impact = lt.removal_impact(named, [0, 1], saved.X_test, saved.y_test, retrain=False)
    assert set(impact.table["decision"]) <= set(saved.names)


@pytest.mark.parametrize("by_number", [False, True])
def test_a_report_has_names(saved, both, by_number):
    named, plain = both
    y_test = saved.test_codes if by_number else saved.y_test
    data = lt.report(named, saved.X_test, y_test, worst=2, top=2, noise=4).data
    expected = lt.report(
        plain, saved.X_test, saved.test_codes, worst=2, top=2, noise=4, classes=saved.names
    ).data
    assert data["model"]["classes"] == saved.names
    assert data["cases"][0]["label"] in saved.names
    for part in ("cases", "overall", "noise", "hashes"):
        assert data[part] == expected[part]


def test_the_record_of_a_removal_is_of_numbers(saved, both):
    named, plain = both
    found = lt.removal_impact(named, [0], saved.X_test, saved.y_test, retrain=False).audit()
    expected = lt.removal_impact(plain, [0], saved.X_test, saved.test_codes, retrain=False).audit()
    assert found["classes_by_number"] == saved.names
    assert "classes_by_number" not in expected
    for part in ("training", "test"):
        assert found[part]["sha256"] == expected[part]["sha256"]


def test_retrain_and_follow(saved, both):
    named, plain = both
    without = [3, 4, 5]
    model = named.retrain(without)
    np.testing.assert_array_equal(
        raw_scores(model, saved.X_test), raw_scores(plain.retrain(without), saved.X_test)
    )
    next_one = named.follow(model)
    assert next_one.classes.tolist() == saved.names
    assert next_one.y_train.tolist() == np.delete(saved.y, without).tolist()
    np.testing.assert_array_equal(
        next_one.influence(saved.X_test, saved.y_test).values,
        plain.follow(plain.retrain(without)).influence(saved.X_test, saved.test_codes).values,
    )


@pytest.mark.parametrize("how", ["refit", "retrain"])
def test_other_labels_by_name(saved, both, how):
    named, plain = both
    codes = saved.codes.copy()
    codes[:10] = 1 - np.minimum(codes[:10], 1)
    changed = getattr(named, how)(y=saved.named(codes))
    expected = getattr(plain, how)(y=codes)
    np.testing.assert_array_equal(changed.predict(saved.X_test), expected.predict(saved.X_test))
    np.testing.assert_array_equal(
        changed.loss(saved.X_test, saved.y_test), expected.loss(saved.X_test, saved.test_codes)
    )


@pytest.mark.parametrize("how", ["refit", "retrain"])
def test_added_rows_by_name(saved, both, how):
    named, plain = both
    added = getattr(named, how)(added=(saved.X_test, saved.y_test))
    expected = getattr(plain, how)(added=(saved.X_test, saved.test_codes))
    np.testing.assert_array_equal(added.predict(saved.X_test), expected.predict(saved.X_test))


def test_label_influence_to_a_class(saved, both):
    named, plain = both
    if len(saved.names) == 2:
        found = named.label_influence(saved.X_test, saved.y_test)
        expected = plain.label_influence(saved.X_test, saved.test_codes)
        assert found.action == expected.action == "flipped"
    else:
        found = named.label_influence(saved.X_test, saved.y_test, to="blue")
        expected = plain.label_influence(saved.X_test, saved.test_codes, to=2)
        with pytest.raises(lt.InvalidInput, match=r"to has label.s. pink that the model does not"):
            named.label_influence(saved.X_test, saved.y_test, to="pink")
    np.testing.assert_array_equal(found.values, expected.values)


def test_unknown_labels(saved, both):
    named, _ = both
    classes = ", ".join(saved.names)
    wrong = np.where(saved.test_codes == 0, "perhaps", saved.y_test)
    with pytest.raises(
        lt.InvalidInput, match=f"y_test has label.s. perhaps .* its classes are {classes}"
    ):
        named.influence(saved.X_test, wrong)
    with pytest.raises(lt.InvalidInput, match=r"y_test has label.s. .*7 that the model does not"):
        named.influence(saved.X_test, np.where(saved.test_codes == 0, 7, saved.test_codes))
    with pytest.raises(
        lt.InvalidInput, match=f"y_train has label.s. perhaps that .* its classes are {classes}"
    ):
        saved.tracer(np.where(saved.codes == 0, "perhaps", saved.y), class_names=saved.names)


def test_the_number_of_names(saved):
    C = len(saved.names)
    message = (
        f"class_names has {C + 1} names, but the model has {C} classes; name each, in its order"
    )
    with pytest.raises(lt.InvalidInput, match=message):
        saved.tracer(class_names=[*saved.names, "more"])


def test_another_order_is_another_model(saved):
    with pytest.raises(lt.FidelityError):
        saved.tracer(saved.y, class_names=saved.names[::-1])


def test_a_model_of_numbers_has_no_classes():
    X, _ = rows(100, 2, 0)
    model = LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(X, X.a)
    with pytest.raises(
        lt.InvalidInput, match=r"class_names .* this model predicts numbers; leave it out"
    ):
        lt.Tracer(model, X, X.a, class_names=TWO)


def test_a_model_with_names_of_its_own():
    X, codes = rows(100, 2, 0)
    y = np.array(TWO)[codes]
    model = CatBoostClassifier(2, verbose=False, allow_writing_files=False).fit(X, y)
    with pytest.raises(
        lt.InvalidInput, match=r"class_names is for a model that knows its classes by number"
    ):
        lt.Tracer(model, X, y, class_names=["a", "b"])


def test_names_come_after_results_without_them(saved):
    """What a tracer has computed before it gets names must not hide them."""
    plain = saved.tracer()
    lt.label_noise(plain).confirm(saved.X_test, saved.test_codes, k=2, retrain=False)
    data = lt.report(plain, saved.X_test, saved.y_test, worst=1, noise=2, classes=saved.names).data
    assert data["cases"][0]["predicted"] in saved.names
    assert {line["given_label"] for line in data["noise"]["training_rows"]} <= set(saved.names)
    assert plain.classes.tolist() == list(range(len(saved.names)))  # it stays as it was


def test_a_booster_without_its_classifier(tmp_path):
    """xgboost.train keeps no classes: labels are shares of the second class, until they get names."""
    X, codes = rows(150, 2, 0)
    X_test, test_codes = rows(30, 2, 1)
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3}, xgboost.DMatrix(X, codes), 5
    )
    booster.save_model(tmp_path / "m.ubj")
    plain = lt.Tracer(tmp_path / "m.ubj", X, codes)
    assert plain.classes is None
    named = lt.Tracer(tmp_path / "m.ubj", X, np.array(TWO)[codes], class_names=TWO)
    assert named.classes.tolist() == TWO
    np.testing.assert_array_equal(
        named.influence(X_test, np.array(TWO)[test_codes]).values,
        plain.influence(X_test, test_codes).values,
    )
    assert set(lt.label_noise(named).table["predicted_label"]) == set(TWO)
