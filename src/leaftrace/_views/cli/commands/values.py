"""`leaftrace values` and `sources`: what training rows, or their sources, are worth to the test rows."""

from __future__ import annotations

from typing import Annotated

import typer

from ...._data.errors import InvalidInput
from ...._data.tables import columns_of
from .. import OK
from ..findings import show_finding
from ..job import Job
from ..options import ShownRows, TestTable, split
from ..output import records


def values(
    job: Job,
    *,
    test: TestTable,
    members: Annotated[
        int, typer.Option(min=0, help="Bags to train on; 0: until ranks are stable.")
    ] = 60,
    bag: Annotated[str, typer.Option(help="Share(s) of the rows in a bag: 0.05,0.1,0.2.")] = "0.1",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bags.")] = 0,
    top: ShownRows = 10,
) -> int:
    """Show the most and the least valuable training rows, by models of small bags.

    With --json, `rows` has all of them."""
    from ...._actions.values.action import data_values

    job.refuse_baseline("values")
    shares = _shares(bag)
    training = job.open_training()
    other = job.open(test)
    tracer, _ = job.trace(training)
    given = job.read(other)
    found = data_values(tracer, given.X, given.y, members=members or None, bag=shares, seed=seed)
    job.out.document |= {
        "rows": records(columns_of(found.to_frame())),
        "reliability": found.reliability,
        "members": len(found.by_member),
    }
    show_finding(job.out, found, 2 * top, found.ends(top))
    return OK


def sources(
    job: Job,
    *,
    test: TestTable,
    by: Annotated[
        str, typer.Option(help="Column that names the source of each row.", show_default=False)
    ],
    bins: Annotated[
        int, typer.Option(help="Sources that a column of many numbers is cut into.")
    ] = 5,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train models instead of refitting leaves.")
    ] = False,
    pairs: Annotated[
        int, typer.Option(min=2, help="Beyond 12 sources: pairs of random orders to average over.")
    ] = 25,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random orders.")] = 0,
) -> int:
    """Show what each source of training rows lowers the loss of the test rows by."""
    from ...._actions.values.sources import source_values

    job.refuse_baseline("sources")
    training = job.open_training(extra=[by])
    other = job.open(test)
    tracer, trained = job.trace(training, extra=[by])
    given = job.read(other)
    found = source_values(
        tracer,
        by if by in trained.X.columns else trained.extra[by],
        given.X,
        given.y,
        retrain=retrain,
        pairs=pairs,
        seed=seed,
        bins=bins,
    )
    job.out.document |= {"total": found.total, "before": found.before, "after": found.after}
    show_finding(job.out, found)
    return OK


def _shares(text: str) -> list[float]:
    """The shares in a text, which are separated by commas."""
    try:
        return [float(part) for part in split(text)]
    except ValueError:
        raise InvalidInput(
            f"--bag is '{text}'; write shares of the rows such as 0.1 or 0.05,0.1."
        ) from None
