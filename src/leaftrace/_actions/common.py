"""What the actions share: a result that prints as a table and says what to do, and the three sizes of an effect.

An effect is measured three times: *predicted* to first order from derivatives, *refitted* exactly with the trees as
they are, *retrained* for real. Only the last is a promise; the others say what it would cost to trust them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

import numpy as np

from .._data import frames
from .._data.arrays import F64
from .._data.errors import InvalidInput
from .._data.tables import columns_of, notebook, table
from .._engine.queries import Of
from .._engine.refit import AlteredModel, RetrainedModel
from .._tracer.tracer import Tracer


class Finding:
    """What an action returns: `table` is the answer, `effects` what acting on it does, `advice` what to do."""

    title: str
    advice: str

    @property
    def table(self) -> Any:
        raise NotImplementedError

    @property
    def effects(self) -> Any:
        """Changes by `predicted` (first order), `refitted` (trees fixed) and `retrained`; None if nothing was tried."""
        return None

    def __repr__(self) -> str:
        parts = [self.title, _text(self.table)]
        if self.effects is not None:
            parts += ["effects", _text(self.effects)]
        return "\n\n".join([*parts, self.advice])

    def _repr_html_(self) -> str:
        effects = [] if self.effects is None else ["effects", self.effects]
        return notebook(self.title, self.table, *effects, self.advice)


@dataclass(frozen=True)
class Effect:
    """How one number changes. NaN: not computed."""

    of: str
    before: float
    predicted: float = np.nan
    refitted: float = np.nan
    retrained: float = np.nan


def effects_table(effects: Sequence[Effect], kind: str = "") -> Any:
    """A line for each, or None where nothing was tried. ``kind`` of table, as X_train's."""
    if not effects:
        return None
    return table(
        {f.name: [getattr(effect, f.name) for effect in effects] for f in fields(effects[0])}, kind
    )


@dataclass(frozen=True)
class Change:
    """Another training set, as `Tracer.refit` and `Tracer.retrain` take it. ``y``, ``sample_weight``: for all rows."""

    without: Any = None
    y: Any = None
    sample_weight: Any = None

    def refit(self, tracer: Tracer) -> AlteredModel:
        return tracer.refit(self.without, y=self.y, sample_weight=self.sample_weight)

    def retrain(self, tracer: Tracer) -> RetrainedModel:
        return tracer.retrain(self.without, y=self.y, sample_weight=self.sample_weight)


def mean_loss(model: Tracer | AlteredModel, X: Any, y: Any) -> float:
    if isinstance(model, Tracer):
        model = model.engine.unchanged
    return float(model.loss(X, y).mean())


def first_order(tracer: Tracer, X: Any, y: Any, change: Change, of: Of = "loss") -> float:
    """The change of the mean loss of X, y (or of another goal) to first order in the weights and labels.

    sum_i (w'_i - w_i) dL/dw_i + sum_i (y'_i - y_i) dL/dy_i, with classes as label mass that goes from one to the other.
    """
    old = tracer.sample_weight
    new = tracer.sample_weight if change.sample_weight is None else change.sample_weight
    new = np.array(new, dtype=float)
    if change.without is not None:
        new[np.asarray(change.without)] = 0.0
    moved = float((new - old) @ tracer.influence(X, y, of=of, reduce="mean").values[:, 0])
    if change.y is None:
        return moved
    return moved + label_order(
        tracer, X, y, np.asarray(change.y), new / np.where(old > 0, old, 1.0), of
    )


def label_order(
    tracer: Tracer, X: Any, y: Any, labels: np.ndarray, share: F64, of: Of = "loss"
) -> float:
    """The part of `first_order` that comes from these labels (n,); rows keep this share (n,) of their weight."""
    rows = np.flatnonzero(labels != tracer.y_train)
    if not len(rows):
        return 0.0
    if tracer.classes is None:
        step = labels[rows].astype(float) - tracer.y_train[rows].astype(float)
        slopes = tracer.label_influence(X, y, of=of, reduce="mean", rows=rows).values[:, 0]
        return float((share[rows] * step) @ slopes)
    total = 0.0
    for label in np.unique(labels[rows]):
        some = rows[labels[rows] == label]
        to = None if tracer.engine.ensemble.n_outputs == 1 else label
        changes = tracer.label_influence(X, y, of=of, reduce="mean", rows=some, to=to).change[:, 0]
        total += float(share[some] @ changes)
    return total


def measure(
    tracer: Tracer,
    of: str,
    X: Any,
    y: Any,
    change: Change,
    refitted: AlteredModel,
    retrained: AlteredModel | None = None,
) -> Effect:
    """What a change of the training set does to the mean loss of X, y, with the models that came of it."""
    before = mean_loss(tracer, X, y)
    predicted = np.nan if tracer.engine.ensemble.not_smooth else first_order(tracer, X, y, change)
    after = np.nan if retrained is None else mean_loss(retrained, X, y)
    return Effect(of, before, predicted, mean_loss(refitted, X, y) - before, after - before)


def paired_interval(differences: F64, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of paired differences (m,), by Student's t."""
    m = len(differences)
    reach = student((1 - confidence) / 2, m - 1) * float(differences.std(ddof=1)) / m**0.5
    mean = float(differences.mean())
    return mean - reach, mean + reach


def student(tail: float, freedom: int) -> float:
    """What Student's t exceeds with this probability, by its expansion around the normal one (Abramowitz and Stegun
    26.7.5)."""
    from statistics import NormalDist  # which brings in a dozen modules

    z = NormalDist().inv_cdf(1 - tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**k for k, term in enumerate(terms, 1))


class Interruptible:
    """A block that Ctrl-C ends without an error, so that what was finished can be used.

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


def check_tracer(tracer: Any) -> None:
    if not isinstance(tracer, Tracer):
        raise InvalidInput(
            f"the first argument is a {type(tracer).__name__}; pass a leaftrace.Tracer of your model."
        )


def _text(x: Any) -> str:
    x = table(columns_of(x)) if frames.kind(x) else x
    if not hasattr(x, "to_string"):  # without pandas
        return "\n".join(f"{name}: {values}" for name, values in x.items())
    more = f"\n... and {len(x) - 20:,} more" if len(x) > 20 else ""
    return x.head(20).to_string(index=False, float_format="{:.4g}".format) + more
