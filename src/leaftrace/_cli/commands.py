"""The commands. Each checks everything that can be checked before the long work, then asks the library."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated, Any

import numpy as np
import typer

from .. import __version__
from .._actions.common import Finding, Interruptible
from .._data.errors import InvalidInput
from . import NO, OK
from .explain import explain_rows
from .job import Job, Rows, command, row_list, split
from .output import records

_EPILOG = (
    "Exit codes: 0 done; 1 the answer is no (--fail-above crossed, replay not exact, prediction not fixed, cleaning "
    "does not help); "
    "2 something given is wrong, one line says what to do; 3 leaftrace failed; 130 Ctrl-C, finished parts are shown."
)
app = typer.Typer(
    help="Which training rows made a gradient-boosted tree model predict this, and what would change without them.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Test = Annotated[
    str, typer.Option(help="Table of test rows, with the columns of training.", show_default=False)
]
Retrain = Annotated[bool, typer.Option("--retrain", help="Also train again, the only sure answer.")]
Top = Annotated[int, typer.Option(min=1, help="How many training rows to show.")]
Threshold = Annotated[float | None, typer.Option(min=0.0, help="Exit with code 1 above this.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"leaftrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    pass


@command(app)
def check(job: Job) -> int:
    """Does the replay of the training give the model's own leaf values? Nothing else is believable without."""
    tracer, _ = job.trace(job.open(job.options.train), fidelity="ignore")
    job.out.text(repr(tracer))
    return OK if tracer.fidelity.exact else NO


@command(app)
def explain(
    job: Job,
    *,
    test: Test,
    rows: Annotated[str | None, typer.Option(help="Test rows by position: 0,5-9.")] = None,
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
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="The test table has no target.")
    ] = False,
    retrain: Retrain = False,
) -> int:
    """Which training rows are behind the predictions of some test rows?"""
    job.writes(html, test, device=True)
    if html is not None:
        job.no_baseline("a report")
    training = job.open(job.options.train)
    other = job.open(test, labelled=not no_labels)
    tracer, _ = job.trace(training)
    given = job.read(other, labelled=not no_labels)
    positions = None if rows is None else row_list(rows, len(given.X), "test rows")
    explain_rows(job, tracer, given, positions, worst, top)
    if html is not None:
        from .._report import report

        asked: dict[str, Any] = {
            "rows": positions,
            "worst": worst,
            "top": top,
            "redact": split(redact),
        }
        asked["classes"] = job.labels.names
        with Interruptible() as run:
            report(tracer, given.X, given.y, retrain=retrain, **asked).save(html)
        if run.interrupted:
            job.out.say("the report was not written.")
            return OK
        size = os.path.getsize(html) / 1e6
        job.out.document["report"] = os.path.abspath(html)
        job.out.text(f"Report: {os.path.abspath(html)} ({size:.1f} MB)")
    return OK


@command(app)
def noise(
    job: Job,
    *,
    val: Annotated[
        str | None, typer.Option(help="Table of rows whose labels are cleaner than in training.")
    ] = None,
    hold: Annotated[
        str | None, typer.Option(help="Table of other rows, to confirm by retraining.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="What to rank by; see leaftrace.label_noise.")
    ] = "default",
    top: Top = 20,
    fail_above: Threshold = None,
) -> int:
    """Which training labels are likely wrong? --fail-above is a share of the training rows."""
    from .._actions.noise.action import label_noise

    if val is not None or hold is not None:
        job.no_baseline("noise")
    training = job.open(job.options.train)
    opened = {path: job.open(path) for path in (val, hold) if path is not None}
    tracer, _ = job.trace(training)
    clean = None if val is None else job.read(opened[val])
    found = label_noise(tracer, *(() if clean is None else (clean.X, clean.y)), score=score)
    share = float(found.is_label_issue.mean())
    if hold is not None and len(found.indices()):
        others = job.read(opened[hold])
        found = found.confirm(others.X, others.y)
    job.out.document |= {
        "share": share,
        "fail_above": fail_above,
        "suspects": int(found.is_label_issue.sum()),
    }
    _show(job, found, top, found.rank(max(top, len(found.indices()))))
    return _judge(job, "the share of labels that look wrong", share, fail_above)


@command(app)
def clean(
    job: Job,
    *,
    val: Annotated[
        str, typer.Option(help="Table of rows with labels to be trusted, to choose by.")
    ],
    hold: Annotated[str, typer.Option(help="Table of other such rows, to judge the outcome by.")],
    action: Annotated[
        str, typer.Option(help="remove, relabel, reweight, or auto: the first two.")
    ] = "remove",
    batch: Annotated[
        float | None, typer.Option(help="Share of the rows (or weight) a round changes.")
    ] = None,
    max_rounds: Annotated[int, typer.Option(min=1, help="Trainings at the most.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the parting of the validation rows.")] = 0,
    top: Top = 20,
    out: Annotated[
        str | None,
        typer.Option(help="Write the cleaned table to this file, or (.txt) the rows to leave out."),
    ] = None,
) -> int:
    """Remove, relabel or reweight training rows that do harm, by retraining. Exit code 1: it does not help."""
    from .._actions.clean.action import clean as cleaned_by
    from .cleaned import changed_rows, check_cleaned, write_cleaned

    job.no_baseline("clean")
    job.writes(out, val, hold)
    training, chooses, judges = (job.open(path) for path in (job.options.train, val, hold))
    check_cleaned(job, out, action, training[0])
    tracer, _ = job.trace(training)
    both = job.read(chooses), job.read(judges)
    how: Any = {"action": action, "batch": batch, "max_rounds": max_rounds, "seed": seed}
    found = cleaned_by(tracer, *(x for rows in both for x in (rows.X, rows.y)), **how)
    _show(job, found)
    changes = changed_rows(job, tracer, found)
    job.out.document |= {"improved": found.improved, "rows": records(changes)}
    if not found.improved:
        if out is not None:
            job.out.say(f"'{out}' was not written: nothing is to be changed.")
        return NO
    job.out.text("\nTraining rows to change", "bold")
    job.out.table(changes, top)
    if out is not None:
        what = write_cleaned(out, job, training[0], tracer, found)
        job.out.document["out"] = os.path.abspath(out)
        job.out.text(f"Written: {os.path.abspath(out)} ({what})")
    return OK


@command(app)
def groups(
    job: Job,
    *,
    test: Test,
    by: Annotated[
        str, typer.Option(help="Column that makes the groups of training rows.", show_default=False)
    ],
    test_by: Annotated[
        str | None, typer.Option(help="Column that makes the slices of test rows.")
    ] = None,
    bins: Annotated[
        int, typer.Option(help="Groups that a column of many numbers is cut into.")
    ] = 5,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Only predict to first order: fast, rough.")
    ] = False,
    retrain: Retrain = False,
) -> int:
    """What do whole groups of training rows do to slices of the test rows?"""
    from .._actions.groups import group_effects

    job.no_baseline("groups")
    training = job.open(job.options.train, extra=[by])
    other = job.open(test, extra=[test_by])
    tracer, trained = job.trace(training, extra=[by])
    given = job.read(other, extra=[test_by])
    both = _group(trained, by), None if test_by is None else _group(given, test_by)
    found = group_effects(
        tracer, both[0], given.X, given.y, both[1], refit=not no_refit, retrain=retrain, bins=bins
    )
    _show(job, found)
    return OK


@command(app)
def fix(
    job: Job,
    *,
    test: Test,
    row: Annotated[int, typer.Option(min=0, help="The test row, by position.", show_default=False)],
    action: Annotated[
        str, typer.Option(help="What to do to training rows: remove or relabel.")
    ] = "remove",
    max_rows: Annotated[int | None, typer.Option(help="Give up beyond this many.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="For numbers: the error to get down to.")
    ] = None,
) -> int:
    """The fewest training rows to remove or relabel so that one test row is predicted right, by retraining."""
    from .._actions.fix.action import fix as fixed_by

    job.no_baseline("fix")
    training = job.open(job.options.train)
    other = job.open(test)
    tracer, _ = job.trace(training)
    given = job.read(other)
    [row] = row_list(str(row), len(given.X), "test rows")
    assert given.y is not None
    rest = np.delete(np.arange(len(given.y)), row)
    others: dict[str, Any] = (
        {"X_test": given.X.iloc[rest], "y_test": given.y[rest]} if len(rest) else {}
    )
    how: Any = {"action": action, "max_rows": max_rows, "tolerance": tolerance}
    found = fixed_by(tracer, given.X.iloc[[row]], given.y[row], **others, **how)
    job.out.document |= {"fixed": found.fixed, "action": found.action}
    _show(job, found)
    return OK if found.fixed else NO


@command(app)
def impact(
    job: Job,
    *,
    test: Test,
    rows: Annotated[
        str,
        typer.Option(
            help="Training rows: a file with one id a line (position without --id), or 0,5-9."
        ),
    ],
    audit: Annotated[
        str | None, typer.Option(help="Write the record of the removal to this JSON file.")
    ] = None,
    controls: Annotated[
        int, typer.Option(min=0, help="Random groups of the same size to compare with.")
    ] = 0,
    no_retrain: Annotated[
        bool, typer.Option("--no-retrain", help="Do not train again; nothing is confirmed.")
    ] = False,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="The test table has no target.")
    ] = False,
    fail_above: Threshold = None,
) -> int:
    """How far do all predictions move without some training rows? --fail-above is the mean move."""
    from .._actions.impact.action import removal_impact

    job.no_baseline("impact")
    job.writes(audit, test, rows)
    training = job.open(job.options.train)
    other = job.open(test, labelled=not no_labels)
    tracer, trained = job.trace(training)
    gone = _asked_rows(job, rows, trained)
    given = job.read(other, labelled=not no_labels)
    found = removal_impact(
        tracer, gone, given.X, given.y, retrain=not no_retrain, controls=controls
    )
    _show(job, found)
    if audit is not None:
        job.labels.on_record(found).save(audit)
        job.out.document["audit"] = os.path.abspath(audit)
        job.out.text(f"Audit: {os.path.abspath(audit)}")
    mean = found._effects[0]
    move = mean.refitted if np.isnan(mean.retrained) else mean.retrained
    return _judge(job, "the mean move", move, fail_above)


@app.command()
def demo(
    folder: Annotated[
        str, typer.Argument(help="Where to put the tables, the model and the report.")
    ] = "leaftrace-demo",
) -> int:
    """Make two small tables and a model, find the wrong labels, write a report: the whole way, on your machine."""
    from .demo import run

    return run(folder)


@app.command()
def paper(
    names: Annotated[
        list[str] | None, typer.Argument(help="Some of the experiments; all if none is named.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's sizes (hours), or small ones.")
    ] = False,
    experiments: Annotated[
        str, typer.Option(help="Folder of the experiments, in a copy of the repository.")
    ] = "experiments",
) -> int:
    """Reproduce the paper's tables and figures, with its numbers beside ours. An interrupted run goes on from there."""
    script = os.path.join(experiments, "paper.py")
    if not os.path.exists(script):
        raise InvalidInput(
            f"there is no {script}: the experiments are in the repository, not in the package. Clone it and run this "
            "in its folder, or name its experiments folder with --experiments."
        )
    return subprocess.run(
        [sys.executable, script, *(names or []), *(["--full"] if full else [])]
    ).returncode


def _group(rows: Rows, name: str) -> Any:
    """A feature by its name, so that numbers are cut into bins; another column value by value."""
    return name if name in rows.X.columns else rows.extra[name]


def _asked_rows(job: Job, text: str, trained: Rows) -> Any:
    """Positions of training rows, from a file of ids or a list of positions."""
    n = len(trained.X)
    if not os.path.isfile(text):
        if not text[:1].isdigit():
            raise InvalidInput(
                f"there is no file '{text}' of rows; give one id a line, or positions such as 0,5-9."
            )
        return row_list(text, n, "training rows")
    with open(text, encoding="utf-8") as file:
        asked = list(dict.fromkeys(line.strip() for line in file if line.strip()))
    if not asked:
        raise InvalidInput(f"the file '{text}' names no rows; write one id a line.")
    if job.options.id is None:
        return row_list(",".join(asked), n, "training rows")
    names = trained.X.index.astype(str)
    known = set(names)
    if strange := [a for a in asked if a not in known]:
        raise InvalidInput(
            f"{len(strange)} id(s) of '{text}' are not in the column '{job.options.id}' of the training table, the "
            f"first is '{strange[0]}'; take them out, or check --id."
        )
    return np.flatnonzero(names.isin(asked))


def _show(job: Job, found: Finding, most: int = 20, table: Any = None) -> None:
    """An action's result, as every command shows it."""
    out = job.out
    columns = job.labels.shown(found.table if table is None else table)
    effects = found.effects
    advice = found.advice
    out.document |= {"title": found.title, "table": records(columns), "advice": advice}
    out.text(found.title, "bold")
    out.table(columns, most)
    if effects is not None:
        effects = job.labels.said(effects)
        out.document["effects"] = records(effects)
        out.text("\nEffects: what changes", "bold")
        out.table(effects)
    out.text(f"\n{advice}")


def _judge(job: Job, what: str, value: float, limit: float | None) -> int:
    if limit is None or not value > limit:
        return OK
    job.out.say(f"{what} is {value:.4g}, above {limit:g}.")
    return NO
