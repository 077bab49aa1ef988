"""A fixed number of random models of every library. `make fuzz` runs fresh ones."""

import pytest

from . import ranker_space, targets_space
from .checks import run
from .draw import Draw
from .spaces import LIBRARIES, draw_configuration
from .summary import command

SEEDS = 60  # of each library: a minute or two in all


RANKERS = 20  # those of rankers, of several labels, and of rarer options


@pytest.mark.parametrize("seed", range(RANKERS))
def test_a_random_ranker(seed):
    outcome = ranker_space.run(ranker_space.draw_configuration(Draw(seed)))
    assert not outcome.failures, outcome.failures


@pytest.mark.parametrize("seed", range(RANKERS))
def test_a_random_model_of_several_labels(seed):
    outcome = targets_space.run(targets_space.draw_configuration(Draw(seed)))
    assert not outcome.failures, f"{outcome.failures}\n{command('targets', seed)}"


# Configurations that showed a mistake, of leaftrace or of the oracle.
FOUND = {
    "LightGBM's 1e-15 in H decides a leaf of certain rows": {
        "library": "LightGBM", "weights": "counts", "rounds": 8,
        "settings": {
            "objective": "multiclassova", "num_leaves": 8, "learning_rate": 1.0, "max_bin": 15, "min_data_in_bin": 1,
            "bagging_fraction": 0.5, "bagging_freq": 1, "bagging_seed": 11, "boosting": "dart", "drop_rate": 0.1,
            "skip_drop": 0.2, "uniform_drop": True, "scale_pos_weight": 3.0, "min_data_in_leaf": 1,
        },
        "data": {"target": "three classes", "rows": 30, "columns": 2, "seed": 438, "missing": True},
    },
    "scores far from labels are rounded more than these": {
        "library": "XGBoost", "weights": "random", "rounds": 15,
        "settings": {
            "objective": "reg:absoluteerror", "colsample_bynode": 0.5, "grow_policy": "lossguide", "base_score": 0.3,
            "monotone_constraints": "(0,-1,1,-1)",
        },
        "data": {
            "target": "any", "rows": 30, "columns": 4, "seed": 18, "few values": True, "scale": 0.001, "shift": 0.0,
        },
    },
    "a slope that holds for 1e-9 of a label alone": {
        "library": "scikit-learn", "weights": "none", "rounds": 8, "model": "GradientBoosting",
        "settings": {"loss": "exponential", "learning_rate": 1.0, "random_state": 41},
        "data": {"target": "two classes", "rows": 60, "columns": 2, "seed": 191, "positives": 1},
    },
    "rounding of residuals differs between two runs": {
        "library": "XGBoost", "weights": "none", "rounds": 15,
        "settings": {
            "objective": "reg:quantileerror", "reg_lambda": 0.1, "reg_alpha": 0.1, "colsample_bylevel": 0.5,
            "quantile_alpha": 0.9,
        },
        "data": {"target": "any", "rows": 20, "columns": 4, "seed": 96},
    },
    "weights a little below min_child_weight": {
        "library": "further", "weights": "none", "rounds": 15, "model": "XGBoost",
        "settings": {
            "objective": "reg:absoluteerror", "tree_method": "exact", "base_score": 0.3, "eta": 1.0, "reg_alpha": 0.1,
        },
        "data": {"target": "any", "rows": 60, "columns": 4, "seed": 62, "constant column": True},
    },
    "exchanged labels show in the starting score alone": {
        "library": "LightGBM", "weights": "decades", "rounds": 3,
        "settings": {
            "objective": "binary", "num_leaves": 3, "min_sum_hessian_in_leaf": 0.5, "lambda_l1": 0.1,
            "max_delta_step": 0.1, "feature_fraction": 0.5, "min_data_in_bin": 1, "is_unbalance": True,
            "min_data_in_leaf": 2, "monotone_constraints": [1, 1, -1, 1, -1, -1, 0],
        },
        "data": {
            "target": "two classes", "rows": 8, "columns": 7, "seed": 986, "duplicates": True, "positives": 2,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name):
    outcome = run(FOUND[name])
    assert not outcome.failures, outcome.failures


@pytest.mark.parametrize(
    ("library", "seed"),
    [
        (library, seed)
        for library in LIBRARIES
        for seed in range(RANKERS if library == "further" else SEEDS)
    ],
)
def test_a_random_model(library, seed):
    outcome = run(draw_configuration(Draw(seed), library))
    assert not outcome.failures, f"{outcome.failures}\n{command('models', seed, library)}"
