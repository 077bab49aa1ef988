"""A fixed number of damaged files. They are read in another process, which they may bring down."""

import pytest

from .pool import Worker
from .summary import command

SEEDS = range(40)


@pytest.fixture(scope="module")
def worker():
    found = Worker()
    yield found
    found.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_file(worker, seed):
    outcome = worker.run("files", seed)
    assert not outcome.failures, f"{outcome.failures}\n{command('files', seed)}"
