"""`leaftrace check` and `leaftrace explain`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer

from ...._actions.common import Interruptible
from ...._data.cells import open_cell_tables
from ...._data.errors import InvalidInput
from ...._tracer.noise_floor import FEWEST
from ...make_report import finished_report
from ...report import Report
from ...report.explained_rows import ExplainedRows, choose_rows
from ...report.parts import data_hashes
from ...report.settings import ReportSettings, check_rows
from ...report.summary import summarise
from .. import NO, OK
from ..explanation import Explanation, next_command, show_explanation
from ..explanation import explain as explain_rows
from ..job import Job
from ..options import (
    AlsoRetrain,
    MethodName,
    TestHasNoLabels,
    TestTable,
    command_line,
    method_of,
    named_rows,
    split,
)
from ..output import say


def check(job: Job) -> int:
    """Check that a replay of the training gives the model's own leaf values.

    All other answers rely on it."""
    tracer, _ = job.trace(job.open_training(), fidelity="ignore")
    job.out.text(repr(tracer))
    return OK if tracer.fidelity.exact else NO


def explain(
    job: Job,
    *,
    test: TestTable,
    rows: Annotated[
        str | None, typer.Option(help="Test rows: ids (with --id), or positions: 0,5-9.")
    ] = None,
    worst: Annotated[
        int, typer.Option(min=1, help="How many test rows: those with the largest loss.")
    ] = 20,
    top: Annotated[int, typer.Option(min=1, help="How many training rows for each test row.")] = 10,
    html: Annotated[
        str | None, typer.Option(help="Write a report to this file: one page, no network.")
    ] = None,
    redact: Annotated[
        str, typer.Option(help="Columns that must not appear in the report: a,b.")
    ] = "",
    no_explorer: Annotated[
        bool,
        typer.Option("--no-explorer", help="Leave the recorded explorer out of the report."),
    ] = False,
    no_labels: TestHasNoLabels = False,
    method: MethodName = "leaf",
    retrain: AlsoRetrain = False,
    noise_floor: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="TIMES",
            help="Train the model this many times without a random row, and mark the changes that "
            "are larger than what that does (10 is a good number).",
        ),
    ] = 0,
) -> int:
    """Find the training rows behind the predictions of some test rows."""
    by = method_of(method)
    if 0 < noise_floor < FEWEST:
        raise InvalidInput(
            f"--noise-floor is {noise_floor}; spreads need {FEWEST} retrainings or more."
        )
    job.check_output(html, test, device=True)
    if html is not None:
        job.refuse_baseline("a report")
    training = job.open_training()
    other = job.open(test, labelled=not no_labels)
    tracer, _ = job.trace(training)
    given = job.read(other, labelled=not no_labels)
    positions = None
    if rows is not None:
        named = named_rows(split(rows), job.row_ids(given), len(given.X), "test rows")
        positions = np.array(named)
    with job.out.step("predicting the test rows"):
        chosen = choose_rows(
            tracer,
            given.X,
            given.y,
            positions,
            worst,
            baseline=given.baseline,
            method=by,
            labels_name="the target of the test rows",
        )
    if noise_floor:
        _measure_noise(job, chosen, noise_floor, every_row=html is not None)
    found = explain_rows(chosen, top, retrain=retrain)
    show_explanation(job.out, chosen, found, top)
    if html is not None:
        settings = ReportSettings(positions, worst, top, redact=split(redact), retrain=retrain)
        wanted = False if no_explorer else None
        command = command_line("explore", job.options, test=test)
        _write_report(job, html, found, lambda: _report(chosen, found, settings, wanted, command))
    suggested = next_command(found, job.options, test)
    if suggested is not None:
        why, command = suggested
        job.out.document["next"] = {"why": why, "command": command}
        job.out.text(f"Next: {why}:")
        job.out.command(command)
    return OK


def _measure_noise(job: Job, rows: ExplainedRows, repeats: int, *, every_row: bool) -> None:
    """Measure the noise floor of the rows to explain, or of every test row."""
    table = rows.X
    labels = rows.y
    baseline = rows.baseline
    if not every_row:
        places = np.arange(len(rows))
        table = rows.table(places)
        labels = rows.labels(places)
        baseline = None if baseline is None else baseline[rows.chosen]
    floor = rows.tracer.noise_floor(table, labels, repeats=repeats, baseline=baseline)
    job.out.document["noise_floor"] = {"done": floor.done, "note": floor.note}
    job.out.text(f"Noise floor: {floor.done}.{f' {floor.note}' if floor.note else ''}\n")


def _write_report(job: Job, path: str, found: Explanation, make: Callable[[], Report]) -> None:
    """Write a report on the rows that were explained, unless Ctrl-C comes first."""
    written = False
    if not found.interrupted:
        with Interruptible():
            make().save(path)
            written = True
    if not written:
        say("the report was not written.")
        return
    size = os.path.getsize(path) / 1e6
    job.out.document["report"] = os.path.abspath(path)
    job.out.text(f"Report: {os.path.abspath(path)} ({size:.1f} MB)")


def _report(
    rows: ExplainedRows,
    found: Explanation,
    settings: ReportSettings,
    explorer: bool | None,
    command: str,
) -> Report:
    """A report that takes the influences from the explanation.

    ``explorer, command``: as in `finished_report`
    """
    settings.check()
    check_rows(settings.rows, len(rows.outcomes.scores))
    train, test = open_cell_tables(rows.tracer.X_train, rows.X, settings.redacted)
    hashes = data_hashes(rows.tracer, rows.X, rows.y)
    # Sentences may name columns, so those of the terminal are not for a page that hides some.
    judged = None if settings.redacted else found.verdicts
    data = summarise(rows, train, test, settings, hashes, found.sides, judged)
    return finished_report(data, rows, settings, explorer, command)
