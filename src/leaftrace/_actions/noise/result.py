"""The result of `label_noise`: rankings of the training rows, and the effect of acting on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput
from ..._data.numbers import change_text, number_text
from ..._data.progress import progress
from ..._data.tables import table
from ..._model.training_set import TrainingSet
from ..._tracer.tracer import Tracer
from ..common import Finding, Interruptible, measure, row_columns, stopping_note
from ..effects import Effect, LossUnit, effects_table, in_target_unit, judged, unit_of
from ..statistics import ONE_RETRAINING, interval_in_words, paired_interval

_COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label")


@dataclass(frozen=True, repr=False)
class LabelNoise(Finding):
    """Training labels that surprise the model. Arrays have a place for each row, in its order.

    A surprising label may be wrong, or right and rare: the model cannot tell the two apart. Whether
    relabelling helps is measured by `confirm`.

    ``is_label_issue``   whether the label is flagged as surprising: as many of the most surprising
                         rows as confident learning counts, if another label is likelier; of
                         numbers, outlying residuals
    ``label_score``      from 0, most surprising, to 1, as expected: the probability that the model
                         gives the label without the row's own pull; of numbers 2^-u, 1/2 for a
                         residual that is usual for such predictions. If the ranking is another one
                         (a validation set, another score), the same values are assigned in its
                         order
    ``given_label``, ``predicted_label``  the second is predicted without the row's own pull
    ``memorised``        from 0 to 1, how much the model has memorised its training labels
    ``validation_weight``  weight of the validation rows in the ranking; None: there were none
    ``notes``            remarks on how far these numbers can be trusted
    ``confirmed``        whether the action that `confirm` tried lowers the loss of the hold-out
                         rows, beyond chance, so that it is suggested; None: not tried
    ``interval``         95 % interval of the change of that loss, Student's t of the paired
                         differences of all hold-out rows; None: not retrained

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
    interval: tuple[float, float] | None = None

    @property
    def confirmed(self) -> bool | None:
        return None if self.interval is None else self.interval[1] < 0

    @property
    def table(self) -> Any:
        """All rows, most surprising first."""
        return self.rank()

    @property
    def order(self) -> Ints:
        """(n,) positions of all training rows, most surprising first."""
        return self._order

    def rank(self, k: int | None = None) -> Any:
        """The k most surprising rows (None: all), most surprising first."""
        return self._table_of(self._order if k is None else self._first(k))

    @property
    def issues(self) -> Any:
        """The rows whose label is flagged, most surprising first."""
        return self._table_of(self.indices())

    def indices(self) -> Ints:
        """Positions of the rows whose label is flagged, most surprising first."""
        return self._order[self.is_label_issue[self._order]]

    def get_issues(self) -> Any:
        """cleanlab's table: a line for each training row, in its order."""
        return table({name: getattr(self, name) for name in _COLUMNS}, self.tracer.table_kind)

    @property
    def scores(self) -> Any:
        """All scores, a line for each training row in its order; higher is more surprising."""
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
        """Positions of the k most surprising rows."""
        if not inputs.is_whole(k) or not 1 <= k <= len(self._order):
            raise InvalidInput(
                f"k is {k!r}; it is a number of training rows, from 1 to {len(self._order)}."
            )
        return self._order[: int(k)]

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

        The advice suggests the action only if the model, retrained with it, has a lower loss on
        these rows beyond chance; `confirmed` says whether it has.

        ``X_hold, y_hold``  other rows than the training and the validation rows, with labels that
                     can be trusted
        ``k``        how many rows, most surprising first; None: those that are flagged
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
                "no label is flagged, so there is nothing to confirm; say with k= how many to try."
            )
        self._check_other_rows(X_hold, y_hold)
        training = self._training_set(rows, action)
        name = f"hold-out loss, {action} {len(rows):,} rows"
        refitted = self.tracer.refit(training)
        effect = measure(self.tracer, name, X_hold, y_hold, training, refitted)
        interval = None
        with Interruptible():
            for _ in progress(range(1 if retrain else 0), 1, "retraining", "model"):
                after = self.tracer.retrain(training).loss(X_hold, y_hold)
                differences = after - self.tracer.engine.unchanged.loss(X_hold, y_hold)
                interval = paired_interval(differences)
                effect = replace(effect, retrained=float(differences.mean()))
        unit = unit_of(self.tracer.engine.criterion)
        verdict = _verdict(effect, interval, unit, action, len(rows))
        advice = " ".join([*self.notes, verdict]) + stopping_note(self.tracer, retrain)
        loss = self.tracer.engine.criterion
        shown = in_target_unit(judged(effect, interval), loss)
        return replace(self, advice=advice, interval=interval, _effect=shown)

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


def _verdict(
    effect: Effect,
    interval: tuple[float, float] | None,
    unit: LossUnit,
    action: str,
    count: int,
) -> str:
    """Advice after `confirm`: the action is suggested only if the hold-out rows confirm it."""
    doing = f"{'Relabelling' if action == 'relabel' else 'Removing'} {count:,} rows"
    if interval is None:
        return f"Not retrained, so nothing is confirmed and to {action} rows is not suggested."
    low, high = interval
    before = effect.before
    change = (
        f"retrained, the hold-out {unit.renamed('loss')} of {number_text(unit.level(before), 4)} changes by "
        f"{change_text(unit.change(before, effect.retrained), 3)} "
        f"({interval_in_words(*unit.interval(before, low, high))})"
    )
    if high < 0:
        return f"{doing} is suggested: {change}. {ONE_RETRAINING} Look at some of them first."
    if low > 0:
        return f"{doing} does harm: {change}. Keep them as they are."
    return (
        f"The hold-out does not confirm that {doing.lower()} helps: {change}. "
        "Keep them as they are."
    )
