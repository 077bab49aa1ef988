"""SubSample, Data Banzhaf, Beta Shapley: rows compared over models of random subsets.

    value(i) = mean of Q over models whose subset S has i  -  mean of Q over those without i

Each model tells something about every row (maximum sample reuse). The methods differ in how they
draw S:

    SubSample       a given share of the rows
    Data Banzhaf    each row with probability 1/2: all subsets are equally likely
    Beta Shapley    each row with probability p, where p is drawn from Beta(beta, alpha) for each
                    model. Then the means weigh models by 1/p, and by 1/(1 - p), so that S without i
                    has the same distribution in both; alpha = beta = 1 is the Shapley value
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._engine.methods import RetrainingBaseline
from .._engine.queries import Queries
from .._engine.subset_training import Members, SubsetTraining

_ATTEMPTS = 100  # to draw a subset that has every class


def check_models(models: int, seed: int, name: str) -> None:
    """Raise an error unless these can be a number of models and a seed. ``name``: of the method."""
    if not isinstance(models, (int, np.integer)) or models < 2:
        raise InvalidInput(f"{name} has models={models!r}; it is a number of trainings, 2 or more.")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInput(f"{name} has seed={seed!r}; it is a whole number, 0 or more.")


def check_share(share: float, what: str) -> None:
    """Raise an error unless this is a share between 0 and 1. ``what``: its name, for the message."""
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise InvalidInput(f"{what}={share!r}; it is a share of the rows, above 0 and below 1.")


class _SubsetMethod(RetrainingBaseline):
    """A method that compares models with a row and models without it."""

    models: int
    seed: int

    @abstractmethod
    def share_of_a_model(self, rng: np.random.Generator) -> float:
        """The share of the rows that one model is trained on."""

    def draw(self, rng: np.random.Generator, n: int, share: float) -> Members:
        """(n,) a subset in which each row is with this probability, independent of the others."""
        return rng.random(n) < share

    def weights(self, shares: F64) -> tuple[F64, F64]:
        """(models,) weights in the mean of models that have a row, and of those that do not."""
        return np.ones_like(shares), np.ones_like(shares)

    def values(self, training: SubsetTraining, queries: Queries, index: Ints) -> Real:
        subsets, shares = self._draw_all(training)
        changes = training.query_changes(queries, subsets)
        found = with_minus_without(np.array(subsets), changes, *self.weights(shares))
        return found[index].astype(training.work.dtype)

    def subsets(self, training: SubsetTraining) -> list[Members]:
        """The rows that each model is trained on."""
        return self._draw_all(training)[0]

    def _draw_all(self, training: SubsetTraining) -> tuple[list[Members], F64]:
        """The subset of each model, and (models,) the share of the rows that it was drawn with."""
        rng = np.random.default_rng(self.seed)
        shares = np.array([self.share_of_a_model(rng) for _ in range(self.models)])
        return [self._with_every_class(training, rng, share) for share in shares], shares

    def _with_every_class(
        self, training: SubsetTraining, rng: np.random.Generator, share: float
    ) -> Members:
        """A subset that has a row of weight of each class."""
        e = training.work.trace.ensemble
        labels = e.y if training.classes is not None else np.zeros(e.n_rows)
        known = np.unique(labels[e.w > 0])
        for _ in range(_ATTEMPTS):
            members = self.draw(rng, e.n_rows, share)
            if len(np.unique(labels[members & (e.w > 0)])) == len(known):
                return members
        raise InvalidInput(
            f"{type(self).__name__} found no subset of {share:.1%} of the rows that has all {len(known)} classes; "
            "use larger subsets."
        )


@dataclass(frozen=True)
class SubSample(_SubsetMethod):
    """Mean of the query over models of random subsets with the row, minus the mean without it.

    >>> tracer.influence(X_test, y_test, method=SubSample(models=500))          # doctest: +SKIP

    By Feldman and Zhang (NeurIPS 2020), for trees by Brophy, Hammoudeh and Lowd (JMLR 2023), who
    train 4,000 models. It is an expected effect in training sets of this share, with noise that
    falls with the square root of ``models``.

    ``models``  number of trainings
    ``share``   share of the rows that each is trained on
    ``seed``    of the subsets
    """

    models: int = 1_000
    share: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        check_models(self.models, self.seed, "SubSample")
        check_share(self.share, "SubSample has share")

    def share_of_a_model(self, rng: np.random.Generator) -> float:
        return self.share

    def draw(self, rng: np.random.Generator, n: int, share: float) -> Members:
        members = np.zeros(n, bool)
        members[rng.permutation(n)[: max(1, round(share * n))]] = True
        return members


@dataclass(frozen=True)
class DataBanzhaf(_SubsetMethod):
    """Banzhaf values of the rows: expected effects in a random subset of the others.

    >>> tracer.influence(X_test, y_test, method=DataBanzhaf(models=500))        # doctest: +SKIP

    By Wang and Jia (AISTATS 2023), with their estimator of maximum sample reuse: each of ``models``
    subsets has each row with probability 1/2. The sign is that of losses: positive is harmful.
    """

    models: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_models(self.models, self.seed, "DataBanzhaf")

    def share_of_a_model(self, rng: np.random.Generator) -> float:
        return 0.5


@dataclass(frozen=True)
class BetaShapley(_SubsetMethod):
    """Beta Shapley values of the rows: expected effects in subsets of random sizes.

    >>> tracer.influence(X_test, y_test, method=BetaShapley(models=500))        # doctest: +SKIP

    By Kwon and Zou (AISTATS 2022). A subset has each row with probability p, and p is drawn from
    Beta(beta, alpha): with the default small sets count most, with alpha = beta = 1 it is the
    Shapley value. Shares p below ``least`` and above 1 - ``least`` are not drawn, for models need
    some rows; the values are those of this narrower distribution. The authors sample marginal
    contributions row by row, here each model tells about all rows.
    """

    alpha: float = 16.0
    beta: float = 1.0
    models: int = 1_000
    least: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_models(self.models, self.seed, "BetaShapley")
        check_share(2 * self.least, "BetaShapley has 2 * least")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not isinstance(value, (int, float)) or not 0 < value < np.inf:
                raise InvalidInput(f"BetaShapley has {name}={value!r}; it is a number above zero.")

    def share_of_a_model(self, rng: np.random.Generator) -> float:
        for _ in range(10_000):
            share = rng.beta(self.beta, self.alpha)
            if self.least <= share <= 1 - self.least:
                return float(share)
        raise InvalidInput(
            f"BetaShapley has alpha={self.alpha} and beta={self.beta}, which hardly ever give shares of the rows "
            f"between {self.least} and {1 - self.least}; use smaller parameters or a smaller `least`."
        )

    def weights(self, shares: F64) -> tuple[F64, F64]:
        return 1 / shares, 1 / (1 - shares)


def with_minus_without(
    members: NDArray[np.bool_], values: F64, weight_with: F64, weight_without: F64
) -> F64:
    """(n, queries) weighted mean of values (models, queries) with each row, minus that without.

    ``members`` (models, n); ``weight_with``, ``weight_without`` (models,)
    """
    alone = np.flatnonzero(members.all(axis=0) | ~members.any(axis=0))
    if len(alone):
        raise InvalidInput(
            f"{len(alone)} training rows are in all of the {len(members)} subsets or in none, so they cannot be "
            "compared; train more models."
        )
    present = members.T * weight_with  # (n, models)
    absent = ~members.T * weight_without
    mean_with = present @ values / present.sum(axis=1, keepdims=True)
    return mean_with - absent @ values / absent.sum(axis=1, keepdims=True)
