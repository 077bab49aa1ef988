"""Write the section of docs/support.md about wrappers: train and trace a model in each.

    .venv-integrations/bin/python tools/support_wrappers.py

Some come from packages that constraints.txt does not have, so `make support` runs this in the
environment of `make test-integrations`, after tools/support.py has written the other sections.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import lightgbm as lgb
import numpy as np
import optuna
import pandas as pd
from autogluon.tabular import TabularPredictor
from flaml import AutoML
from imblearn.over_sampling import SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline as sampling_pipeline
from imblearn.under_sampling import RandomUnderSampler
from optuna_integration.lightgbm import LightGBMTuner
from optuna_integration.sklearn import OptunaSearchCV
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skrub import tabular_pipeline

import leaftrace as lt

TARGET = Path(__file__).parents[1] / "docs" / "support.md"
HEADING = "\n## Wrappers\n"
BOUND = 1e-6  # largest error of an exact row: XGBoost's, which stores its numbers in float32
rng = np.random.default_rng(0)
N = 300
TABLE = pd.DataFrame(rng.normal(size=(N, 4)), columns=["a", "b", "c", "d"])
TOWNS = TABLE.assign(town=rng.choice(["Rome", "Oslo", "Lima"], N))
NUMBERS = np.exp(TABLE["a"].to_numpy() + 0.3 * rng.normal(size=N))
CLASSES = np.array(["low", "mid", "top"])[np.digitize(NUMBERS, [0.7, 1.4])]
TWO = np.where(NUMBERS > 1, "yes", "no")
GRID = {"max_depth": [2, 3]}


def classifier():
    return HistGradientBoostingClassifier(max_iter=10)


def regressor():
    return HistGradientBoostingRegressor(max_iter=10)


def boosted():
    return GradientBoostingClassifier(n_estimators=10, random_state=0)


def fitted(model, y, X=TABLE):
    """Return a maker of the model, trained on these rows."""
    return lambda: (model.fit(X, y), X, y, {})


def members(kind):
    return [("first", kind()), ("second", kind().set_params(max_leaf_nodes=5))]


def of_folds(models, y, folds=None):
    """Return a maker whose model is a tracer of folds."""
    return lambda: (lt.Tracer.of_folds(models(), TABLE, y, folds), TABLE, y, {})


def cv_booster():
    data = lgb.Dataset(TABLE, (TWO == "yes").astype(int))
    settings = {"objective": "binary", "verbose": -1}
    return lgb.cv(settings, data, 10, nfold=3, return_cvbooster=True)["cvbooster"]


def cross_validated():
    return cross_validate(
        regressor(), TABLE, NUMBERS, cv=KFold(3), return_estimator=True, return_indices=True
    )


def automl(estimator):
    def make():
        model = AutoML()
        asked = {"task": "classification", "estimator_list": [estimator], "max_iter": 2}
        model.fit(TABLE, TWO, verbose=0, **asked)
        return model, TABLE, TWO, {}

    return make


def optuna_search():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    depths = {"max_depth": optuna.distributions.IntDistribution(2, 3)}
    model = OptunaSearchCV(classifier(), depths, n_trials=2, cv=2)
    return model.fit(TABLE, TWO), TABLE, TWO, {}


def tuner():
    y = (TWO == "yes").astype(int)
    data = lgb.Dataset(TABLE[:200], y[:200], free_raw_data=False)
    held = lgb.Dataset(TABLE[200:], y[200:], reference=data)
    settings = {"objective": "binary", "metric": "binary_logloss", "verbosity": -1}
    model = LightGBMTuner(
        settings, data, 5, valid_sets=[held], time_budget=2, show_progress_bar=False
    )
    model.run()
    return model, TABLE[:200], y[:200], {}


def predictor(hyperparameters, **settings):
    def make():
        model = TabularPredictor("label", path=tempfile.mkdtemp(), verbosity=0)
        model.fit(TOWNS.assign(label=TWO), hyperparameters=hyperparameters, **settings)
        return model, TOWNS, TWO, {}

    return make


def rows():
    yield "GridSearchCV", fitted(GridSearchCV(classifier(), GRID, cv=2), TWO)
    yield "RandomizedSearchCV", fitted(RandomizedSearchCV(classifier(), GRID, n_iter=1), TWO)
    yield "HalvingGridSearchCV", fitted(HalvingGridSearchCV(classifier(), GRID, cv=2), TWO)
    yield "HalvingRandomSearchCV", fitted(HalvingRandomSearchCV(classifier(), GRID, cv=2), TWO)
    yield "GridSearchCV, refit=False", fitted(GridSearchCV(classifier(), GRID, refit=False), TWO)
    target = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    yield "TransformedTargetRegressor", fitted(target, NUMBERS)
    yield (
        "VotingClassifier, soft",
        fitted(VotingClassifier(members(classifier), voting="soft"), CLASSES),
    )
    yield "VotingClassifier, hard", fitted(VotingClassifier(members(classifier)), CLASSES)
    linear = VotingClassifier([("trees", classifier()), ("line", LogisticRegression())])
    yield "VotingClassifier with a linear model", fitted(linear, TWO)
    yield "VotingRegressor", fitted(VotingRegressor(members(regressor)), NUMBERS)
    yield "StackingClassifier", fitted(StackingClassifier(members(classifier), cv=2), CLASSES)
    yield "StackingRegressor", fitted(StackingRegressor(members(regressor), cv=2), NUMBERS)
    yield "CalibratedClassifierCV", fitted(CalibratedClassifierCV(boosted(), cv=3), CLASSES)
    yield (
        "CalibratedClassifierCV, isotonic",
        fitted(CalibratedClassifierCV(boosted(), cv=3, method="isotonic"), TWO),
    )
    yield (
        "CalibratedClassifierCV, ensemble=False",
        fitted(CalibratedClassifierCV(boosted(), cv=3, ensemble=False), TWO),
    )
    yield (
        "CalibratedClassifierCV of a FrozenEstimator",
        fitted(CalibratedClassifierCV(FrozenEstimator(boosted().fit(TABLE, TWO))), TWO),
    )
    yield (
        "CalibratedClassifierCV, folds that are random",
        fitted(CalibratedClassifierCV(boosted(), cv=StratifiedKFold(3, shuffle=True)), TWO),
    )
    voting = VotingClassifier(members(classifier), voting="soft")
    yield (
        "Pipeline that ends in a VotingClassifier",
        fitted(make_pipeline(StandardScaler(), voting), TWO),
    )
    splitter = StratifiedKFold(3, shuffle=True, random_state=0)
    codes = (TWO == "yes").astype(int)
    yield "lightgbm.cv, with Tracer.of_folds", of_folds(cv_booster, codes, splitter)
    yield "cross_validate, with Tracer.of_folds", of_folds(cross_validated, NUMBERS)
    for sampler in (RandomUnderSampler(random_state=0), RandomOverSampler(random_state=0), SMOTE()):
        pipeline = sampling_pipeline(StandardScaler(), sampler, classifier())
        yield f"imbalanced-learn, {type(sampler).__name__}", fitted(pipeline, TWO)
    table = tabular_pipeline("classification")
    table.set_params(histgradientboostingclassifier__max_iter=10)
    yield "skrub, tabular_pipeline", fitted(table, TWO, TOWNS)
    yield "Optuna, OptunaSearchCV", optuna_search
    yield "Optuna, LightGBMTuner", tuner
    for estimator in ("lgbm", "xgboost", "extra_tree"):
        yield f"FLAML, AutoML with {estimator}", automl(estimator)
    gbm = {"GBM": {"num_boost_round": 10}}
    yield "AutoGluon, TabularPredictor", predictor(gbm, fit_weighted_ensemble=False)
    yield (
        "AutoGluon, a weighted ensemble",
        predictor({**gbm, "XT": {"n_estimators": 5, "max_leaf_nodes": 8}}),
    )
    yield "AutoGluon, bagging", predictor(gbm, num_bag_folds=2)


def line(option, make) -> str:
    """Train and trace a model, and return its line of the table."""
    model, X, y, arguments = make()
    try:
        tracer = model if isinstance(model, lt.Tracer) else lt.Tracer(model, X, y, **arguments)
    except lt.UnsupportedModel as error:
        return f"| {option} | refused | | {error} |"
    assert tracer.fidelity.max_error <= BOUND, option
    return f"| {option} | exact | {tracer.fidelity.max_error:.0e} | {note(tracer, X)} |"


def note(tracer, X) -> str:
    """Return how the whole is traced, or what cannot be asked."""
    try:
        values = tracer.influence(X.iloc[:2], of="prediction", output=0).values
    except lt.UnsupportedModel as error:
        return f"by_member and refit only: {error}"
    assert np.isfinite(values).all()
    assert values.any()
    if isinstance(tracer, lt.MembersTracer) and len(tracer.members) > 1:
        return f"{len(tracer.members)} members"
    return ""


def main() -> None:
    lines = []
    for option, make in rows():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn about unusual settings
            lines.append(line(option, make))
        print(lines[-1][:100], file=sys.stderr)
    exact = sum("| exact |" in made for made in lines)
    others = TARGET.read_text(encoding="utf-8").partition(HEADING)[0].rstrip()
    head = f"""
Models inside of others, in memory. Of {len(lines)} wrappers, {exact} are exact; the others say what to do.

| wrapper | result | largest relative error | note |
| --- | --- | --- | --- |
"""
    text = f"{others}\n{HEADING}{head}" + "\n".join(lines) + "\n"
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
