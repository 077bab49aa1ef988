"""Random choices from a seed."""

from __future__ import annotations

import numpy as np


class Draw:
    """Random choices. The same seed gives the same ones."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, values):
        return values[self.rng.integers(len(values))]

    def chance(self, p):
        return bool(self.rng.random() < p)

    def whole(self, below):
        return int(self.rng.integers(below))

    def some(self, choices, p=0.3):
        """Return a dict of some of the names in ``choices``, each with one of its values."""
        return {name: self.pick(values) for name, values in choices.items() if self.chance(p)}
