"""Everything a report shows, as one dictionary that JSON can hold.

The page is made from nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..._actions.common import Interruptible
from ..._adapters.versions import versions
from ..._data.arrays import F64
from ..._data.cells import CellTable, short
from ..._data.errors import UnsupportedModel
from ..._data.progress import progress
from ..._engine.methods import LeafInfluence
from ..._tracer.tracer import Tracer
from ..column_use import column_uses
from .cases import MAX_COLUMNS, Cases, effect_rows
from .errors import add_errors
from .explained_rows import ExplainedRows, Sides, both_sides
from .outcomes import Outcomes
from .parts import groups_part, noise_part, with_features
from .settings import ReportSettings
from .unusual import unusual_values
from .verdicts import Verdict, headline, rests_on, verdicts
from .verdicts import summary as conclusion

FORMAT = "leaftrace-report-1"
MAX_LISTED_CLASSES = 20
BLOCK = 32  # test rows whose influence is in memory at once
MAX_UNUSUAL = 4  # unusual values that are named of a row
BARS = 40  # of the histogram of losses


@dataclass
class DescribedCases:
    """The test rows as values for JSON.

    ``conclusion``   how many of them have which verdict, in a sentence; empty without labels
    ``rests_on``     their evidence
    ``headline``     the verdict that most of them have, in a few words
    ``missing``      parts that are not in the report, and why
    ``interrupted``  whether Ctrl-C came before the end
    """

    cases: list[dict[str, Any]]
    conclusion: str = ""
    rests_on: str = ""
    headline: str = ""
    missing: list[dict[str, str]] = field(default_factory=list)
    interrupted: bool = False

    def leave_out(self, part: str, why: str) -> None:
        """Note that a part is missing, and why."""
        self.missing.append({"part": part, "why": why})


def summarise(
    rows: ExplainedRows,
    train: CellTable,
    test: CellTable,
    settings: ReportSettings,
    hashes: dict[str, str],
    sides: Sequence[Sides] | None = None,
    found: Sequence[Verdict] | None = None,
) -> dict[str, Any]:
    """Put together the data of a report.

    ``train, test``  the cells of both tables
    ``hashes``       of the model and the data
    ``sides, found`` the training rows behind each explained row and the verdicts, where they were
                     already computed
    """
    use = column_uses(rows.tracer, rows.X, test) if rows.baseline is None else None
    described = _describe_cases(Cases(rows, train, test, use), settings, sides, found)
    data: dict[str, Any] = {
        **_about(rows, settings),
        "columns": {
            "total": len(train.names),
            "at_most": MAX_COLUMNS,
            "redacted": len(settings.redacted),
            "by_use": use is not None,
        },
        "of": rows.of,
        "change_is": rows.change_is,
        "top": settings.top,
        "conclusion": described.conclusion,
        "rests_on": described.rests_on,
        "headline": described.headline,
        "cases": described.cases,
        **_other_parts(rows, train, settings, described),
        "missing": described.missing,
        "retraining": rows.tracer.engine.retrainings.in_words(),
        "settings": {"method": repr(rows.method), **settings.describe()},
        "versions": versions(),
        "hashes": hashes,
    }
    add_errors(data, rows.tracer.engine.criterion)
    return data


def _about(rows: ExplainedRows, settings: ReportSettings) -> dict[str, Any]:
    """The report, the model and all test rows, in a few numbers."""
    m = len(rows.outcomes.scores)
    name = rows.tracer.engine.source.name
    return {
        "format": FORMAT,
        "title": short(settings.title or f"{name}, {m:,} test rows"),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": _model(rows.tracer),
        "fidelity": _fidelity(rows.tracer),
        "noise_floor": next((f.done for f in rows.tracer.floors if f.removed == 1), None),
        "test": {
            "rows": m,
            "shown": len(rows),
            "chosen": rows.chosen_by,
            **_losses(rows.outcomes),
        },
    }


def _other_parts(
    rows: ExplainedRows, train: CellTable, settings: ReportSettings, described: DescribedCases
) -> dict[str, Any]:
    """The whole test set, surprising labels and groups; None for a part that is not computed."""
    parts: dict[str, Any] = {"overall": None, "noise": None, "groups": None}
    if described.interrupted:
        return parts
    if described.cases[0]["training_rows"] and rows.y is not None:
        parts["overall"] = _overall(rows, train, settings.top)
    if settings.noise:
        parts["noise"] = noise_part(rows.tracer, train, settings.suspects)
    if settings.groups is not None:
        groups = (settings.groups, settings.test_groups)
        parts["groups"] = groups_part(rows.tracer, *groups, rows.X, rows.y)
    return parts


def _describe_cases(
    cases: Cases,
    settings: ReportSettings,
    sides: Sequence[Sides] | None,
    found: Sequence[Verdict] | None,
) -> DescribedCases:
    """The test rows, with their predictions without the most harmful training rows."""
    described = DescribedCases([])
    if not cases.train.names:
        described.leave_out(
            "features", "a Pool or DMatrix cannot be read back; pass X_train and X_test as tables."
        )
    places = range(len(cases.rows))
    try:
        sides = _sides(cases.rows, settings.top) if sides is None else sides
    except UnsupportedModel as error:
        if cases.rows.method != LeafInfluence():  # which was asked for
            raise
        described.leave_out(
            "training rows behind each test row",
            f"{error} All rows one by one would take as many replays of the training as there are "
            "rows.",
        )
        described.cases = [cases.describe(j, None) for j in places]
        return described
    described.cases = [cases.describe(j, sides[j]) for j in places]
    _add_removals(described, cases, settings, sides, found)
    return described


def _sides(rows: ExplainedRows, top: int) -> list[Sides]:
    """The training rows behind each explained row."""
    blocks = rows.influence_blocks(BLOCK)
    return [sides for _, influence in blocks for sides in both_sides(influence, top)]


def _add_removals(
    described: DescribedCases,
    cases: Cases,
    settings: ReportSettings,
    sides: Sequence[Sides],
    found: Sequence[Verdict] | None,
) -> None:
    """Add to each case its prediction without the most harmful rows, as far as Ctrl-C allows."""
    why = "there are none, or a class would have no training rows left."
    with Interruptible() as run:
        try:
            for j, removal in cases.without(sides):
                described.cases[j]["removal"] = removal
        except UnsupportedModel as error:  # a file that lacks settings which refits need
            why = str(error)
        if found is None:
            found = verdicts(cases.rows, sides, cases.train, cases.test, retrain=settings.retrain)
        _conclude(described, found)
        unusual = unusual_values(cases.train, cases.test, cases.rows.chosen)
        for case, values in zip(described.cases, unusual, strict=False):
            case["unusual"] = values[:MAX_UNUSUAL]
        again = []
        if settings.retrain:
            again = [j for j, case in enumerate(described.cases) if case["removal"] is not None]
        for j in progress(again, len(again), "training again", "model"):
            described.cases[j]["removal"]["retrained"] = cases.retrained(j, sides[j])
    described.interrupted = run.interrupted
    unchanged = sum(case["removal"] is None for case in described.cases)
    if run.interrupted:
        described.leave_out("what comes after the first removals", "it was stopped by Ctrl-C")
    elif unchanged:
        described.leave_out(
            f"what happens to {unchanged} of the test rows without the most harmful rows",
            why,
        )


def _conclude(described: DescribedCases, found: Sequence[Verdict]) -> None:
    """Add a verdict to each case, and what they say together."""
    for case, verdict in zip(described.cases, found, strict=False):
        case["verdict"] = verdict.record
    described.conclusion = conclusion(found) if found else ""
    described.rests_on = rests_on(found)
    described.headline = headline(found)


def _model(tracer: Tracer) -> dict[str, Any]:
    """The model in numbers."""
    e = tracer.engine.ensemble
    classes = tracer.classes
    listed = None
    if classes is not None:
        listed = [short(c) for c in classes[:MAX_LISTED_CLASSES].tolist()]
    return {
        "name": tracer.engine.source.name,
        "loss": e.loss.name,
        "steps": e.n_steps,
        "trees": len(e.first_output),
        "leaves": len(e.values),
        "rows": e.n_rows,
        "outputs": e.n_outputs,
        "weighted": bool((tracer.sample_weight != 1).any()),
        "classes": listed,
        "n_classes": None if classes is None else len(classes),
    }


def _fidelity(tracer: Tracer) -> dict[str, Any]:
    """How exactly the replay gives the model's leaf values."""
    f = tracer.fidelity
    return {"exact": bool(f.exact), "max_error": float(f.max_error), "verdict": f.verdict}


def _losses(outcomes: Outcomes) -> dict[str, Any]:
    """How the loss is distributed over all test rows, and the share that is predicted right."""
    if outcomes.loss is None:
        return {"mean_loss": None, "accuracy": None, "histogram": None, "error_histogram": None}
    known = outcomes.loss[np.isfinite(outcomes.loss)]
    accuracy = None
    if outcomes.decision is not None:
        accuracy = float((outcomes.decision == outcomes.codes).mean())
    return {
        "mean_loss": short(float(outcomes.loss.mean())),
        "accuracy": accuracy,
        "histogram": _histogram(known),
        "error_histogram": _histogram(np.sqrt(2.0 * np.maximum(known, 0.0))),
    }


def _histogram(values: F64) -> dict[str, list[float]]:
    counts, edges = np.histogram(values, bins=BARS)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _overall(rows: ExplainedRows, train: CellTable, top: int) -> dict[str, Any]:
    """Training rows that matter most to the mean loss of all test rows: one pass."""
    influence = rows.tracer.influence(rows.X, rows.y, reduce="mean", method=rows.method)
    [sides] = both_sides(influence, top)
    noise = np.nan if influence.noise is None else float(influence.noise[0])
    return with_features(train, effect_rows(rows.tracer, train, sides, noise))
