"""Coupled losses: the gradient of a row depends on the scores of other rows of its query.

A row-wise loss gives the engine g and h of a row from that row's score. A coupled loss gives

    a = w g,  b = w h        (n,)  the terms that leaves sum, functions of all scores A, weights w
                                   and presences pi of the rows

with three steps: the loss alone (`CoupledLoss`), the loss with its rows (`CoupledTerms`, which
knows queries, labels and weights), and the terms at some scores (`Point`). What a backward pass
needs of them is one product,

    vjp:  (abar, bbar)  ->  abar . da/dx + bbar . db/dx      for x = A, w, pi

and a forward pass its transpose, `jvp`. A presence pi is a factor of everything that a row does to
others and to itself, such as its pairs: it is 1 for all rows. A row of weight 0 leaves no term of its
own, but still acts on the others of its query; a row of presence 0 does not. Numbers that come from
the order of a query, such as ranks, are held where they are.

Some losses divide by normalisers that depend on scores themselves. Their derivatives are exact but
hold in a tiny neighbourhood only, so `frozen` products hold these normalisers too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints
from ..._data.errors import UnsupportedModel
from ..losses import Additive

if TYPE_CHECKING:
    from .columns import QueryColumns

ROOM_FOR_RANKS = 4  # numbers for each row, when queries are ranked beside each other
T = TypeVar("T")
NO_STEP = -1  # stands for the step of test rows, for which nothing is drawn


@dataclass(frozen=True)
class Places:
    """Places of the training rows of a coupled loss.

    ``number``  (n,) the query of each row, from 0; those of a query lie one after the other
    ``origin``  (n,) position of each row in training
    """

    number: Ints
    origin: Ints

    @classmethod
    def of_training(cls, number: Ints) -> Places:
        """The places of all training rows, from the query (n,) of each."""
        return cls(number, np.arange(len(number)))

    def take(self, index: Ints) -> Places:
        """Those of some of the rows, in their order."""
        number = np.unique(self.number[index], return_inverse=True)[1]
        return Places(number.astype(np.intp), self.origin[index])


@dataclass(frozen=True)
class CoupledRows:
    """Rows of a coupled loss; those of a query lie one after the other.

    ``y``       (n,) labels
    ``w``       (n,) weights
    ``number``  (n,) the query of each row, from 0
    ``origin``  (n,) position of each row in training, by which losses that draw find their draws;
                empty for rows that were not in training
    """

    y: F64
    w: F64
    number: Ints
    origin: Ints

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def starts(self) -> Ints:
        """(Q,) first row of each query."""
        return np.flatnonzero(np.r_[True, self.number[1:] != self.number[:-1]])

    @cached_property
    def sizes(self) -> Ints:
        """(Q,) rows of each query."""
        return np.diff(np.r_[self.starts, len(self)])

    def sums(self, x: F64) -> F64:
        """(Q, ...) sums of x (n, ...) over the rows of each query."""
        return np.add.reduceat(x, self.starts, axis=0)

    def largest(self, x: F64) -> F64:
        """(Q,) the largest of x (n,) in each query."""
        return np.maximum.reduceat(x, self.starts)

    def spread(self, x: NDArray[Any]) -> NDArray[Any]:
        """(n, ...) the value of each row's query, from x (Q, ...)."""
        return np.repeat(x, self.sizes, axis=0)

    def ranks(self, A: F64) -> Ints:
        """(n,) places of the rows in their queries, from 0, by scores A from high to low.

        Rows with equal scores keep their order.
        """
        widest = int(self.sizes.max(initial=0))
        if len(self.sizes) * widest > ROOM_FOR_RANKS * len(self):
            order = np.lexsort((-A, self.number))
            ranks = np.empty(len(self), np.intp)
            ranks[order] = np.arange(len(self)) - self.spread(self.starts)
            return ranks
        # Query by query beside each other, which is faster than one list.
        there = np.arange(widest) < self.sizes[:, None]  # (Q, widest)
        table = np.full(there.shape, np.inf)
        table[there] = -A
        places = np.empty(there.shape, np.intp)
        order = np.argsort(table, axis=1, kind="stable")
        np.put_along_axis(places, order, np.arange(widest)[None], axis=1)
        return places[there]

    def kept(self, key: Hashable, compute: Callable[[], T]) -> T:
        """compute(), once for each key: numbers of these rows that do not change with scores."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}


@dataclass(frozen=True)
class Slopes:
    """Derivatives of some scalars in the scores, weights and presences of rows: (n, B) each."""

    scores: F64
    weights: F64
    presences: F64


class Point(Protocol):
    """The terms of a coupled loss at some scores."""

    @property
    def g(self) -> F64:
        """(n,) w g."""
        ...

    @property
    def h(self) -> F64:
        """(n,) w h, or whatever else the leaf rule divides by."""
        ...

    def vjp(self, gbar: F64, hbar: F64, frozen: bool) -> Slopes:
        """Derivatives of sum gbar g + hbar h, for gbar and hbar (n, B)."""
        ...

    def jvp(self, dA: F64, dw: F64, dpi: F64, frozen: bool) -> tuple[F64, F64]:
        """Changes (n,) of g and h for changes (n,) of scores, weights and presences."""
        ...

    def losses(self, A: F64) -> F64:
        """(Q,) losses of the queries at other scores A, with all that is held as it is here."""
        ...

    @property
    def loss_gradient(self) -> F64:
        """(n,) the gradient of these losses at the scores of this point: g, for most losses."""
        ...


@runtime_checkable
class PairPoint(Point, Protocol):
    """A point whose terms come from pairs, for leaf rules that need their weights."""

    @property
    def pairs(self) -> Any:
        """The pairs: ``a`` and ``b`` (P,)."""
        ...

    @property
    def pair_weights(self) -> F64:
        """(P,) D (w_a + w_b) / 2."""
        ...

    def pair_vjp(self, bar: F64) -> Slopes:
        """Derivatives of sum bar (weights of pairs), for bar (P, B)."""
        ...

    def pair_jvp(self, dw: F64, dpi: F64) -> F64:
        """Changes (P,) of the weights of pairs."""
        ...


@runtime_checkable
class MatrixPoint(Point, Protocol):
    """A point in which a weight changes the terms of its own row alone."""

    def score_matrices(
        self, g_factor: F64, h_factor: F64, frozen: bool, columns: QueryColumns
    ) -> F64:
        """Derivatives of `vjp` in the scores, for gbar = g_factor x and hbar = h_factor x, (n,) each.

        x is the same for rows of a column. The cells are as `QueryColumns` says: for each column what
        its x adds to the derivatives in the scores of all rows of its query.
        """
        ...

    def weight_factors(self, g_factor: F64, h_factor: F64) -> F64:
        """(n,) derivatives in the weights by the x of the row."""
        ...


class Shares(NamedTuple):
    """Derivatives in the scores and in the weights of rows, by the x of the rows of their query.

    They are own x + left . (sums over the query of right x).
    """

    right: NDArray[Any]  # (n, R)
    own: NDArray[Any]  # (n, 2) in scores and in weights
    left: NDArray[Any]  # (n, 2, R)


@runtime_checkable
class SharePoint(Point, Protocol):
    """A point in which rows act on each other through few sums over their query."""

    def shares(self, g_factor: F64, h_factor: F64) -> Shares:
        """Derivatives of `vjp` for gbar = g_factor x and hbar = h_factor x, (n,) each."""
        ...


class CoupledTerms(Protocol):
    """A coupled loss with its rows."""

    def at(self, A: F64, t: int) -> Point:
        """The terms at scores A (n,) before step t."""
        ...


# Of rows that are to be added to a ranker.
UNKNOWN_QUERY = (
    "their query is not known; train a model on the larger training set, and trace that."
)


class CoupledLoss(Additive):
    """A loss of rows that depend on each other. It has one output and is replayed by NumPy.

    Functions of single rows, which other losses have, are refused.
    """

    kernel = None
    changes = ("none", ())
    n_outputs = 1
    name: str = "coupled"
    unit = "query"  # what a group of rows is called
    whole = False  # whether all rows are one group, so that there are no queries

    def on(self, rows: CoupledRows) -> CoupledTerms:
        """The loss with its training rows."""
        raise NotImplementedError

    def for_test_rows(self) -> CoupledLoss:
        """The loss by which test rows are judged: without tables and random draws of training."""
        return self

    def response(self, state: F64) -> F64:
        return state[:, 0]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedModel(
            f"this does not work with the {self.name} loss, whose gradients depend on all rows of a {self.unit}: it "
            "looks at one row at a time. What works is influence() and top() with LeafInfluence(), LeafRefit(), "
            "Retrain() or baselines.BoostIn(), refit() and retrain()."
        )

    _refused: Any = _refuse
    value = value_gradient = gradient = _refused
    hessian = hessian_diagonal = jacobian = third_dot = third_diagonal = _refused
    label_gradient = label_hessian_dot = difference = _refused


def test_rows(y: F64, number: Ints) -> CoupledRows:
    """Rows that were not in training, with labels y and queries (m,)."""
    return CoupledRows(y, np.ones(len(y)), number, np.zeros(0, np.intp))
