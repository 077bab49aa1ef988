"""Label noise: which training labels are likely wrong, and what they should rather be.

The default score is a label's surprise without the row's own pull on its leaves, after the last step and, the more the
model has learnt its labels by heart, on average over the boosting path; validation rows that are cleaner than the
training rows add the ranks of what relabelling would gain on them, weighed by how much cleaner they are. It was chosen
because it finds spoilt labels at least as well as the paper's Detector (ROC-AUC) in all 48 runs of
`experiments/action_noise.py`, far better where models overfit or have class weights, and better than mean influence in
45 of them.
"""

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
from ..._data.wording import words
from ..._tracer.tracer import Tracer
from ..common import (
    Change,
    Effect,
    Finding,
    Interruptible,
    check_tracer,
    effects_table,
    mean_loss,
    measure,
)
from .suspicion import (
    Evidence,
    class_labels,
    cleaner,
    confident_count,
    exact_self_influence,
    gather,
    ranks,
    relabel_gains,
    suggest,
)

OF_VALIDATION = ("influence", "relabel")
SCORES = (
    "default", "detector", "left_out", "path", "margin", "loss", "gradient", "self_influence", "self_influence_exact",
    *OF_VALIDATION,
)  # fmt: skip
OUTLYING = (
    3.5 * 1.4826
)  # median |residuals|: the modified z-score of 3.5 (Iglewicz and Hoaglin, 1993)


def label_noise(
    tracer: Tracer, X_val: Any = None, y_val: Any = None, *, score: str = "default"
) -> LabelNoise:
    """Rank the training rows by how likely their label is wrong, say which are, and suggest better labels.

    >>> noise = label_noise(tracer)                                 # doctest: +SKIP
    >>> noise.issues                                                # doctest: +SKIP
    >>> noise.confirm(X_holdout, y_holdout).effects                 # doctest: +SKIP

    ``X_val, y_val``  rows with labels you trust more than the training labels; None: do without. Rows with the same
                      noise tell nothing, and are found out and left aside
    ``score``         what to rank by, higher being more suspicious:
        "default"         without the row's own pull, after the last step and over the path: see the module
        "detector"        1 - P(given label) by the model as it is (the paper's Detector); of numbers, |residual|
        "left_out"        the same without the row's own pull on its leaves
        "path"            the same on average over the boosting path
        "margin", "loss", "gradient"  means over the path, own pull included: minus the margin of the given label
                          (area under the margin), the loss, the size of its gradient
        "self_influence"  how the row's own loss rises without its own pull: the direct effect, other rows as they are
        "self_influence_exact"  the same to first order, through all rows: n queries (see `tracer.estimate`)
        "influence", "relabel"  on the mean loss of X_val, y_val: the row's influence; what its suggested label gains

    Class weights are taken out of probabilities. Models without derivatives (quantile losses) have no own pull and no
    influences; the result says so.
    """
    check_tracer(tracer)
    if score not in SCORES:
        raise InvalidInput(f"score is {score!r}; it can be {', '.join(map(repr, SCORES))}.")
    if X_val is None and (y_val is not None or score in OF_VALIDATION):
        raise InvalidInput(
            "this needs the rows of a validation set; pass X_val, and its labels y_val."
        )
    evidence = gather(tracer)
    suggestion = suggest(tracer, evidence)
    smooth = not tracer.engine.ensemble.not_smooth
    scores = {"default": evidence.surprise, **evidence.scores}
    weight = None
    if score in OF_VALIDATION:
        tracer.engine.needs_derivatives()
    if X_val is not None and smooth:
        scores["influence"] = (
            tracer.influence(X_val, y_val, reduce="mean").values[:, 0].astype(float)
        )
        scores["relabel"] = relabel_gains(tracer, X_val, y_val, suggestion)
        weight = cleaner(tracer, evidence, X_val, y_val)
        if weight > 0:
            scores["default"] = ranks(evidence.surprise) + weight * ranks(scores["relabel"])
    if score == "self_influence_exact":
        scores[score] = exact_self_influence(tracer)
    quality, disagrees, count = judge(tracer, evidence)
    # The i-th most suspicious row gets the i-th lowest quality: each its own, where the order is that of the surprise.
    order = np.lexsort((quality, -scores[score]))
    label_score = np.empty_like(quality)
    is_label_issue = np.zeros(tracer.n_rows, bool)
    label_score[order] = np.sort(quality)
    is_label_issue[order[:count]] = disagrees[order[:count]]
    numbers = evidence.view.ndim == 1
    issues = int(is_label_issue.sum())
    notes = _notes(tracer, evidence, weight, X_val is not None, is_label_issue)
    return LabelNoise(
        title=f"Label noise: {issues:,} of {tracer.n_rows:,} training labels look wrong",
        advice=_advice(notes, issues),
        is_label_issue=is_label_issue,
        label_score=label_score,
        given_label=tracer.y_train,
        predicted_label=evidence.view
        if numbers
        else class_labels(tracer)[evidence.view.argmax(axis=1)],
        memorised=evidence.memorised,
        validation_weight=weight,
        notes=notes,
        tracer=tracer,
        _order=order,
        _suggestion=suggestion,
        _scores=scores,
        _validation=None if X_val is None else (X_val, y_val),
    )


def judge(tracer: Tracer, evidence: Evidence) -> tuple[F64, NDArray[np.bool_], int]:
    """Of each label (n,) how good it is, from 0 to 1, and whether the model is against it; how many are wrong.

    Classes: P(given label), another being likelier, and the count of confident learning. Numbers: 2^-u with u in
    units of the spread, an outlying residual, and how many there are."""
    if evidence.view.ndim == 1:
        outlying = evidence.surprise > OUTLYING
        return 2.0**-evidence.surprise, outlying, int(outlying.sum())
    codes = tracer.engine.ensemble.y.astype(int)
    return (
        1 - evidence.surprise,
        evidence.view.argmax(axis=1) != codes,
        confident_count(evidence.view, codes),
    )


def _notes(
    tracer: Tracer,
    evidence: Evidence,
    weight: float | None,
    validation: bool,
    issue: NDArray[np.bool_],
) -> tuple[str, ...]:
    notes = []
    m = evidence.memorised
    if tracer.engine.ensemble.rule.statistic is not None:
        notes.append(
            "Leaves of this model are quantiles, without derivatives: rows keep their own pull on them."
        )
    elif m > 0.5:
        notes.append(
            f"The model has learnt much of its training labels by heart ({m * m:.0%} of the fit is each row's own "
            "doing): wrong labels hide better in it than in a smaller one."
        )
    if validation and weight is None:
        notes.append("The validation rows were not used: this model has no derivatives.")
    elif weight == 0:
        notes.append(
            "The validation rows were not used: their labels surprise the model as much as the training labels do "
            "without their own pull, so they are as noisy, or the model is overfitted."
        )
    if evidence.view.ndim == 2 and issue.mean() > 0.25:
        notes.append(
            "So many flags are mostly rows whose class the model cannot tell, rather than wrong labels."
        )
    if evidence.view.ndim == 2:
        codes = tracer.engine.ensemble.y.astype(int)
        for c, label in enumerate(class_labels(tracer)):
            if issue[codes == c].any() and (share := issue[codes == c].mean()) > 0.5:
                notes.append(
                    f"Of the rows labelled {label}, {share:.0%} look wrong: acting on all leaves few of them."
                )
    return tuple(notes)


@dataclass(frozen=True, repr=False)
class LabelNoise(Finding):
    """What is wrong with the training labels. Arrays have a place for each training row, in its order.

    ``is_label_issue``   whether the label is likely wrong: as many of the most suspicious rows as confident learning
                         counts, as far as another label is likelier; of numbers, outlying residuals
    ``label_score``      from 0, surely wrong, to 1, surely right: the probability of the given label without the row's
                         own pull; of numbers 2^-u, 1/2 for a residual that is usual where it is. Where the order is
                         not that of these (a validation set, another score), they are dealt out in the order
    ``given_label``, ``predicted_label``  the second as the model would say without the row's own pull
    ``memorised``        from 0 to 1, how much the model has learnt its training labels by heart
    ``validation_weight``  of the validation rows in the order; None: there were none
    ``notes``            what to know about these numbers

    The names are those of cleanlab: `get_issues()` is the table of ``Datalab.get_issues("label")`` and `indices()` what
    ``find_label_issues(..., return_indices_ranked_by="self_confidence")`` gives, without cross-validation.
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
        return self._columns(self._order if k is None else self._order[: self._count(k)])

    @property
    def issues(self) -> Any:
        """The rows whose label is likely wrong, most suspicious first."""
        return self._columns(self.indices())

    def indices(self) -> Ints:
        """Their positions."""
        return self._order[self.is_label_issue[self._order]]

    def get_issues(self) -> Any:
        """cleanlab's table: a line for each training row, in its order."""
        columns = ("is_label_issue", "label_score", "given_label", "predicted_label")
        return table({name: getattr(self, name) for name in columns}, self.tracer.table_kind)

    @property
    def scores(self) -> Any:
        """All single scores, a line for each training row in its order; higher is more suspicious."""
        return table({"train_row": self.tracer.train_index, **self._scores}, self.tracer.table_kind)

    def _columns(self, rows: Ints) -> Any:
        names = ("is_label_issue", "label_score", "given_label", "predicted_label")
        columns = {
            "train_row": self.tracer.train_index[rows],
            **{n: getattr(self, n)[rows] for n in names},
        }
        return table(columns, self.tracer.table_kind)

    def _count(self, k: int) -> int:
        if not 1 <= k <= len(self._order):
            raise InvalidInput(
                f"k is {k}; it is a number of training rows, from 1 to {len(self._order)}."
            )
        return k

    # ---- acting on it ----

    def confirm(
        self,
        X_hold: Any,
        y_hold: Any = None,
        *,
        k: int | None = None,
        action: Literal["relabel", "remove"] = "relabel",
        retrain: bool = True,
    ) -> LabelNoise:
        """This result with `effects`: what acting on the suspects does to the mean loss of rows that chose nothing.

        ``X_hold, y_hold``  other rows than the training and the validation rows
        ``k``        how many suspects, most suspicious first; None: those with a label issue
        ``action``   "relabel" gives them the best other label (of numbers, the prediction), "remove" leaves them out
        ``retrain``  False: first order and refit only; nothing is confirmed then

        Ctrl-C while it retrains leaves the other effects.
        """
        if action not in ("relabel", "remove"):
            raise InvalidInput(f"action is {action!r}; it can be 'relabel' or 'remove'.")
        rows = self.indices() if k is None else self._order[: self._count(k)]
        if not len(rows):
            raise InvalidInput(
                "no label looks wrong, so there is nothing to confirm; say with k= how many to try."
            )
        self._other_rows(X_hold, y_hold)
        y = self.tracer.y_train.astype(np.result_type(self.tracer.y_train, self._suggestion))
        y[rows] = self._suggestion[rows]
        change = Change(without=rows) if action == "remove" else Change(y=y)
        tracer = self.tracer
        name = f"hold-out loss, {action} {len(rows):,} rows"
        effect = measure(tracer, name, X_hold, y_hold, change, change.refit(tracer))
        with Interruptible():
            for one in progress([change] if retrain else [], 1, "retraining", "model"):
                effect = replace(
                    effect, retrained=mean_loss(one.retrain(tracer), X_hold, y_hold) - effect.before
                )
        acted = f"{'Relabelling' if action == 'relabel' else 'Removing'} {len(rows):,} rows"
        return replace(self, advice=_advice(self.notes, len(rows), effect, acted), _effect=effect)

    def _other_rows(self, X: Any, y: Any) -> None:
        """Rows are known by their losses."""
        if not inputs.row_count(X):
            raise InvalidInput("X_hold has no rows; pass rows to judge by.")
        model = self.tracer.engine.unchanged
        losses = model.loss(X, y)
        known = {"training": (self.tracer.X_train, self.tracer.y_train)}
        known |= {} if self._validation is None else {"validation": self._validation}
        for name, data in known.items():
            if inputs.row_count(data[0]) == len(losses) and np.allclose(
                losses, model.loss(*data), rtol=1e-6
            ):
                raise InvalidInput(
                    f"these are the {name} rows, which chose the suspects; judge on rows that did not."
                )

    @property
    def effects(self) -> Any:
        return (
            None if self._effect is None else effects_table([self._effect], self.tracer.table_kind)
        )


def _advice(
    notes: tuple[str, ...], issues: int, effect: Effect | None = None, acted: str = ""
) -> str:
    if effect is not None and np.isnan(effect.retrained):
        do = "Not retrained, so nothing is confirmed."
    elif effect is not None:
        verb = "lowers" if effect.retrained < 0 else "does not lower"
        do = f"{acted} {verb} the hold-out loss: {effect.before:.4g} before, {effect.retrained:+.2g} after retraining."
    elif issues:
        do = f"Look at the first of them; {words().test_suspects} tells what relabelling them does."
    else:
        do = "No label looks wrong enough to act on; the first rows of the ranking are the ones to look at."
    return " ".join([*notes, do])
