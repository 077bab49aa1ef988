"""Models trained with other seeds on bags of the rows, and their influence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, UnsupportedModel
from ..._engine.methods import Method
from ..._engine.queries import Of, Queries, Reduce
from ..._engine.refits_elsewhere import RefitsElsewhere
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer
from ..bags import Bag

_REDRAWS = "these models drew or weighed rows anew for each tree, and what they would have drawn of others is not known"

FitFunction = Callable[[Any, Any, np.ndarray, F64 | None], Any]


@dataclass(frozen=True)
class Member:
    """A fitted model, the seed it was made with and the training rows in its bag."""

    seed: int
    model: Any
    bag: Bag

    @property
    def rows(self) -> Ints:
        """Positions of the rows in the bag."""
        return np.flatnonzero(self.bag)

    @property
    def left_out(self) -> Ints:
        """Positions of the rows that are not in the bag."""
        return np.flatnonzero(~self.bag)


@dataclass(frozen=True)
class MemberTraining:
    """The rows that bags are drawn from, and how a model is trained on a bag."""

    X: Any
    y: np.ndarray
    sample_weight: F64 | None
    make_model: Callable[[int], Any]
    fit: FitFunction | None
    n_jobs: int | None
    eval_set: Any = None

    def train(self, seed: int, bag: Bag) -> Member:
        """Train a model with this seed on this bag."""
        model = self.make_model(seed)
        if self.fit is None and not hasattr(model, "fit"):
            raise InvalidInput(
                f"make_model({seed}) gave a {type(model).__name__}, which has no fit(); return an "
                "unfitted model, or pass fit= to say how it is trained."
            )
        fit = self.fit or _fit_as_sklearn
        rows = self._rows(bag)
        try:
            return Member(seed, fit(model, *rows), bag)
        except Exception as error:
            found = len(np.unique(rows[1]))
            if not hasattr(model, "predict_proba") or found == len(np.unique(self.y)):
                raise
            raise self._too_few_classes(seed, found) from error

    def trace(self, member: Member) -> Tracer:
        """A tracer of a member."""
        rows = self._rows(member.bag)
        tracer = Tracer(member.model, *rows, n_jobs=self.n_jobs, eval_set=self.eval_set)
        if tracer.classes is not None and len(tracer.classes) < len(np.unique(self.y)):
            raise self._too_few_classes(member.seed, len(tracer.classes))
        return tracer

    def refits(self, tracer: Tracer, member: Member) -> RefitsElsewhere:
        """The trees of a member, to be refitted on any rows: those of its bag, then the others."""
        X, y, weight = self._rows(~member.bag)
        weight = np.ones(len(y)) if weight is None else weight
        return RefitsElsewhere(tracer.engine, X, y, weight)

    def _too_few_classes(self, seed: int, found: int) -> InvalidInput:
        """An error for the bag of a member that has rows of only some classes."""
        return InvalidInput(
            f"the bag of member {seed} has rows of {found} of {len(np.unique(self.y))} classes, so not all members "
            "predict the same ones; use a larger bag, or bag=1.0 for other seeds on all rows."
        )

    def _rows(self, bag: Bag) -> tuple[Any, np.ndarray, F64 | None]:
        """Table, labels and weights of the rows in a bag."""
        rows = np.flatnonzero(bag)
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return inputs.take_rows(self.X, rows), self.y[rows], weight


def _fit_as_sklearn(model: Any, X: Any, y: np.ndarray, sample_weight: F64 | None) -> Any:
    """Fit a model as scikit-learn does; the last step of a Pipeline gets the weights."""
    if sample_weight is None:
        return model.fit(X, y)
    step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    return model.fit(X, y, **{f"{step}sample_weight": sample_weight})


@dataclass(frozen=True)
class Slopes:
    """Slopes of the queries in the scores of the test rows, of one member or in the mean over all.

    ``gradient``  (m, K)
    ``reduce``    how the test rows are made one query, as `Tracer.influence` takes it
    ``of, test_index, lower_is_better``  what results say of the queries
    """

    gradient: F64
    reduce: Reduce
    of: str
    test_index: np.ndarray
    lower_is_better: bool | None

    def named(self, found: Influence) -> Influence:
        """An influence that was asked for by the slopes, with the names of the queries."""
        return replace(
            found, of=self.of, test_index=self.test_index, lower_is_better=self.lower_is_better
        )


@dataclass(frozen=True)
class MemberQueries:
    """The test rows and the options of `Tracer.influence`, the same for every member.

    Without test rows (X is None), they are the training rows that are not in a member's bag.

    ``score_left_out``  whether a member also gives values of the rows that are not in its bag
    ``refits``          whether its trees are refitted on other rows, too; None: if they can be
    ``is_default``      whether the method was not chosen by the user
    ``note``            what is not done although it is the default, and why
    ``slopes``          of all members, at which each is asked; None: each is asked at its own
    """

    training: MemberTraining
    X: Any
    y: Any
    of: Of
    reduce: Reduce
    output: int | None
    method: Method | None
    score_left_out: bool = False
    refits: bool | None = False
    is_default: bool = False
    note: str = ""
    slopes: Slopes | None = None

    def checked(self, member: Member) -> MemberQueries:
        """The same queries, or an error if this member cannot answer them.

        If the method was not chosen by the user and the member's splits cannot give way, they are
        held fixed, and rows left out are not scored. If nothing was said of refits and the member's
        trees cannot be refitted on other rows, they are not.
        """
        engine = self.training.trace(member).engine
        several = engine.ensemble.n_outputs > 1
        if several and self.output is None and isinstance(self.of, str) and self.of == "prediction":
            raise InvalidInput(
                "members may predict other classes for a test row; say with output= which class's "
                "score is meant."
            )
        X, y = self.test_rows(member)
        engine.queries(X, y, self.of, self.reduce, self.output, None)
        if self.method is None or self.method.differentiates:
            engine.needs_derivatives()
        if self.is_default:
            try:
                _ = engine.soft_splits
            except UnsupportedModel as error:
                note = f"Splits are held fixed: {error}"
                return replace(self, method=None, score_left_out=False, refits=False, note=note)
        if self.refits is False:
            return self
        redraws = engine.ensemble.sample is not None
        if redraws and self.refits:
            raise UnsupportedModel(f"refits=True is not possible: {_REDRAWS}.")
        note = f"Trees are not refitted on other rows: {_REDRAWS}." if redraws else ""
        return replace(self, refits=not redraws, note=note)

    def at_mean_slopes(self, members: Sequence[Member]) -> MemberQueries:
        """The same queries, asked at the mean slopes of these members.

        A member that misjudges a test row has large slopes there. With its own slopes each would
        count by its error, and the largest error would decide.
        """
        found = [self._slopes(member) for member in members]
        mean = np.mean([slopes.gradient for slopes in found], axis=0)
        slopes = replace(found[0], gradient=mean)
        return replace(self, slopes=slopes)

    def _slopes(self, member: Member) -> Slopes:
        """The slopes of the queries in one member."""
        engine = self.training.trace(member).engine
        asked = self.X, self.y, self.of, self.reduce, self.output, None
        queries, test_index = engine.queries(*asked)
        reduce: Reduce = "sum" if queries.goal is not None else self.reduce
        return Slopes(queries.gradient, reduce, queries.of, test_index, queries.lower_is_better)

    def of_member(self, tracer: Tracer, member: Member) -> tuple[Queries, np.ndarray]:
        """The queries about one member, and the names of their columns."""
        asked = self.asked()
        X, y = self.test_rows(member)
        return tracer.engine.queries(X, y, asked["of"], asked["reduce"], asked.get("output"), None)

    def asked(self) -> dict[str, Any]:
        """The arguments of `Tracer.influence` by which a member is asked about the test rows."""
        if self.slopes is None:
            return {"of": self.of, "reduce": self.reduce, "output": self.output}
        return {"of": self.slopes.gradient, "reduce": self.slopes.reduce}

    def names(self, of: str, test_index: np.ndarray, reduced: bool) -> list[str]:
        """Names of the mean over the queries and, if there are several, of each."""
        if reduced:  # also by a goal, which is one number although the user gave no `reduce`
            whose = "all test rows" if self.X is not None else "the rows left out of each bag"
            return [f"{self.reduce} {of} of {whose}" if self.reduce else f"{of} of {whose}"]
        rows = [f"{of} of test row {name}" for name in test_index]
        return [f"mean {of} of {len(rows):,} test rows", *rows] if len(rows) > 1 else rows

    def own_influence(self, tracer: Tracer, member: Member, rows: Ints | None = None) -> Influence:
        """Influence of all rows in the bag, or of those at these positions in it."""
        X, y = self.test_rows(member)
        found = tracer.influence(X, y, method=self.method, rows=rows, **self.asked())
        return found if self.slopes is None else self.slopes.named(found)

    def test_rows(self, member: Member) -> tuple[Any, Any]:
        """The test rows of a member, and their labels."""
        if self.X is not None:
            return self.X, self.y
        rows = member.left_out
        return inputs.take_rows(self.training.X, rows), self.training.y[rows]
