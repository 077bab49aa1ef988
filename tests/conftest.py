"""Data and models shared by the tests. Models are trained once a run."""

from __future__ import annotations

import adult as adult_data
import pytest
from catboost import CatBoostClassifier
from catboost_models import QUIET
from hypothesis import settings

# The same examples on every run, so that a failure can be reproduced.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def adult():
    """X_train, y_train, X_test, y_test of Adult, categories as numbers."""
    if not adult_data.is_here():
        pytest.skip(
            "the Adult data are not here; set LEAFTRACE_DATA to the folder that holds adult/train.parquet"
        )
    return adult_data.load()


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with tables and saved models, and the data they were made of: see cli_world."""
    from cli_world import build

    return build(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def here(world, monkeypatch):
    """The folder of `world`, as the current directory."""
    monkeypatch.chdir(world[0])
    return world[0]


@pytest.fixture(scope="session")
def paper_model(adult):
    """The paper's settings: 100 trees, depth 6, learning rate 0.2, one Newton step, Plain."""
    model = CatBoostClassifier(
        iterations=100,
        depth=6,
        learning_rate=0.2,
        leaf_estimation_method="Newton",
        leaf_estimation_iterations=1,
        boosting_type="Plain",
        **QUIET,
    )
    return model.fit(adult[0], adult[1])


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request):
    """Runs a test on each instruction set that this machine has."""
    from leaftrace._model.kernels import kernels

    before = kernels.isa()
    try:
        kernels.set_isa(request.param)
    except ValueError:
        pytest.skip(f"no {request.param} here")
    yield
    kernels.set_isa(before)
