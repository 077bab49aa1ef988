"""Measure rows that do not fit in memory: from files on one machine, and on a cluster. Fills docs/scale.md.

    python benchmarks/scale.py --folder FOLDER       10,000,000 rows from files, 1,000,000 in memory
    python benchmarks/scale.py --folder FOLDER --rows 200000 --small 100000 --print      some minutes

Rows are generated into FOLDER (about 90 bytes a row, and 100 for their leaves) and the model is trained
once; both are used again. scale_runs.py has the measurements.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from scale_agreement import TREES as AGREEMENT_TREES
from scale_data import FEATURES
from scale_runs import LEAVES, TREES, measure

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN = "<!-- measured by benchmarks/scale.py -->"
END = "<!-- end -->"
GB = 1e9
FIND = 50  # nanoseconds to find the leaf of a row in a tree, and to read the row
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
    build += W / DASK.wire
    solve = PRICES["solve"] * ns * queries * (trees * leaves) ** 2 / 2
    solve += blocks * (PRICES["effects"] + width * expand) * per_worker
    id_bytes = 1 if leaves <= 256 else 2
    return {
        "find leaves": FIND * per_worker,
        "row form on Spark": blocks * (step * per_worker + trees * SPARK.round),
        "row form": blocks * (step * per_worker + trees * DASK.round),
        "row form bytes": workers * blocks * width * trees * leaves * 4,
        "leaf form": build + solve,
        "leaf form, W known": solve,
        "leaf form bytes": workers * W,
        "memory a worker": n / workers * (trees * id_bytes + 40 + 8 + 4 * width),
    }


def files_table(folder: Path, n: int, small: int, limit: int) -> str:
    """Compare n rows from files with fewer rows in memory."""
    here = measure("memory", folder, small)
    there = measure("files", folder, n, limit)
    both = ["open", "mean loss, all rows", "top 100 of 10 test rows"]
    lines = []
    for name in [*both, "open again, leaves kept", "refit without 0.1 % of the rows"]:
        far = 1e9 * there[name] / (n * TREES)
        cells = ["", ""]
        ratio = ""
        if name in here:
            near = 1e9 * here[name] / (small * TREES)
            cells = [clock(here[name]), f"{near:.2f}"]
            ratio = f"{far / near:.2f}"
        lines.append([name, *cells, clock(there[name]), f"{far:.2f}", ratio])
    near = 1e9 * sum(here[name] for name in both) / (small * TREES)
    far = 1e9 * sum(there[name] for name in both) / (n * TREES)
    lines.append(
        ["open and both queries", "", f"{near:.2f}", "", f"{far:.2f}", f"{far / near:.2f}"]
    )
    lines.append(["largest resident size", size(here["peak"]), "", size(there["peak"]), "", ""])
    each = "ns per row and tree"
    head = ["", f"{small:,} rows in memory", each, f"{n:,} rows from files", each, "ratio"]
    return table(head, lines)


def cluster_table(folder: Path, small: int) -> str:
    """Compare measured and expected times on the cluster."""
    lines = []
    for plan, form, further in (
        ("rows", "row form", "row form"),
        ("leaves", "leaf form", "leaf form, W known"),
    ):
        for rows in (small // 10, small):
            found = measure("cluster", folder, rows, plan)
            first, ten = (expected(rows, TREES, LEAVES, q, 2) for q in (1, 10))
            line = [
                f"{rows:,}",
                form,
                clock(found["open"]),
                clock(found["first query"]),
                clock(first[form]),
                clock(found["top 100 of 10 test rows"]),
                clock(ten[further]),
                size(found["bytes sent for them"]),
                size(found["bytes of a worker"]),
            ]
            lines.append(line)
    head = [
        "rows",
        "plan",
        "open",
        "first query",
        "expected",
        "10 more",
        "expected",
        "sent by workers for the 10",
        "memory of a worker",
    ]
    return table(head, lines)


def spark_table(folder: Path, small: int, n: int) -> str:
    """Measure on Spark, in two threads of this machine."""
    names = ["open", "mean loss, all rows", "top 100 of 10 test rows"]
    sizes = ["bytes shuffled for both", "bytes of all processes"]
    lines = []
    for rows in sorted({small // 10, small, n}):
        found = measure("spark", folder, rows)
        cells = [clock(found[name]) for name in names] + [size(found[name]) for name in sizes]
        lines.append([f"{rows:,}", *cells])
    return table(["rows", *names, *sizes], lines)


def agreement_table(found: dict[str, float]) -> str:
    """Return the differences between clusters and memory, a line for each model."""
    names = list(dict.fromkeys(name.split("; ")[0] for name in found if "; " in name))
    places = ["Dask", "Spark"]
    lines = [[name, *(f"{found[f'{name}; {place}']:.0e}" for place in places)] for name in names]
    return table(["", *places], lines)


def costs_table() -> str:
    """Return the costs by the formulas for three large tasks."""
    lines = []
    for rows, trees, workers in ((1e7, 100, 2), (1e8, 500, 64), (1e9, 1000, 800)):
        cost = expected(rows, trees, LEAVES, 1, workers)
        line = [
            f"{rows:,.0f}",
            f"{trees}",
            f"{workers}",
            clock(cost["find leaves"]),
            clock(cost["row form"]),
            clock(cost["row form on Spark"]),
            size(cost["row form bytes"]),
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
        "row form on Spark",
        "bytes moved",
        "leaf form, first time",
        "bytes moved",
        "memory per thread",
    ]
    return table(head, lines)


def report(folder: Path, n: int, small: int, limit: int) -> str:
    """Measure everything and return the part of the page."""
    files = files_table(folder, n, small, limit)
    cluster = cluster_table(folder, small)
    spark = spark_table(folder, small, n)
    agreement = agreement_table(measure("agree", folder, small))
    cores = os.cpu_count()
    limit_words = f"`memory_limit` of {size(limit)}"
    return f"""LightGBM, {TREES} trees of {LEAVES} leaves, {FEATURES} numbers per row, {cores} cores, {limit_words}:

{files}

On a Dask cluster of two processes (one thread each) on the same machine:

{cluster}

On Spark in two threads of the same machine (`local[2]`), in the leaf form:

{spark}

Influence of {small:,} rows on the mean loss: largest difference between a cluster and memory
(float32, {AGREEMENT_TREES} trees), relative to the largest value:

{agreement}

Costs by the formulas above, not measured, for one query of the mean loss:

{costs_table()}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where rows, models and leaves are kept"
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows from files")
    parser.add_argument(
        "--small", type=int, default=1_000_000, help="rows in memory and on the cluster"
    )
    parser.add_argument("--limit", type=float, default=2.5, help="memory_limit in GB")
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print instead of writing the page"
    )
    given = parser.parse_args()
    found = report(given.folder, given.rows, given.small, int(given.limit * GB))
    if given.show:
        return print(found)
    page = PAGE.read_text(encoding="utf-8")
    part = f"{BEGIN}\n\n{found}\n\n{END}"
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: part, page, flags=re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
