"""The state of an explorer: the model, the test rows, and what is kept between requests.

Answers that depend on the training rows are computed under one lock, a model at a time, so that a
short question never waits for more than one refit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from ..._actions.effects import LossUnit, unit_of
from ..._adapters.class_names import given_names
from ..._data import inputs
from ..._data.arrays import F64, Ids, Real
from ..._data.cells import open_cell_tables, short
from ..._data.errors import InvalidInput
from ..._engine.refit import RefittedModel
from ..._model.ensemble import Ensemble
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer
from ..column_use import column_uses
from ..report.errors import error_of
from ..report.explained_rows import ExplainedRows, choose_rows
from ..report.outcomes import Outcomes, outcomes_of

MEAN = -1  # in the place of a test row's position: all test rows
KEPT_INFLUENCES = 8
KEPT_MODELS = 64
KEPT_SCORES = 4
KEPT_LEAVES = 128_000_000  # bytes
Value = TypeVar("Value")


class Recent(Generic[Value]):
    """A cache of the values that were used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there."""
        if key not in self._values:
            self._values[key] = make()
        self._values.move_to_end(key)
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return self._values[key]

    def known(self, key: Hashable) -> Value | None:
        """The value of a key if it is there."""
        return self._values.get(key)


class Session:
    """A tracer with labelled test rows.

    ``rows``          the test rows with the model's own predictions; `chosen` has all, worst first
    ``train, test``   cells of both tables
    ``before``        (m, K) scores that changes are measured from: those of the model refitted on its
                      own training rows, which has no rounding that another refit would not have
    ``use``           (columns,) how far the model uses each column; None: not known
    ``verdicts``      what a reviewer said about labels, by position of the training row
    ``lock``          held while something is computed
    """

    def __init__(self, tracer: Tracer, X_test: Any, y_test: Any) -> None:
        m = inputs.row_count(X_test)
        y = tracer.engine.test_labels(X_test, y_test)
        if y is None or m == 0:
            raise InvalidInput(
                "the explorer shows losses, so it needs test rows with their labels; pass X_test and "
                "y_test with at least one row."
            )
        self.tracer = tracer
        self.rows: ExplainedRows = choose_rows(
            tracer, X_test, inputs.vector(y, "y_test", m), None, m
        )
        self.train, self.test = open_cell_tables(tracer.X_train, X_test, ())
        self.use = column_uses(tracer, X_test, self.test)
        self.verdicts: dict[int, str] = {}
        self.lock = threading.RLock()
        self.before: F64 = self.scores(tracer.engine.unchanged.ensemble)
        self._influences: Recent[Influence] = Recent(KEPT_INFLUENCES)
        self.models: Recent[Ensemble] = Recent(KEPT_MODELS)
        self.answers: Recent[Any] = Recent(KEPT_MODELS)
        self.last_scores: Recent[F64] = Recent(KEPT_SCORES)

    # ---- sizes and names ----

    @property
    def m(self) -> int:
        """Number of test rows."""
        return len(self.rows.outcomes.scores)

    @property
    def outcomes(self) -> Outcomes:
        """The model's own predictions for the test rows."""
        return self.rows.outcomes

    @property
    def loss(self) -> F64:
        """(m,) loss of each test row."""
        assert self.outcomes.loss is not None
        return self.outcomes.loss

    @property
    def unit(self) -> LossUnit:
        """How people read these losses: squared errors as their root, in the unit of the target."""
        return unit_of(self.tracer.engine.criterion)

    @property
    def size(self) -> F64:
        """(m,) loss of each test row as the page shows it: of squared errors, the error."""
        return self.unit.level(self.loss)

    @property
    def codes(self) -> F64:
        """(m,) labels of the test rows as the loss takes them."""
        assert self.outcomes.codes is not None
        return self.outcomes.codes

    @property
    def classes(self) -> np.ndarray | None:
        """(C,) labels of the classes, as users spell them; None: the model predicts numbers."""
        names = given_names(self.tracer.engine.source)
        return self.outcomes.classes if names is None else names

    def class_texts(self) -> list[Any] | None:
        """Labels of the classes for a page."""
        return None if self.classes is None else [short(c) for c in self.classes]

    def check_row(self, position: Any) -> int:
        """A position of a test row that was asked for."""
        if not isinstance(position, int) or not 0 <= position < self.m:
            raise InvalidInput(
                f"there is no test row {position}; positions go from 0 to {self.m - 1}."
            )
        return position

    # ---- scores of other models ----

    def placed(self) -> tuple[Ids, F64 | None]:
        """Leaves (trees, m) and given scores of the test rows; they are kept if they fit."""
        placed: tuple[Ids, F64 | None] | None = getattr(self, "_leaves", None)
        if placed is None:
            placed = self.tracer.engine.source.rows(self.rows.X)
            if placed[0].nbytes <= KEPT_LEAVES:
                self._leaves = placed
        return placed

    def scores(self, ensemble: Ensemble) -> F64:
        """(m, K) scores of the test rows by a model with other leaf values."""
        with self.lock:
            return ensemble.scores(*self.placed())

    def describe(self, outcomes: Outcomes, j: int) -> dict[str, Any]:
        """The prediction for row j of these outcomes, with its error where losses are squared ones."""
        facts = outcomes.describe(j)
        return facts | {"error": error_of(facts["loss"])} if self.unit.squared else facts

    def read(self, F: F64, positions: Any = slice(None)) -> Outcomes:
        """The predictions that scores F of these test rows stand for."""
        return outcomes_of(self.tracer.engine.reading, F, self.codes[positions])

    # ---- influence ----

    def influence(self, position: int) -> Influence:
        """Influence of all training rows on the loss of a test row, or with MEAN of all of them."""
        with self.lock:
            return self._influences.get(position, lambda: self._compute(position))

    def _compute(self, position: int) -> Influence:
        if position == MEAN:
            return self.tracer.influence(self.rows.X, self.rows.y, reduce="mean")
        return self.explained(position).influence(np.array([0]))

    def slopes(self, position: int) -> Real:
        """(n,) derivatives of that loss in the weights of the training rows."""
        return self.influence(position).values[:, 0]

    def explained(self, position: int) -> ExplainedRows:
        """One of the test rows, as the report explains rows."""
        return replace(self.rows, chosen=np.array([position]), chosen_by="asked for")

    def refitted(self, key: str, make: Callable[[], RefittedModel]) -> Ensemble:
        """The leaf values of a basket's refit, kept by the basket's hash."""
        with self.lock:
            return self.models.get(key, lambda: make().ensemble)
