"""Exact influence against CatBoost's `get_object_importance`, for growing numbers of rows."""

from __future__ import annotations

import time
from pathlib import Path

from catboost import CatBoostClassifier, Pool

import leaftrace as lt
from measuring import PAPER, QUIET, Table, exponent, markdown, median, ratio, show

Times = dict[str, dict[int, float]]  # seconds by what was measured and by rows
BUILD = "leaftrace: build, first answer"
LINES = {  # colour and marker in the figure
    "leaftrace exact, m = 1": ("#0072B2", "o"),
    "leaftrace exact, m = 100": ("#56B4E9", "o"),
    "CatBoost SinglePoint, m = 100": ("#E69F00", "s"),
    "CatBoost TopKLeaves:top=8, m = 1": ("#CC79A7", "^"),
    "CatBoost AllPoints, m = 1": ("#D55E00", "D"),
}


def section(data, quick: bool, figure: Path) -> str:
    """Measure, draw the figure, and return the section of the page."""
    n = len(data[1])
    sizes = [1000, 2000, 4000, 8000, n]
    times = measure(data, sizes, 8000 if quick else n)
    plot(times, figure)
    return f"""n is the number of training rows, m that of test rows. CatBoost is its `get_object_importance`.
*growth* is the power of n that fits the times from n = 2,000 on.

{markdown(table(times, sizes))}

![seconds against training rows]({figure.name})

{ratios(times, n)}"""


def measure(data, sizes: list[int], slow_up_to: int) -> Times:
    """Measure both on the first n rows, for each n; CatBoost's AllPoints only up to a size."""
    X, y, X_test, y_test = data
    times: Times = {}

    def note(name: str, n: int, seconds: float) -> None:
        times.setdefault(name, {})[n] = seconds

    for n in sizes:
        model = CatBoostClassifier(**PAPER, **QUIET).fit(X[:n], y[:n])
        start = time.perf_counter()
        tracer = lt.Tracer(model, X[:n], y[:n])
        tracer.influence(X_test[:1], y_test[:1])
        note(BUILD, n, time.perf_counter() - start)
        for m in (1, 100):
            test = X_test[:m], y_test[:m]
            seconds = median(lambda t=tracer, r=test: t.influence(*r), 9)
            note(f"leaftrace exact, m = {m}", n, seconds)
            for method in methods(n, m, slow_up_to):
                pools = Pool(*test), Pool(X[:n], y[:n])
                seconds = median(lambda a=(model, method, pools): importance(*a), 3)
                note(f"CatBoost {method}, m = {m}", n, seconds)
        print(n, {name: show(t[n]) for name, t in times.items() if n in t}, flush=True)
    return times


def methods(n: int, m: int, slow_up_to: int) -> list[str]:
    """Return the methods of CatBoost that are fast enough for n rows and m test rows."""
    limits = {"AllPoints": slow_up_to, "TopKLeaves:top=8": 8000, "SinglePoint": n}
    if m > 1:
        limits["AllPoints"] = min(slow_up_to, 8000)
    return [method for method, limit in limits.items() if n <= limit]


def importance(model: CatBoostClassifier, method: str, pools: tuple[Pool, Pool]) -> object:
    """Compute CatBoost's importance of all training rows."""
    return model.get_object_importance(
        *pools, top_size=-1, type="PerObject", update_method=method, thread_count=-1
    )


def table(times: Times, sizes: list[int]) -> Table:
    """Return a line for each measurement, with the power of n it grows by."""
    lines = [["", *[f"n = {n:,}" for n in sizes], "growth"]]
    for name, t in times.items():
        large = [n for n in t if n >= 2000]
        growth = ""
        if len(large) > 1:
            growth = f"n^{exponent(large, [t[n] for n in large]):.2f}"
        lines.append([name, *[show(t[n]) if n in t else "" for n in sizes], growth])
    return lines


def ratios(times: Times, n: int) -> str:
    """Return a list of how much faster we are. The last entries are for all n rows."""
    lines = []
    for m, rows in ((1, 8000), (1, n), (100, 8000)):
        theirs = times[f"CatBoost AllPoints, m = {m}"].get(rows)
        ours = times[f"leaftrace exact, m = {m}"].get(rows)
        if theirs and ours:
            faster = f"{ratio(theirs / ours)} faster than CatBoost's AllPoints"
            lines.append(f"- exact, m = {m}, n = {rows:,}: {faster}")
    theirs = times["CatBoost SinglePoint, m = 100"][n]
    ours = times["leaftrace exact, m = 100"][n]
    faster = f"{ratio(theirs / ours)} faster than CatBoost's SinglePoint approximation"
    with_build = ratio(theirs / (ours + times[BUILD][n]))
    lines.append(f"- exact, m = 100, n = {n:,}: {faster}")
    lines.append(f"- the same, including the time to build the tracer: {with_build} faster")
    return "\n".join(lines)


def plot(times: Times, path: Path) -> None:
    """Draw seconds against training rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, (colour, marker) in LINES.items():
        rows = list(times[name])
        seconds = list(times[name].values())
        axes.loglog(rows, seconds, marker=marker, color=colour, label=name)
    axes.set(
        xlabel="training rows",
        ylabel="seconds",
        title="Influence of all rows on m test rows (Adult, 100 trees)",
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
