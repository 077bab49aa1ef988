"""Noise in leaf values: langevin and posterior_sampling with gradient steps.

    value = -learning_rate (G + noise) / (W + lam),   noise = -z sqrt(2 (W + lam) / (learning_rate T))

T is the diffusion_temperature, and z are standard normal numbers, one for each leaf with rows. Their
generator is seeded by a number of the generator of training. Which one depends on the search for
splits, so it is found: the one whose z are those that the leaf values of the model show. Noise is a
constant for everything that is asked afterwards. Newton steps have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import Ensemble
from .generators import draws, normal_numbers

COMPARED = 4  # leaves of a tree by which a seed is recognised
ACCURACY = 1e-4  # of z; a wrong seed is nearer in one of 10^16 cases
FIRST_SEARCHED = 512  # numbers of the generator that are looked at first
FURTHEST = 1 << 15  # from one tree to the next
_FOUND = "the noise in the leaf values (langevin) drawn again from random_seed, and held as it is"
_NOT_FOUND = (
    "the noise in the leaf values (langevin) not found in the random numbers of random_seed"
)


def is_noisy(params: dict[str, Any]) -> bool:
    """Check for noise in leaf values; raise for noise that is not drawn again."""
    drawn = bool(params.get("langevin") or params.get("posterior_sampling"))
    noisy = drawn and params["leaf_estimation_method"] != "Newton"
    several = int(params["leaf_estimation_iterations"]) > 1
    if noisy and (several or params.get("monotone_constraints")):
        raise UnsupportedModel(
            "langevin and posterior_sampling add noise to leaf values with leaf_estimation_method="
            f"'{params['leaf_estimation_method']}', which several iterations and monotone_constraints mix up; train "
            "with leaf_estimation_iterations=1 and without constraints, or with 'Newton', whose leaves have no noise."
        )
    return noisy


def with_noise(e: Ensemble, params: dict[str, Any]) -> tuple[Ensemble, str]:
    """Return the ensemble with the noise of its leaf values, and a note.

    Noise that is not found is left out; then the replay differs from the model."""
    if e.n_outputs > 1:
        raise UnsupportedModel(
            "langevin and posterior_sampling with gradient steps are supported for one output; train with "
            "leaf_estimation_method='Newton', whose leaves have no noise."
        )
    temperature = float(np.float32(params["diffusion_temperature"]))
    seeds = _Seeds(int(params["random_seed"]))
    noise = np.zeros_like(e.values)
    for t, A in _scores(e):
        here = e.leaf_range(t)
        M = here.stop - here.start
        W = np.bincount(e.leaves[t], e.w, M)
        G = np.bincount(e.leaves[t], e.w * e.gradients(A, t)[:, 0], M)
        D = W + e.lam
        size = np.sqrt(2 * D / (e.rate(t) * temperature))
        filled = np.flatnonzero(W > 1e-9)
        shown = ((e.values[here, 0] / e.rate(t) * D + G) / size)[filled]
        z = seeds.normals(shown)
        if z is None:
            return e, _NOT_FOUND
        noise[here.start + filled, 0] = -z * size[filled]
    return replace(e, leaf_gradient=noise), _FOUND


class _Seeds:
    """The numbers of the generator of training, among which the seeds of the noise are."""

    def __init__(self, random_seed: int) -> None:
        self.random_seed = random_seed
        self.next = 0  # the first number that may be the next seed

    def normals(self, shown: F64) -> F64 | None:
        """Return the normal numbers (k,) that are those shown by a tree; None if there are none."""
        few = shown[:COMPARED]
        start = self.next
        while start < self.next + FURTHEST:
            count = FIRST_SEARCHED + start - self.next  # ever larger pieces
            numbers = draws(self.random_seed, start + count)[start:]
            apart = np.abs(normal_numbers(numbers, len(few)) - few).max(axis=1)
            if apart.min() <= ACCURACY:
                found = int(apart.argmin())
                self.next = start + found + 1
                return normal_numbers(numbers[found : found + 1], len(shown))[0]
            start += count
        return None


def _scores(e: Ensemble) -> Iterator[tuple[int, F64]]:
    """Yield (t, the scores (n, K) of training before step t), of a model of one tree a step."""
    A = e.start()
    for t in range(e.n_steps):
        if e.rough_scores is None or t == 0:
            e.move(t, e.leaves, A)
        else:
            e.add_leaf_values(t - 1, e.values[e.leaf_range(t - 1)], e.leaves, A)
            A = e.rough_scores(t, A)
        yield t, A
