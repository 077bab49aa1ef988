"""Served models for the tests of the explorer."""

import pytest
from explore_world import World, grains, homes, income


@pytest.fixture(scope="module", params=["income", "grains", "homes"])
def served(request):
    made = World({"income": income, "grains": grains, "homes": homes}[request.param]())
    yield made
    made.explorer.close()


@pytest.fixture(scope="module")
def people():
    made = World(income())
    yield made
    made.explorer.close()
