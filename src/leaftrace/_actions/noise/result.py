"""The result of `label_noise`: rankings of the training rows, and the effect of acting on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.progress import progress
from ..._data.tables import table
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..common import (
    Effect,
    Finding,
    Interruptible,
    effects_table,
    mean_loss,
    measure,
    row_columns,
)

_COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label")


@dataclass(frozen=True, repr=False)
class LabelNoise(Finding):
    """Training labels that look wrong. Arrays have a place for each training row, in its order.

    ``is_label_issue``   whether the label is likely wrong: as many of the most suspicious rows as
                         confident learning counts, if another label is likelier; of numbers,
                         outlying residuals
    ``label_score``      from 0, surely wrong, to 1, surely right: the probability of the given
                         label without the row's own pull; of numbers 2^-u, 1/2 for a residual that
                         is usual for such predictions. If the ranking is another one (a validation
                         set, another score), the same values are assigned in its order
    ``given_label``, ``predicted_label``  the second is predicted without the row's own pull
    ``memorised``        from 0 to 1, how much the model has memorised its training labels
    ``validation_weight``  weight of the validation rows in the ranking; None: there were none
    ``notes``            remarks on how far these numbers can be trusted

    The names are those of cleanlab: `get_issues()` is the table of ``Datalab.get_issues("label")``
    and `indices()` gives the result of ``find_label_issues(...,
    return_indices_ranked_by="self_confidence")``, without cross-validation.
    """

    title: str
    advice: str
    is_label_issue: NDArray[np.bool_]
    label_score: F64
    given_label: NDArray[Any]
    predicted_label: NDArray[Any]
    memorised: float
    validation_weight: float | None
    notes: tuple[str, ...]
    tracer: Tracer
    _order: Ints
    _suggestion: NDArray[Any]
    _scores: dict[str, F64]
    _validation: tuple[Any, Any] | None
    _effect: Effect | None = None

    @property
    def table(self) -> Any:
        """All rows, most suspicious first."""
        return self.rank()

    @property
    def order(self) -> Ints:
        """(n,) positions of all training rows, most suspicious first."""
        return self._order

    def rank(self, k: int | None = None) -> Any:
        """The k most suspicious rows (None: all), most suspicious first."""
        return self._table_of(self._order if k is None else self._first(k))

    @property
    def issues(self) -> Any:
        """The rows whose label is likely wrong, most suspicious first."""
        return self._table_of(self.indices())

    def indices(self) -> Ints:
        """Positions of the rows whose label is likely wrong, most suspicious first."""
        return self._order[self.is_label_issue[self._order]]

    def get_issues(self) -> Any:
        """cleanlab's table: a line for each training row, in its order."""
        return table({name: getattr(self, name) for name in _COLUMNS}, self.tracer.table_kind)

    @property
    def scores(self) -> Any:
        """All scores, a line for each training row in its order; higher is more suspicious."""
        rows = row_columns(self.tracer, np.arange(self.tracer.n_rows))
        return table({**rows, **self._scores}, self.tracer.table_kind)

    @property
    def effects(self) -> Any:
        effects = [] if self._effect is None else [self._effect]
        return effects_table(effects, self.tracer.table_kind)

    def _table_of(self, rows: Ints) -> Any:
        columns = row_columns(self.tracer, rows)
        columns |= {name: getattr(self, name)[rows] for name in _COLUMNS}
        return table(columns, self.tracer.table_kind)

    def _first(self, k: int) -> Ints:
        """Positions of the k most suspicious rows."""
        if not 1 <= k <= len(self._order):
            raise InvalidInput(
                f"k is {k}; it is a number of training rows, from 1 to {len(self._order)}."
            )
        return self._order[:k]

    def confirm(
        self,
        X_hold: Any,
        y_hold: Any = None,
        *,
        k: int | None = None,
        action: Literal["relabel", "remove"] = "relabel",
        retrain: bool = True,
    ) -> LabelNoise:
        """This result with `effects`: the change of the mean loss of other rows if one acts on it.

        ``X_hold, y_hold``  other rows than the training and the validation rows
        ``k``        how many suspects, most suspicious first; None: those with a label issue
        ``action``   "relabel" gives them the best other label (of numbers, the prediction),
                     "remove" leaves them out
        ``retrain``  False: first order and refit only; nothing is confirmed then

        Ctrl-C while it retrains leaves the other effects.
        """
        if action not in ("relabel", "remove"):
            raise InvalidInput(f"action is {action!r}; it can be 'relabel' or 'remove'.")
        rows = self.indices() if k is None else self._first(k)
        if not len(rows):
            raise InvalidInput(
                "no label looks wrong, so there is nothing to confirm; say with k= how many to try."
            )
        self._check_other_rows(X_hold, y_hold)
        training = self._training_set(rows, action)
        name = f"hold-out loss, {action} {len(rows):,} rows"
        refitted = self.tracer.refit(training)
        effect = measure(self.tracer, name, X_hold, y_hold, training, refitted)
        with Interruptible():
            for _ in progress(range(1 if retrain else 0), 1, "retraining", "model"):
                after = mean_loss(self.tracer.retrain(training), X_hold, y_hold)
                effect = replace(effect, retrained=after - effect.before)
        doing = "Relabelling" if action == "relabel" else "Removing"
        verdict = _verdict(effect, f"{doing} {len(rows):,} rows")
        return replace(self, advice=" ".join([*self.notes, verdict]), _effect=effect)

    def _training_set(self, rows: Ints, action: str) -> TrainingSet:
        """The training set with these rows removed or relabelled as suggested."""
        if action == "remove":
            return self.tracer.engine.training_set(without=rows)
        given = self.tracer.y_train
        labels = given.astype(np.result_type(given, self._suggestion))
        labels[rows] = self._suggestion[rows]
        return self.tracer.engine.training_set(y=labels)

    def _check_other_rows(self, X: Any, y: Any) -> None:
        """Refuse rows that chose the suspects. They are recognised by their losses."""
        if not inputs.row_count(X):
            raise InvalidInput("X_hold has no rows; pass rows to judge by.")
        model = self.tracer.engine.unchanged
        losses = model.loss(X, y)
        choosing = {"training": (self.tracer.X_train, self.tracer.y_train)}
        if self._validation is not None:
            choosing["validation"] = self._validation
        for name, (X_chose, y_chose) in choosing.items():
            if inputs.row_count(X_chose) != len(losses):
                continue
            if np.allclose(losses, model.loss(X_chose, y_chose), rtol=1e-6):
                raise InvalidInput(
                    f"these are the {name} rows, which chose the suspects; judge on rows that did "
                    "not."
                )


def _verdict(effect: Effect, acted: str) -> str:
    """Advice after `confirm`. ``acted``: the action in words."""
    if np.isnan(effect.retrained):
        return "Not retrained, so nothing is confirmed."
    verb = "lowers" if effect.retrained < 0 else "does not lower"
    return (
        f"{acted} {verb} the hold-out loss: {effect.before:.4g} before, "
        f"{effect.retrained:+.2g} after retraining."
    )
