"""The settings of every library that the contract tests run on, with a tracer for each.

`test_contract.py` states the contract; other tests take some of the settings from here.
"""

from functools import cache

import cases_catboost
import cases_lightgbm
import cases_lightgbm_monotone
import cases_own_objectives
import cases_sklearn
import cases_survival
import cases_targets
import cases_xgboost
import numpy as np

import leaftrace as lt

CASES = {
    f"{library}: {name}": make
    for library, module in (
        ("CatBoost", cases_catboost),
        ("XGBoost", cases_xgboost),
        ("LightGBM", cases_lightgbm),
        ("LightGBM", cases_lightgbm_monotone),
        ("scikit-learn", cases_sklearn),
        ("own objective", cases_own_objectives),
        ("survival", cases_survival),
        ("several targets", cases_targets),
    )
    for name, make in module.CASES.items()
}


@cache
def prepared(name):
    """Return (case, tracer in float64, oracle's structure, steps of the test rows), made once a run."""
    case = CASES[name]()
    tracer = lt.Tracer(case.model, case.data.X, case.data.y, case.weight, **arguments(case))
    return case, tracer, *case.structure(case)


def arguments(case, **more):
    """Return the keyword arguments of Tracer for a case."""
    return {"baseline": case.baseline, "dtype": "float64", **case.tracer, **more}


def accuracy(case):
    """Return the tolerance of a derivative or a refit, relative to the largest one.

    The replay starts from the scores of the model, which each library rounds in its own way.
    """
    return max(1e-6, 10 * case.tolerance)


def extreme_and_other_rows(values, count=3):
    """Return the two smallest, the two largest and ``count`` evenly spaced positions."""
    order = np.argsort(values)
    return np.unique(
        np.r_[order[:2], order[-2:], np.linspace(0, len(values) - 1, count).astype(int)]
    )
