"""`leaftrace gate`: whether a batch of new training rows may be merged."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ...._data.tables import columns_of
from .. import NO, OK
from ..findings import show_finding
from ..job import Job
from ..options import ShownRows, TestTable
from ..output import records


def gate(
    job: Job,
    *,
    new: Annotated[
        str,
        typer.Option(
            help="Table of new rows, with the columns of training and the target.",
            show_default=False,
        ),
    ],
    test: TestTable,
    test_by: Annotated[
        str | None, typer.Option(help="Column that makes slices of test rows, judged one by one.")
    ] = None,
    max_harm: Annotated[
        float, typer.Option(min=0.0, help="Rise of the test loss to stop at, as a share of it.")
    ] = 0.01,
    max_suspects: Annotated[
        float, typer.Option(min=0.0, help="Share of labels that look wrong to stop at.")
    ] = 0.02,
    max_unlike: Annotated[
        float, typer.Option(min=0.0, help="Share of rows with values unlike training to stop at.")
    ] = 0.05,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Measure harm by training again, not by a refit.")
    ] = False,
    junit: Annotated[
        str | None, typer.Option(help="Write the checks as JUnit XML to this file.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option(help="Write a summary in Markdown to this file.")
    ] = None,
    top: ShownRows = 20,
) -> int:
    """Judge a batch of new training rows before they are merged.

    A limit counts as exceeded if the 95 % interval is beyond it. Exit code 1: do not merge."""
    from ...._actions.gate import gate as judge_batch

    job.refuse_baseline("gate")
    for path in (junit, markdown):
        job.check_output(path, new, test, device=True)
    training = job.open_training()
    batch = job.open(new)
    other = job.open(test, extra=[test_by])
    tracer, _ = job.trace(training)
    added = job.read(batch)
    given = job.read(other, extra=[test_by])
    slices = None
    if test_by is not None:
        slices = test_by if test_by in given.X.columns else given.extra[test_by]
    found = judge_batch(
        tracer,
        added.X,
        added.y,
        given.X,
        given.y,
        slices=slices,
        max_harm=max_harm,
        max_suspects=max_suspects,
        max_unlike=max_unlike,
        retrain=retrain,
    )
    suspects = columns_of(found.suspects)
    checks = columns_of(found.table)
    numbers = {name: checks[name] for name in checks if name != "text"}
    show_finding(job.out, found, table=numbers)
    job.out.document["table"] = records(checks)
    job.out.text("\n" + "\n".join(check.sentence for check in found.checks))
    job.out.document |= {"passed": found.passed, "suspects": records(suspects)}
    if len(suspects["position"]):
        job.out.text("\nRows to look at", "bold")
        job.out.table(suspects, top)
    for path, save in ((junit, found.save_junit), (markdown, found.save_markdown)):
        if path is not None:
            save(path)
            job.out.text(f"Written: {os.path.abspath(path)}")
    return OK if found.passed else NO
