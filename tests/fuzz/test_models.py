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
