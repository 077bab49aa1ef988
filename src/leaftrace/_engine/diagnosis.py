"""The likely cause of a replay that differs from the model, from its first step.

Before the first step all scores are known, so what its leaves should be depends on little: which
rows a leaf has, their weights, their labels. Models record some of it (`Recorded`). Rows in other
leaves than in training are other rows or other features; right rows with a wrong total weight are
other weights; right weights with wrong values are other labels, or another rule for the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64
from .._model.ensemble import Ensemble, Recorded

# Relative error up to which recorded numbers agree; some are kept with six digits.
AGREES = 1e-4

OTHER_ROWS = (
    "the rows fall into other leaves than in training: likely other feature values (preprocessing, codes of "
    "categories, the order of columns), other rows, or target statistics of categories"
)
FORGOTTEN_WEIGHTS = (
    "likely forgotten sample weights: pass sample_weight as in training, times the class weights if "
    "there were some"
)


@dataclass(frozen=True)
class FirstValues:
    """The leaves of the first step, recomputed from the rows.

    ``values``  (M, O) leaf values
    ``G``       (M, O) sums of w g
    ``D``       (M, O) what G is divided by, with lam; zero for leaves that are statistics
    """

    values: F64
    G: F64
    D: F64


def likely_cause(e: Ensemble, found: FirstValues, base_error: float, tolerance: float) -> str:
    """The likely cause of a first step, or a starting score, that differs."""
    first = _FirstStep(e)
    if cause := first.wrong_rows():
        return cause
    if cause := first.wrong_weights():
        return f"{e.suspected}; or {cause}" if e.suspected else cause
    return _wrong_values(e, first, found, base_error, tolerance)


@dataclass(frozen=True)
class _FirstStep:
    """The leaves of the first step, as the model recorded them and as these rows give them."""

    e: Ensemble

    @property
    def has_weights(self) -> bool:
        """Whether the user gave weights that differ."""
        e = self.e
        return bool(np.ptp(e.sample_weight[e.w_factor > 0]) > 0)

    def record(self, *kinds: str) -> Recorded | None:
        """The recorded numbers of the leaves of this step, of the first of these kinds there is."""
        e = self.e
        records = [] if e.recorded is None else [e.recorded]
        for kind in kinds:
            for record in [*records, *e.further_records]:
                if record.kind == kind:
                    return Recorded(record.kind, record.values[e.leaf_range(0)])
        return None

    def sums(self, kind: str, w: F64) -> F64:
        """(M,) numbers of this kind for rows of weights w (n,)."""
        e = self.e
        A = e.start()
        e.move(0, e.leaves, A)
        total = np.zeros(e.leaf_range(0).stop)
        h = np.ones((e.n_rows, e.n_outputs))
        if kind == "hessian":
            h = e.second_derivatives(A)
        for r in range(*e.trees(0).indices(len(e.leaves))):
            drawn = np.ones(e.n_rows) if e.sample is None else np.asarray(e.sample[r], float)
            if kind == "rows":
                terms = (drawn > 0) * (e.w_factor > 0)
            elif kind == "weighted rows":
                terms = (drawn * w > 0).astype(float)
            else:
                terms = w * drawn * h[:, e.first_output[r]]
            total += np.bincount(e.leaves[r], terms, len(total))
        return total

    def wrong_rows(self) -> str:
        """The sentence for rows in other leaves, if the model recorded how many each had."""
        record = self.record("rows", "weighted rows")
        if record is None or _agree(self.sums(record.kind, self.e.w), record.values):
            return ""
        return self._other_count(record.values) or self._other_rows

    @property
    def _other_rows(self) -> str:
        """The sentence for rows in other leaves."""
        if self.e.sample is None:
            return OTHER_ROWS
        return f"{OTHER_ROWS}; or rows in another order, as this model drew them by their position"

    def _other_count(self, rows: F64) -> str:
        """The sentence for another number of rows than the recorded (M,), if it is another."""
        e = self.e
        trained = round(float(rows.sum()) / float(e.step_trees[1] - e.step_trees[0]))
        here = int(np.count_nonzero(e.w_factor > 0))
        if trained == here or e.sample is not None:
            return ""
        drawn = ", or the subsample and seed that it drew them with" if trained < here else ""
        return f"the model was trained on {trained} rows, here are {here}: pass those of training{drawn}"

    def wrong_weights(self) -> str:
        """The sentence for wrong weights of the leaves, if the model recorded them."""
        e = self.e
        record = self.record("weight", "hessian")
        if record is None or (e.rule.statistic is not None and record.kind == "hessian"):
            return ""
        counted = self.record("rows", "weighted rows") is not None
        # An additional record may be in other units, so that it tells shares alone.
        recorded = record.values
        is_share = record.kind == "hessian" and counted
        if _agree(self.sums(record.kind, e.w), recorded, is_share):
            return ""
        unweighted = self.sums(record.kind, e.w_factor)
        if self.has_weights:
            if _agree(unweighted, recorded, is_share):
                return "the model was trained without sample weights: leave sample_weight out"
            if counted:
                return "likely other sample weights than in training, or the same in another order"
            return f"{self._other_rows}; or other sample weights than in training, or the same in another order"
        if counted:
            return FORGOTTEN_WEIGHTS + self._or_baseline(record)
        return self._weights_or_rows(record, unweighted)

    def _weights_or_rows(self, record: Recorded, unweighted: F64) -> str:
        """The sentence for weights of leaves that are wrong, where rows were not recorded.

        Rows without weights give each leaf a whole number of rows.
        """
        e = self.e
        rows = self.sums("rows", e.w)
        size = np.divide(unweighted, rows, out=np.ones(len(rows)), where=rows > 0)
        if np.ptp(e.w_factor) > 0 or np.ptp(size[rows > 0]) > AGREES * size.max():
            return f"{self._other_rows}; or {FORGOTTEN_WEIGHTS}{self._or_baseline(record)}"
        counts = record.values / np.median(size[rows > 0])
        if np.abs(counts - np.round(counts)).max() > AGREES * max(1.0, float(counts.max())):
            return FORGOTTEN_WEIGHTS + self._or_baseline(record)
        return self._other_count(counts) or self._other_rows

    def _or_baseline(self, record: Recorded) -> str:
        """A second guess: a baseline changes second derivatives, too."""
        varies = record.kind == "hessian" and self.e.loss.name != "squared error"
        if not varies or self.e.offset is not None:
            return ""
        return "; or a forgotten baseline (base_margin, init_score): pass baseline= as in training"


def _wrong_values(
    e: Ensemble, first: _FirstStep, found: FirstValues, base_error: float, tolerance: float
) -> str:
    """The sentence for leaves that have the right rows and weights, but other values."""
    records_weights = first.record("weight", "hessian") is not None
    weights = (
        "" if records_weights else ", or other sample weights, which this model does not record"
    )
    if not base_error <= tolerance:
        start = f"the starting score differs by {base_error:.1e} (relative)"
        return f"{start}: likely other labels{weights}"
    model = e.values[e.leaf_range(0)]
    if factor := _common_factor(found.values, model):
        return (
            f"the leaves of the first step have {factor:.4g} times the values found: likely another learning_rate, or "
            "labels in another unit"
        )
    if _other_parameters(found, model, e.lam):
        return (
            "the leaves of the first step are those of another learning_rate or regularisation: likely other training "
            "parameters, in the model or given as params"
        )
    labels = "other labels"
    if e.offset is None and not e.independent:
        labels = "other labels, or a forgotten baseline (base_margin, init_score)"
    if _same_total(found, model):
        labels = "labels in another order than the rows (their total is right)"
    if e.suspected:
        return f"{e.suspected}; or {labels}{weights}"
    return f"the rows fall into the right leaves but give other values: likely {labels}{weights}"


def _agree(found: F64, recorded: F64, is_share: bool = False) -> bool:
    """Whether numbers (M,) agree; ``is_share``: up to a factor."""
    if is_share:
        found = found / (found.sum() or 1.0)
        recorded = recorded / (recorded.sum() or 1.0)
    return bool(np.abs(found - recorded).max() <= AGREES * np.abs(recorded).max())


def _common_factor(found: F64, model: F64) -> float | None:
    """The factor from all values found to those of the model; None if there is none."""
    size = float((found**2).sum())
    factor = float((found * model).sum()) / size if size > 0 else 0.0
    error = np.abs(factor * found - model).max()
    same = found.size > 2 and factor > 0 and error <= AGREES * np.abs(model).max()
    return factor if same else None


def _other_parameters(found: FirstValues, model: F64, lam: float) -> bool:
    """Whether the values v of the model follow from the sums found: v H = -eta G - lambda v.

    Other labels would have other sums, which do not fit for more leaves than there are unknowns.
    """
    v = model[:, 0]
    H = found.D[:, 0] - lam
    if found.values.shape[1] > 1 or len(v) < 4 or not H.any():
        return False
    columns = np.stack([-found.G[:, 0], -v], axis=1)
    solution = np.linalg.lstsq(columns, v * H, rcond=None)[0]
    error = np.abs(columns @ solution - v * H).max()
    return bool(solution[0] > 0 and error <= AGREES * np.abs(v * H).max())


def _same_total(found: FirstValues, model: F64) -> bool:
    """Whether leaf values are wrong, but the sum of gradients that they stand for is right."""
    weight = np.where(found.D > 0, found.D, 1.0)
    errors = weight * (model - found.values)
    return bool(abs(errors.sum(axis=0)).max() <= 1e-2 * np.abs(errors).sum())
