"""LightGBM models with monotone constraints for the contract tests."""

from __future__ import annotations

import lightgbm as lgb
from boosters import binary, frame, numbers, three_classes
from cases_lightgbm import KINDS, ROUNDS, train, wrapper


def classifier(method="basic", **settings):
    """Return a classifier of class names, with missing values and two category columns."""
    rising = [1, -1, 0, 1, 0, 0]
    like = {"objective": "binary", "kinds": KINDS, "monotone_constraints": rising}
    given = {"monotone_constraints": rising, "monotone_constraints_method": method, **settings}
    like["monotone_constraints_method"] = method
    return wrapper(lgb.LGBMClassifier, frame(many=True), like, n_estimators=15, **given)


CASES = {
    "monotone, weights, penalties": lambda: train(
        numbers(),
        weighted=True,
        monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 0, 0],
        lambda_l1=0.5,
        lambda_l2=1.0,
        max_delta_step=0.6,
        monotone_penalty=1.0,
    ),
    "monotone, binary, categories, missing values": classifier,
    "monotone, multiclass, bagging": lambda: train(
        three_classes(),
        bagging_fraction=0.7,
        bagging_freq=1,
        monotone_constraints=[1, -1, 0, 0, 1, 1] + [0] * 7,
        **ROUNDS,
    ),
    # few trees: in a long run a bound takes over within the step of a finite difference
    "monotone, intermediate": lambda: train(
        numbers(),
        6,
        num_leaves=20,
        monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 1, 0],
        monotone_constraints_method="intermediate",
    ),
    "monotone, intermediate, logistic, weights": lambda: train(
        binary(),
        10,
        weighted=True,
        objective="binary",
        num_leaves=20,
        min_data_in_leaf=4,
        lambda_l2=0.5,
        monotone_constraints=[-1, -1, 1, 0, 1] + [0] * 25,
        monotone_constraints_method="intermediate",
    ),
    "monotone, path_smooth": lambda: train(
        numbers(), path_smooth=4.0, monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 0, 0]
    ),
    "monotone, intermediate, path_smooth": lambda: train(
        numbers(),
        6,
        num_leaves=20,
        path_smooth=4.0,
        monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 1, 0],
        monotone_constraints_method="intermediate",
    ),
    "monotone, advanced": lambda: train(
        numbers(),
        5,
        num_leaves=20,
        lambda_l1=0.5,
        lambda_l2=1.0,
        monotone_penalty=0.5,
        monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 1, 0],
        monotone_constraints_method="advanced",
    ),
    "monotone, advanced, logistic, weights": lambda: train(
        binary(),
        10,
        weighted=True,
        objective="binary",
        num_leaves=20,
        min_data_in_leaf=4,
        lambda_l2=0.5,
        monotone_constraints=[-1, -1, 1, 0, 1] + [0] * 25,
        monotone_constraints_method="advanced",
    ),
    "monotone, advanced, categories, missing values": lambda: classifier("advanced"),
    "monotone, advanced, path_smooth": lambda: train(
        numbers(),
        6,
        num_leaves=20,
        path_smooth=4.0,
        monotone_constraints=[1, 0, -1, 1, 0, 0, -1, 0, 1, 0],
        monotone_constraints_method="advanced",
    ),
}
