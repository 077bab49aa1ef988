"""`leaftrace noise` and `leaftrace clean`: surprising labels, and training rows that do harm."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from .. import NO, OK
from ..findings import judge, show_finding
from ..job import Job
from ..options import FailAbove, ShownRows
from ..output import records, say


def noise(
    job: Job,
    *,
    val: Annotated[
        str | None, typer.Option(help="Table of rows whose labels are cleaner than in training.")
    ] = None,
    hold: Annotated[
        str | None,
        typer.Option(help="Table of other rows, to see by retraining whether relabelling helps."),
    ] = None,
    score: Annotated[
        str, typer.Option(help="What to rank by; see leaftrace.label_noise.")
    ] = "default",
    top: ShownRows = 20,
    fail_above: FailAbove = None,
) -> int:
    """Find training labels that surprise the model; with --hold, see if relabelling helps.

    --fail-above is a share of the training rows."""
    from ...._actions.noise.action import label_noise

    if val is not None or hold is not None:
        job.refuse_baseline("noise")
    training = job.open_training()
    opened = {path: job.open(path) for path in (val, hold) if path is not None}
    tracer, _ = job.trace(training)
    if val is None:
        found = label_noise(tracer, score=score)
    else:
        trusted = job.read(opened[val])
        found = label_noise(tracer, trusted.X, trusted.y, score=score)
    share = float(found.is_label_issue.mean())
    suspects = len(found.indices())
    if hold is not None and suspects:
        others = job.read(opened[hold])
        found = found.confirm(others.X, others.y)
    job.out.document |= {
        "share": share,
        "fail_above": fail_above,
        "suspects": suspects,
        "confirmed": found.confirmed,
        "interval": found.interval,
    }
    show_finding(job.out, found, top, found.rank(max(top, suspects)))
    job.out.text("Label scores go from 0, which surprises the model most, to 1.", "dim")
    return judge("the share of labels that surprise the model", share, fail_above)


def clean(
    job: Job,
    *,
    val: Annotated[
        str, typer.Option(help="Table of rows with labels to be trusted, to choose by.")
    ],
    hold: Annotated[str, typer.Option(help="Table of other such rows, to judge the result by.")],
    action: Annotated[
        str, typer.Option(help="remove, relabel, reweight, or auto: the first two.")
    ] = "remove",
    batch: Annotated[
        float | None, typer.Option(help="Share of the rows (or weight) a round changes.")
    ] = None,
    max_rounds: Annotated[int, typer.Option(min=1, help="How many trainings at most.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed for splitting the validation rows.")] = 0,
    top: ShownRows = 20,
    out: Annotated[
        str | None,
        typer.Option(help="Write the cleaned table to this file, or (.txt) the rows to leave out."),
    ] = None,
) -> int:
    """Find training rows that are better removed, relabelled or reweighted, by retraining.

    Exit code 1: it does not help."""
    from ...._actions.clean.action import clean as clean_training_set
    from ..cleaned import changed_rows, check_cleaned, write_cleaned

    job.refuse_baseline("clean")
    job.check_output(out, val, hold)
    training = job.open_training()
    val_table = job.open(val)
    hold_table = job.open(hold)
    check_cleaned(job.options, out, action, training.file)
    tracer, _ = job.trace(training)
    chooses = job.read(val_table)
    judges = job.read(hold_table)
    settings: Any = {"action": action, "batch": batch, "max_rounds": max_rounds, "seed": seed}
    found = clean_training_set(tracer, chooses.X, chooses.y, judges.X, judges.y, **settings)
    show_finding(job.out, found)
    changes = changed_rows(tracer, found, chooses.X, chooses.y)
    job.out.document |= {"improved": found.improved, "rows": records(changes)}
    if not found.improved:
        if out is not None:
            say(f"'{out}' was not written: nothing is to be changed.")
        return NO
    job.out.text("\nTraining rows to change, the most harmful first", "bold")
    job.out.table(changes, top)
    if out is not None:
        content = write_cleaned(out, job.options, training.file, tracer, found)
        path = os.path.abspath(out)
        job.out.document["out"] = path
        job.out.text(f"Written: {path} ({content})")
    return OK
