"""A fixed number of random models of every library. `make fuzz` runs fresh ones."""

import pytest

from .checks import run
from .draw import Draw
from .spaces import LIBRARIES, draw_configuration
from .summary import command

SEEDS = 60  # of each library: a minute or two in all


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_random_model(library, seed):
    outcome = run(draw_configuration(Draw(seed), library))
    assert not outcome.failures, f"{outcome.failures}\n{command('models', seed, library)}"
