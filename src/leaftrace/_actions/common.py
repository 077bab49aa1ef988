"""Parts that all actions share: a result that prints as a table with advice, and effects on losses."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from .._data import frames
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput
from .._data.numbers import number_text
from .._data.tables import columns_of, notebook, table
from .._engine.queries import Of
from .._engine.refit import AlteredModel
from .._model.training_set import TrainingSet
from .._tracer.label_answers import label_changes
from .._tracer.tracer import Tracer
from .effects import EFFECTS_CAPTION, Effect, shown_effects

_PRINTED = 20  # lines of a table


class Finding:
    """The result of an action.

    ``table``    the answer
    ``effects``  how numbers change if one acts on it
    ``advice``   a recommendation in words
    """

    title: str
    advice: str

    @property
    def table(self) -> Any:
        raise NotImplementedError

    @property
    def shown(self) -> Any:
        """The answer as people read it; tables with changes call them changes."""
        return self.table

    @property
    def effects(self) -> Any:
        """Numbers before and after, their change by the last way of measuring that was computed,
        and the change by each way: `predicted` (first order), `refitted` (trees fixed) and
        `retrained`. None if nothing was tried.
        """
        return None

    def __repr__(self) -> str:
        parts = [self.title, _as_text(self.shown)]
        if self.effects is not None:
            parts += [EFFECTS_CAPTION, _as_text(shown_effects(self.effects))]
        return "\n\n".join([*parts, self.advice])

    def _repr_html_(self) -> str:
        effects = []
        if self.effects is not None:
            effects = [EFFECTS_CAPTION, shown_effects(self.effects)]
        return notebook(self.title, self.shown, *effects, self.advice)


def _as_text(lines: Any) -> str:
    """A table as text, for `print`."""
    if frames.kind(lines) or isinstance(lines, dict):
        lines = table(columns_of(lines))
    if not hasattr(lines, "to_string"):  # without pandas
        return "\n".join(f"{name}: {values}" for name, values in lines.items())
    text = lines.head(_PRINTED).to_string(index=False, float_format=number_text)
    left_out = len(lines) - _PRINTED
    return f"{text}\n... and {left_out:,} more" if left_out > 0 else text


def mean_loss(model: Tracer | AlteredModel, X: Any, y: Any) -> float:
    """Mean loss of the rows X with labels y."""
    if isinstance(model, Tracer):
        model = model.engine.unchanged
    return float(model.loss(X, y).mean())


def first_order(tracer: Tracer, X: Any, y: Any, training: TrainingSet, of: Of = "loss") -> float:
    """Change of the mean loss of X, y, or of another goal, to first order in weights and labels.

        sum_i (w'_i - w_i) dL/dw_i + sum_i (y'_i - y_i) dL/dy_i

    A new class counts as label mass that moves from one class to the other.
    """
    old = tracer.sample_weight
    new = np.array(training.all_weights(old), dtype=float)
    new[training.removed] = 0.0
    moved = float((new - old) @ tracer.influence(X, y, of=of, reduce="mean").values[:, 0])
    if training.y is None:
        return moved
    share = new / np.where(old > 0, old, 1.0)
    return moved + _first_order_of_labels(tracer, X, y, training.y, share, of)


def _first_order_of_labels(
    tracer: Tracer, X: Any, y: Any, labels: np.ndarray, share: F64, of: Of
) -> float:
    """The part of `first_order` that comes from new labels (n,).

    ``share`` (n,): how much of its weight each row keeps.
    """
    rows = np.flatnonzero(labels != tracer.y_train)
    if not len(rows):
        return 0.0
    return float(share[rows] @ label_changes(tracer, X, y, rows, labels[rows], of))


def measure(
    tracer: Tracer,
    of: str,
    X: Any,
    y: Any,
    training: TrainingSet,
    refitted: AlteredModel,
    retrained: AlteredModel | None = None,
) -> Effect:
    """Effect of another training set on the mean loss of X, y.

    ``of``                   name of the effect
    ``refitted, retrained``  the models of that training set
    """
    before = mean_loss(tracer, X, y)
    predicted = np.nan
    if not tracer.engine.ensemble.not_smooth:
        predicted = first_order(tracer, X, y, training)
    after = np.nan if retrained is None else mean_loss(retrained, X, y)
    return Effect(of, before, predicted, mean_loss(refitted, X, y) - before, after - before)


def stopping_note(tracer: Tracer, retrained: bool = True) -> str:
    """A sentence about early stopping in the tracer's retrainings, after a space; or nothing.

    ``retrained``: whether the result it is for has any.
    """
    note = tracer.engine.retrainings.in_words() if retrained else ""
    return f" {note}" if note else ""


class Interruptible:
    """A block that Ctrl-C ends without an error, so that finished results can be used.

    >>> with Interruptible() as run:                      # doctest: +SKIP
    ...     for item in items:
    ...         done.append(work(item))
    >>> run.interrupted                                   # doctest: +SKIP
    """

    interrupted = False

    def __enter__(self) -> Interruptible:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        return self.interrupted


def row_columns(tracer: Tracer, rows: Ints) -> dict[str, Any]:
    """Columns of a table that name the training rows at these positions."""
    return {"train_row": tracer.train_index[rows], "position": rows}


def check_tracer(tracer: Any, one_label: str = "") -> None:
    """Raise an error unless the first argument of an action is a tracer.

    ``one_label``: the name of an action that is for models of one label and one prediction a row,
    and for losses of single rows.
    """
    if not isinstance(tracer, Tracer):
        raise InvalidInput(
            f"the first argument is a {type(tracer).__name__}; pass a leaftrace.Tracer of your "
            "model."
        )
    e = tracer.engine.ensemble
    if one_label:
        tracer.engine.needs_separate_rows(one_label)
    if one_label and (e.y.ndim == 2 or e.loss.several_numbers):
        raise InvalidInput(
            f"{one_label} is for models that predict one number or class for a row; this one has {e.n_outputs} outputs "
            f"and {1 if e.y.ndim == 1 else e.y.shape[1]} label(s) a row. Use tracer.influence, refit or retrain."
        )
