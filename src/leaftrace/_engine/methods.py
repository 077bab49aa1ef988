"""Methods and update sets: small values that describe what to compute.

The paper's family is two methods times an update set U^t, the rows whose accumulated changes are
used at step t. FastLeafRefit and FastLeafInfluence are LeafRefit and LeafInfluence with another
update set than AllPoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from .._data.arrays import Ints, Real
from .._data.errors import InvalidInput
from .._model.splits import TreeNodes
from .queries import Queries
from .subset_training import SubsetTraining
from .workspace import Workspace

# The meaning of a method's values: dQ/dw_i; Q(with) - Q(without); or numbers of which only the
# order has a meaning.
Gives = Literal["derivatives", "changes", "scores"]


@dataclass(frozen=True)
class AllPoints:
    """Every row's change is used, which is exact."""


@dataclass(frozen=True)
class SinglePoint:
    """No row's change is used, only the direct effect of the row in question."""


@dataclass(frozen=True)
class TopKLeaves:
    """The rows of the k leaves of each tree with the largest sums of absolute changes are used.

    Among leaves with equal sums, those with lower numbers come first.

    ``sample``      estimate those sums from this many rows, drawn anew for each step (with
                    ``seed``)
    ``accumulate``  "all": changes accumulate for every row (the paper's text); "updated": only for
                    rows of the update set and the row in question (the authors' and CatBoost's
                    code)
    """

    k: int
    sample: int | None = None
    accumulate: Literal["all", "updated"] = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or self.k < 1:
            raise InvalidInput(
                f"TopKLeaves has k={self.k!r}; k is the number of leaves, 1 or more."
            )
        if self.sample is not None and (not isinstance(self.sample, int) or self.sample < 1):
            raise InvalidInput(
                f"TopKLeaves has sample={self.sample!r}; it is a number of rows, or None for all."
            )
        if self.accumulate not in ("all", "updated"):
            raise InvalidInput(
                f"TopKLeaves has accumulate={self.accumulate!r}; it can be 'all' or 'updated'."
            )


UpdateSet = AllPoints | SinglePoint | TopKLeaves


@dataclass(frozen=True)
class _WithUpdateSet:
    """A method of the paper's family."""

    update_set: UpdateSet = field(default_factory=AllPoints)

    def __post_init__(self) -> None:
        if not isinstance(self.update_set, (AllPoints, SinglePoint, TopKLeaves)):
            raise InvalidInput(
                f"{type(self).__name__} has the update set {self.update_set!r}; "
                "it can be AllPoints(), SinglePoint() or TopKLeaves(k)."
            )


@dataclass(frozen=True)
class LeafInfluence(_WithUpdateSet):
    """dQ/dw_i: the derivative of the query in the weight of a row, tree structures fixed.

    Two settings are for losses that couple rows, such as those of rankers:

    ``normalisers``  "frozen": normalisers of pairs and queries that depend on scores are held, which
                     predicts what happens without a query better; "exact": they are differentiated,
                     too, which is the derivative itself
    ``change``       "weight": of the row alone, which stays in the pairs of its query; "presence":
                     in all its pairs, so that it also leaves the gradients of the others, at the
                     ranks they have
    """

    normalisers: Literal["frozen", "exact"] = "frozen"
    change: Literal["weight", "presence"] = "weight"
    gives: ClassVar[Gives] = "derivatives"
    differentiates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalisers not in ("frozen", "exact"):
            raise InvalidInput(
                f"LeafInfluence has normalisers={self.normalisers!r}; it can be 'frozen' or 'exact'."
            )
        if self.change not in ("weight", "presence"):
            raise InvalidInput(
                f"LeafInfluence has change={self.change!r}; it can be 'weight' or 'presence'."
            )

    def __repr__(self) -> str:
        settings = [f"update_set={self.update_set!r}"]
        if self.normalisers != "frozen":
            settings.append(f"normalisers={self.normalisers!r}")
        if self.change != "weight":
            settings.append(f"change={self.change!r}")
        return f"LeafInfluence({', '.join(settings)})"


@dataclass(frozen=True)
class StructureInfluence:
    """dQ/dw_i of the model that retraining is expected to give, in which splits give way.

    Training chooses the split of highest gain at each node. Here each candidate split has the
    probability softmax(gain / tau), and the derivative goes through these choices, too. tau is
    ``temperature`` times the spread of the gain over random halves of the node's rows, so that 1
    needs no tuning; towards 0 the choices, and with them the method, become those of
    `LeafInfluence`.
    """

    temperature: float = 1.0
    gives: ClassVar[Gives] = "derivatives"
    differentiates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.temperature, (int, float)) and 0 < self.temperature < np.inf):
            raise InvalidInput(
                f"StructureInfluence has temperature={self.temperature!r}; it is a number above 0, and 1 needs no "
                "tuning."
            )


@dataclass(frozen=True)
class LeafRefit(_WithUpdateSet):
    """Q(with) - Q(without) by refitting every leaf value without the row, tree structures fixed."""

    gives: ClassVar[Gives] = "changes"
    differentiates: ClassVar[bool] = False


@dataclass(frozen=True)
class Retrain:
    """Q(with) - Q(without) by training again without the row, with the model's own parameters.

    ``time_limit``  seconds after which no more model is trained: the answer is then about the first
                    rows that were asked for, as many as were done
    """

    time_limit: float | None = None
    gives: ClassVar[Gives] = "changes"
    differentiates: ClassVar[bool] = False

    def __repr__(self) -> str:
        limit = "" if self.time_limit is None else f"time_limit={self.time_limit}"
        return f"Retrain({limit})"


class Baseline(ABC):
    """A published method to compare with, which computes its values itself: see `baselines`.

    Rows that hurt have positive values, as with all methods.
    """

    gives: ClassVar[Gives] = "scores"
    # Whether it needs df/dw, which leaves that are quantiles do not have.
    differentiates: ClassVar[bool] = False

    @abstractmethod
    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        """(rows, queries) values of all training rows, or of those in `index`.

        ``classes``: labels of a classifier, or None.
        """


class RetrainingBaseline(ABC):
    """A published method that trains the model again on other rows: see `baselines`."""

    gives: ClassVar[Gives] = "scores"
    differentiates: ClassVar[bool] = False

    @abstractmethod
    def values(self, training: SubsetTraining, queries: Queries, index: Ints) -> Real:
        """(rows, queries) values of the training rows in `index`."""


class SplitBaseline(ABC):
    """A published method that needs the inner nodes of the trees: see `baselines`."""

    gives: ClassVar[Gives] = "scores"
    differentiates: ClassVar[bool] = True

    @abstractmethod
    def values(
        self, work: Workspace, trees: Sequence[TreeNodes], queries: Queries, index: Ints
    ) -> Real:
        """(rows, queries) values of the training rows in `index`. ``trees``: of the model."""


Method = (
    LeafInfluence
    | StructureInfluence
    | LeafRefit
    | Retrain
    | Baseline
    | RetrainingBaseline
    | SplitBaseline
)

FastLeafInfluence = LeafInfluence
FastLeafRefit = LeafRefit


def moves_leaves(method: Method) -> bool:
    """Whether a method knows how leaf values move, the trees being fixed."""
    if isinstance(method, LeafInfluence):
        return runs_backward(method)
    return isinstance(method, LeafRefit)


def runs_backward(method: Method) -> bool:
    """Whether a method gives all training rows at once by a backward pass."""
    if isinstance(method, LeafInfluence):
        return not isinstance(method.update_set, TopKLeaves)
    return isinstance(method, StructureInfluence)
