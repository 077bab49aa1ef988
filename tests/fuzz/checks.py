"""What is checked of a configuration: every number of leaftrace against the oracle's."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
from training_sets import take

import leaftrace as lt

from .asking import CONCLUSIVE, asked, compare, described, quiet
from .data import CLASSES
from .outcome import Outcome
from .reference import Answer, reference_of
from .soft_splits import soft_splits
from .spaces import case_of


def run(configuration, make=case_of):
    """Train the model of a configuration and check everything. Return the outcome."""
    out = Outcome(configuration)
    with quiet():
        case = trained_case(configuration, out, make)
        if case is None:
            return out
        reference = agreeing_reference(case, configuration, out)
    tracer = asked(out, "tracer", reference is not None, lambda: traced(case, case.data.y))
    if tracer is None:
        if reference is not None and not reference.has_splits:
            excuse_no_splits(out)
        return out
    if reference is None:
        if tracer.fidelity.exact:
            out.note("oracle", "exact for leaftrace alone", tracer.fidelity.verdict)
        return out
    out.checks["fidelity"] += 1
    questions = (influences, label_influences, soft_splits) if case.smooth else (no_slope,)
    for question in (refits, other_labels, *questions):
        with quiet():
            question(case, tracer, reference, out)
    return out


def trained_case(configuration, out, make=case_of):
    """Return the case with its model, or None if the library refuses to train it."""
    try:
        case = make(configuration)
        _ = case.model  # trains it
    except Exception as error:
        out.note("untrainable", "training", described(error))
        return None
    return case


def excuse_no_splits(out):
    """A model without splits may be refused as such, even if the oracle can repeat it."""
    *before, last = out.findings
    if "no splits" in last.detail:
        out.findings[:] = [*before, replace(last, kind="refusal")]


def traced(case, y):
    return lt.Tracer(
        case.model,
        case.data.X,
        y,
        case.weight,
        baseline=case.baseline,
        dtype="float64",
        n_jobs=1,
        **case.tracer,
    )


def agreeing_reference(case, configuration, out):
    """Return the oracle's view of a case, if it gives the model's own predictions."""
    try:
        reference = reference_of(case, configuration["data"]["target"] in CLASSES)
        model = case.raw(case.model, case.data.X_test).reshape(len(case.data.y_test), -1)
        own = reference.answer(lambda r: r.scores())
        if not getattr(case, "on_targets", False):  # training rows sat in other leaves there
            of_rows = case.raw(case.model, case.data.X).reshape(len(case.w), -1)
            model = np.concatenate([of_rows, model])
            own = reference.answer(lambda r: np.concatenate([r.own_scores(), r.scores()]))
    except Exception as error:
        out.note("oracle", "cannot read", described(error))
        return None
    scale = max(1e-6, np.abs(model).max()) if np.isfinite(model).all() else np.nan
    distance = np.abs(own.value - model)
    allowed = 3e-6 * scale + np.minimum(own.error, CONCLUSIVE * scale)
    # Of labels far from zero, almost anything is close to the predictions, but not to their differences.
    if np.ptp(model) > 0:
        allowed = np.minimum(allowed, 1e-2 * np.ptp(model))
    if np.all(distance <= allowed):
        return reference
    detail = f"{np.max(distance):.3g} of {scale:.3g}, uncertain by {np.max(own.error):.3g}"
    out.note("oracle", "disagrees with the model", detail)
    return None


def some_rows(n, count=3):
    return np.unique(np.linspace(0, n - 1, count).astype(int))


def refits(case, tracer, reference, out):
    """LeafRefit of single rows; refits without groups and with other weights."""
    data = case.data
    n = len(case.w)
    rows = some_rows(n)
    before = reference.losses(reference.scores())
    single = [
        reference.answer(
            lambda r, row=row: r.losses(r.scores_without([row])) - r.losses(r.scores())
        )
        for row in rows
    ]
    finite = all(np.isfinite(a.value).all() for a in single)
    values = asked(
        out, "LeafRefit", finite,
        lambda: tracer.influence(data.X_test, data.y_test, method=lt.LeafRefit(), rows=rows).values,
    )  # fmt: skip
    if values is not None:
        scale = max(np.nanmax(np.abs([a.value for a in single])), 1e-2 * np.nanmax(np.abs(before)))
        for value, answer in zip(values, single, strict=True):
            compare(out, "LeafRefit", -value, answer, scale)
    rng = np.random.default_rng(0)
    groups = {"a row": rows[:1], "a group": rng.choice(n, max(2, n // 4), replace=False)}
    for name, group in groups.items():
        answer = reference.answer(lambda r, group=group: r.scores_without(group))
        compare_scores(out, f"refit without {name}", tracer, answer, case, without=group)
    if not case.smooth and case.weight is None:
        return  # quantiles of rows with weights have another form
    factor = 0.5 + rng.random(n)
    answer = reference.answer(lambda r: r.scores(w=r.w * factor))
    compare_scores(out, "refit with weights", tracer, answer, case, sample_weight=case.w * factor)


def compare_scores(out, check, tracer, answer, case, **change):
    X = case.data.X_test
    found = asked(
        out, check, np.isfinite(answer.value).all(), lambda: tracer.refit(**change).scores(X)
    )
    if found is not None:
        scale = max(np.nanmax(np.abs(answer.value), initial=0.0), 1e-6)
        compare(out, check, found, answer, scale)


def other_labels(case, tracer, reference, out):
    """Two exchanged labels must be refused if the oracle gives other predictions for them."""
    y = case.data.codes
    differs = (y != y[0]).reshape(len(y), -1).any(axis=1)
    others = np.flatnonzero(differs & (case.w > 0))
    if not len(others):
        return
    swapped = np.arange(len(y))
    swapped[[0, others[-1]]] = [others[-1], 0]
    again = copy(case)
    again.data = replace(case.data, y=case.data.y[swapped], codes=y[swapped])
    try:
        other = reference_of(again, reference.has_classes).answer(lambda r: r.own_scores())
    except Exception:  # such labels cannot have given this model
        other = None
    own = reference.own_scores()
    if other is None or not np.any(
        np.abs(other.value - own) > 1e-2 * np.abs(own).max() + other.error
    ):
        out.note("undecided", "other labels")
        return
    out.checks["other labels"] += 1
    try:
        accepted = traced(again, again.data.y)
    except lt.LeaftraceError:
        return
    except Exception as error:
        out.note("raw exception", "other labels", described(error))
        return
    out.note(
        "wrong",
        "other labels",
        f"accepted, but they give other predictions: {accepted.fidelity.verdict}",
    )


def no_slope(case, tracer, reference, out):
    """Leaves that are quantiles have no derivatives, which is said."""
    try:
        tracer.influence(case.data.X_test, case.data.y_test, reduce="mean")
    except lt.UnsupportedModel:
        out.checks["no derivatives"] += 1
        return
    out.note("wrong", "no derivatives", "an influence where leaves are quantiles")


def influences(case, tracer, reference, out):
    """Influence of rows and along a direction; the tangent; candidates."""
    data = case.data
    n = len(case.w)
    sloped = np.flatnonzero(~reference.rows_without_slope())
    if len(sloped) < n:
        no_slope_of_all(case, tracer, out)
    values = asked(
        out, "influence", True,
        lambda: tracer.influence(
            data.X_test, data.y_test, reduce="mean", rows=None if len(sloped) == n else sloped
        ).values[:, 0],
    )  # fmt: skip
    if values is None:
        return
    found = np.zeros(n)
    found[sloped] = values
    scale = slope_scale(found, reference)
    chosen = np.r_[np.argsort(values)[[0, -1]], some_rows(len(sloped), 2)]
    rows = sloped[np.unique(chosen)]
    usual = np.median(case.w[case.w > 0])
    unit = np.eye(n)
    for row in rows:
        h = 2e-3 * (case.w[row] or usual)
        value, error = reference.slope(lambda r, e, row=row: r.loss(w=r.w + e * unit[row]), h)
        compare_slope(out, "influence", found[row], value, error, scale)
    v = case.w * np.random.default_rng(1).normal(size=n)
    value, error = reference.slope(lambda r, e: r.loss(w=r.w + e * v), 2e-3)
    compare_slope(
        out, "influence along a direction", found @ v, value, error, np.abs(found) @ np.abs(v)
    )
    forward = asked(
        out, "tangent", True,
        lambda: tracer.influence(
            data.X_test, data.y_test, rows=rows, reduce="mean", method=lt.LeafInfluence(lt.TopKLeaves(100_000))
        ).values[:, 0],
    )  # fmt: skip
    if forward is not None:
        out.checks["tangent"] += 1
        if not np.all(np.abs(forward - found[rows]) <= 1e-8 * scale):
            out.note("wrong", "tangent", f"{forward} instead of {found[rows]}")
    candidates(case, tracer, reference, out, rows, found, scale)


def no_slope_of_all(case, tracer, out):
    """A question about all rows is refused where a row has no derivative."""
    try:
        tracer.influence(case.data.X_test, case.data.y_test, reduce="mean")
    except lt.InvalidInput as error:
        out.note("refusal", "influence", f"{type(error).__name__}: {error}")
        return
    out.note("wrong", "influence", "a number where a row of weight zero has no derivative")


def slope_scale(found, reference):
    """Return the size that errors of slopes are relative to; nan if they are not finite.

    Where all slopes cancel, as for even classes or equal labels, it is a hundredth of the loss that a row has, or
    what the loss changes with the scores."""
    if not np.isfinite(found).all():
        return np.nan
    F = reference.scores()
    losses = reference.losses(F)
    moved = np.abs(reference.losses(F * (1 + 1e-6)) - losses).mean() / 1e-6
    usual = np.nanmax([1e-2 * np.abs(losses).mean(), moved])
    return max(np.abs(found).max(), usual / reference.w.sum())


def compare_slope(out, check, found, value, error, scale):
    if not np.isfinite(scale):
        out.note("wrong", check, "not finite")
        return
    compare(
        out,
        check,
        np.array([found]),
        Answer(np.array([value]), np.array([error])),
        max(scale, abs(value)),
    )


def candidates(case, tracer, reference, out, rows, found, scale):
    """A training row as a candidate has its own influence, unless rows were drawn by position."""
    if case.baseline is not None or case.ordered:
        return
    if reference.structure.class_weight is not None and np.ndim(reference.structure.class_weight):
        rows = rows[reference.structure.class_weight[rows] > 0]  # not held out
    labels = np.asarray(case.data.y)[rows]
    scored = asked(
        out, "candidates", True,
        lambda: tracer.score_candidates(
            take(case.data.X, rows), case.data.X_test, case.data.y_test, labels, reduce="mean"
        ).values[:, 0],
    )  # fmt: skip
    if scored is None:
        return
    out.checks["candidates"] += 1
    if not np.all(np.abs(scored - found[rows]) <= 1e-9 * scale):
        out.note("wrong", "candidates", f"{scored} instead of {found[rows]}")


def label_influences(case, tracer, reference, out):
    """Influence of labels: numbers, or the mass of a row's label that moves to another class."""
    data = case.data
    n = len(case.w)
    K = reference.structure.K
    several = data.codes.ndim > 1  # labels a row
    if reference.has_classes and K > 1:
        if np.ndim(reference.structure.class_weight) or reference.structure.sample is not None:
            return
        target = 1
    elif (
        "scale_pos_weight" in out.configuration["settings"]
        and out.configuration["library"] == "XGBoost"
    ):
        return  # the oracle's starting score asks whether a label is 1
    else:
        target = 1 if several else None
    found = asked(
        out, "label influence", True,
        lambda: tracer.label_influence(data.X_test, data.y_test, reduce="mean", to=target).values[:, 0],
    )  # fmt: skip
    if found is None:
        return
    scale = slope_scale(found, reference)
    for row in np.unique(np.r_[np.argsort(found)[[0, -1]], some_rows(n, 1)]):
        if several or target is None:
            h = 2e-3 * (data.codes.std() or 1.0)
            unit = np.zeros(data.codes.shape)
            unit[(row, target) if several else row] = 1.0
            value, error = reference.slope(lambda r, e, unit=unit: r.loss(y=r.y + e * unit), h)
        else:
            value, error = reference.slope(
                lambda r, e, row=row: r.loss_moving(row, target, e), 2e-3
            )
        compare_slope(out, "label influence", found[row], value, error, scale)
