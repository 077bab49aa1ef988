"""Measure rows that do not fit in memory: from files on one machine, and on clusters. Fills docs/scale.md.

    python benchmarks/scale.py FOLDER measure memory 1000000
    python benchmarks/scale.py FOLDER measure files 10000000 2500000000    with this memory_limit
    python benchmarks/scale.py FOLDER measure dask 1000000 rows            or "leaves"
    python benchmarks/scale.py FOLDER measure spark 1000000                the leaf form; or "rows"
    python benchmarks/scale_agreement.py FOLDER 1000000
    python benchmarks/scale.py FOLDER page         writes what was measured into the page

Rows are generated into FOLDER (about 90 bytes a row, and 100 for their leaves) and the model is trained
once; both are used again. scale_runs.py has the measurements.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from scale_agreement import PLACES
from scale_agreement import TREES as AGREEMENT_TREES
from scale_data import FEATURES
from scale_runs import LEAVES, TREES, Measured, measure, measured

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN = "<!-- measured by benchmarks/scale.py -->"
END = "<!-- end -->"
GB = 1e9
FIND = 50  # nanoseconds to find the leaf of a row in a tree, and to read the row
STATE = 60  # bytes of a row beside its leaves that a partition keeps
Lines = list[list[str]]


def size(x: float) -> str:
    """Return a number of bytes with its unit."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if x >= unit:
            return f"{x / unit:.3g} {name}"
    return f"{x:.0f} B"


def clock(seconds: float) -> str:
    """Return a time with its unit."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def table(head: list[str], lines: Lines) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def block_width(queries: float) -> int:
    """Return how many queries are computed at once."""
    if queries == 1:
        return 1
    return 8 if queries <= 8 else 32


def expected(
    n: float, trees: float, leaves: float, queries: float, workers: float
) -> dict[str, float]:
    """Return the costs by the formulas in docs/scale.md, for one output in float32.

    ``workers`` have one thread each."""
    from leaftrace._engine.costs import PRICES, machine
    from leaftrace._tracer.cluster.dask.tracer import PRICES as DASK
    from leaftrace._tracer.cluster.spark.tracer import PRICES as SPARK

    ns = 1e-9 * machine()
    blocks = -(-queries // 32)
    width = block_width(queries)
    per_worker = ns * n * trees / workers  # seconds for a price of one
    backward = PRICES["backward"][width]
    expand = PRICES["expand"][width]
    step = 2 * PRICES["effects"] + width * (backward + expand)
    W = (trees * leaves) ** 2 / 2 * 4  # bytes
    build = (PRICES["pairs"] * trees / 2 + PRICES["effects"]) * per_worker
    solve = PRICES["solve"] * ns * queries * (trees * leaves) ** 2 / 2
    expanding = blocks * (PRICES["effects"] + width * expand) * per_worker
    id_bytes = 1 if leaves <= 256 else 2
    reading = n / workers * (trees * id_bytes + STATE) * SPARK.read  # in each job
    again = SPARK.redo * trees / 2 * (PRICES["effects"] + width * backward) * per_worker
    per_block = trees * leaves * 4 * width  # bytes
    return {
        "find leaves": FIND * per_worker,
        "row form on Spark": blocks * (step * per_worker + trees * (SPARK.round + reading) + again),
        "row form on Spark, bytes": (trees + 2) * workers * blocks * per_block,
        "row form": blocks * (step * per_worker + trees * DASK.round),
        "row form bytes": 2 * workers * blocks * per_block,
        "leaf form": build + W / DASK.wire + solve + expanding,
        "leaf form, W known": solve + expanding,
        "leaf form on Spark": build
        + W / SPARK.wire
        + solve
        + expanding
        + 2 * (SPARK.round + reading),
        "leaf form on Spark, W known": solve + expanding + blocks * (SPARK.round + reading),
        "leaf form bytes": workers * W,
        "memory a worker": n / workers * (trees * id_bytes + 40 + 8 + 4 * width),
    }


def runs_of(found: Measured, what: str, *more: str) -> dict[int, dict[str, float]]:
    """Return the measurements of this kind and plan by the number of rows; files have a limit of memory instead."""
    named = {tuple(name.split()): run for name, run in found.items()}
    runs = {
        int(rows): run
        for (kind, rows, *given), run in named.items()
        if kind == what and (given == list(more) or what == "files")
    }
    return dict(sorted(runs.items()))


def files_table(found: Measured) -> str:
    """Compare rows in files with rows in memory."""
    both = ["open", "mean loss, all rows", "top 100 of 10 test rows"]
    names = [*both, "open again, leaves kept", "refit without 0.1 % of the rows"]
    lines = []
    for what, words in (("memory", "in memory"), ("files", "in files")):
        for rows, run in runs_of(found, what).items():
            cells = [clock(run[name]) if name in run else "" for name in names]
            each = 1e9 * sum(run[name] for name in both) / (rows * TREES)
            lines.append(
                [f"{rows:,} {words}", *cells, f"{each:.0f} ns", size(run["peak"]), load(run)]
            )
    head = ["rows", *names, "first three per row and tree", "largest resident size", "load"]
    return table(head, lines)


def dask_table(found: Measured) -> str:
    """Compare measured and expected times on Dask."""
    names = ["open", "first query", "one more query", "top 100 of 10 test rows"]
    sizes = ["bytes sent for them", "bytes of a worker"]
    lines = []
    for plan, form, further in (
        ("rows", "row form", "row form"),
        ("leaves", "leaf form", "leaf form, W known"),
    ):
        for rows, run in runs_of(found, "dask", plan).items():
            expect = [
                expected(rows, TREES, LEAVES, 1, 2)[form],
                expected(rows, TREES, LEAVES, 1, 2)[further],
                expected(rows, TREES, LEAVES, 10, 2)[further],
            ]
            times = [
                clock(run["open"]),
                *(f"{clock(run[x])} ({clock(e)})" for x, e in zip(names[1:], expect, strict=True)),
            ]
            line = [f"{rows:,}", form, *times, *(size(run[name]) for name in sizes), load(run)]
            lines.append(line)
    return table(["rows", "plan", *names, *sizes, "load"], lines)


def round_words(found: Measured) -> str:
    """Return the time of a step of the row form where there are few rows."""
    rows, run = next(iter(runs_of(found, "dask", "rows").items()))
    each = 1e3 * run["one more query"] / TREES
    return (
        f"A step of the row form took {each:.1f} ms with {rows:,} rows, where it is overhead alone."
    )


def spark_table(found: Measured) -> str:
    """Compare measured and expected times on Spark, in two threads of one machine."""
    queries = {"mean loss, all rows": 1, "top 100 of 10 test rows": 10}
    forms = {
        "": ("leaf form", "leaf form on Spark", "leaf form on Spark, W known"),
        "rows": ("row form", "row form on Spark", "row form on Spark"),
    }
    lines = []
    for plan, (form, *priced) in forms.items():
        for rows, run in runs_of(found, "spark", *([plan] if plan else [])).items():
            once = ["open", "a job that reads the state"]
            line = [f"{rows:,}", form, *(clock(run[x]) if x in run else "" for x in once)]
            for (name, q), price in zip(queries.items(), priced, strict=True):
                moved = [
                    size(run[f"{name}: bytes {where}"]) for where in ("shuffled", "to the driver")
                ]
                expect = expected(rows, TREES, LEAVES, q, 2)[price]
                line += [f"{clock(run[name])} ({clock(expect)})", *moved]
            lines.append([*line, size(run["bytes of all processes"]), load(run)])
    head = ["rows", "plan", "open", "a job that reads the state"]
    for name in queries:
        head += [name, "shuffled", "to the driver"]
    return table([*head, "memory of all processes", "load"], lines)


def load(run: dict[str, float]) -> str:
    """Return how many programs were running when a measurement began; a dash: not recorded."""
    return f"{run['load before']:.1f}" if "load before" in run else "-"


def agreement_table(folder: Path) -> str:
    """Return the differences between clusters and memory, a line for each model."""
    file = folder / "agreement.json"
    found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    data = sorted({name.split("; ")[0] for name in found}, key=lambda name: name != "adult")
    models = list(dict.fromkeys(name.split("; ")[1] for name in found))
    columns = [(rows, place) for rows in data for place in PLACES]
    lines = []
    for model in models:
        keys = [f"{rows}; {model}; {place}" for rows, place in columns]
        lines.append([model, *(f"{found[key]:.0e}" if key in found else "" for key in keys)])
    head = [
        f"{'Adult' if rows == 'adult' else f'{int(rows):,}'}, {place}" for rows, place in columns
    ]
    return table(["", *head], lines)


def costs_table() -> str:
    """Return the costs by the formulas for three large tasks."""
    lines = []
    for rows, trees, workers in (
        (1e7, 100, 2),
        (1e8, 500, 64),
        (1e9, 1000, 64),
        (1e9, 1000, 800),
    ):
        cost = expected(rows, trees, LEAVES, 1, workers)
        line = [
            f"{rows:,.0f}",
            f"{trees}",
            f"{workers}",
            clock(cost["find leaves"]),
            clock(cost["row form"]),
            size(cost["row form bytes"]),
            clock(cost["row form on Spark"]),
            size(cost["row form on Spark, bytes"]),
            clock(cost["leaf form"]),
            size(cost["leaf form bytes"]),
            size(cost["memory a worker"]),
        ]
        lines.append(line)
    head = [
        "rows",
        "trees",
        "threads",
        "find leaves, once",
        "row form on Dask",
        "bytes moved",
        "row form on Spark",
        "bytes moved",
        "leaf form, first time",
        "bytes moved",
        "memory per thread",
    ]
    return table(head, lines)


def page_of(folder: Path) -> str:
    """Return the part of the page, from what was measured."""
    found = measured(folder)
    return f"""LightGBM, {TREES} trees of {LEAVES} leaves, {FEATURES} numbers per row, on two cores. The last column
is the load average before a line was measured: above one, other programs used the cores, too. In one process,
with a `memory_limit` of 2.5 GB for files:

{files_table(found)}

On a Dask cluster of two processes, one thread each; in brackets the time by the formulas above:

{dask_table(found)}

{round_words(found)}

On Spark in two threads (`local[2]`); bytes are from Spark's own counters. In the leaf form, the first query
also builds W, which is most of what comes to the driver:

{spark_table(found)}

Influence of all rows on the mean loss: largest difference between a cluster and memory
(float32, {AGREEMENT_TREES} trees), relative to the largest value. Empty cells were not measured;
models with GOSS are traced at the client, by the same program as in memory:

{agreement_table(folder)}

Costs by the formulas above, not measured, for one query of the mean loss:

{costs_table()}"""


def main() -> None:
    folder = Path(sys.argv[1])
    if sys.argv[2] == "measure":
        what, rows, *more = sys.argv[3:]
        print(measure(what, folder, int(rows), *(int(x) if x.isdigit() else x for x in more)))
        return
    page = PAGE.read_text(encoding="utf-8")
    part = f"{BEGIN}\n\n{page_of(folder)}\n\n{END}"
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: part, page, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
