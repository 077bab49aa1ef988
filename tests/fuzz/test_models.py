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
