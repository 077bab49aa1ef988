"""RQ2: seconds per training row for every method and update set, and for the adjoint.

As in the paper, the change of the model is computed for 100 random training rows and the time is
divided by 100. The influence is on one test row, which adds almost nothing. The adjoint, our backward
pass, gives all rows at once. Run this while nothing else runs."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pandas as pd
from data import Data, catboost
from matplotlib.figure import FigureBase
from methods import methods
from noisy import SETS, TITLES
from results import COLOURS, Section, axes, markdown

import leaftrace as lt

ROWS = 100
# Seconds per training row of Adult with the authors' code, measured on two cores.
THEIRS = {
    ("LeafRefit", "SinglePoint"): 0.107,
    ("LeafRefit", "Top8Leaves"): 6.4,
    ("LeafRefit", "Top64Leaves"): 7.7,
    ("LeafInfluence", "SinglePoint"): 0.086,
    ("LeafInfluence", "Top8Leaves"): 7.6,
    ("LeafInfluence", "Top64Leaves"): 8.1,
}
TITLE = "RQ2: time per training row"
DIFFERS = "update sets between SinglePoint and all leaves save no time"


def run(full: bool) -> Section:
    runs = 5 if full else 3
    lines = []
    for name, (make, _) in SETS.items():
        data = make()
        tracer = lt.Tracer(catboost(name).fit(data.X, data.y), data.X, data.y)
        rows = np.random.default_rng(7).choice(tracer.n_rows, ROWS, replace=False)
        for key, method in methods().items():
            took = seconds(tracer, data, forward(method), rows, runs)
            lines.append((name, *key, took / ROWS))
        took = seconds(tracer, data, lt.LeafInfluence(), None, runs)
        lines.append((name, "adjoint, exact", "all rows at once", took / tracer.n_rows))
    return section(pd.DataFrame(lines, columns=["data", "method", "update_set", "seconds"]))


def forward(method: lt.Method) -> lt.Method:
    """Return a method that computes the exact derivative by the paper's forward algorithm.

    That is TopKLeaves with all leaves of every tree. Other methods are returned as they are."""
    exact = isinstance(method, lt.LeafInfluence) and method.update_set == lt.AllPoints()
    return lt.LeafInfluence(lt.TopKLeaves(64)) if exact else method


def seconds(
    tracer: lt.Tracer, data: Data, method: lt.Method, rows: np.ndarray | None, runs: int
) -> float:
    """Return the median of several runs."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        tracer.influence(data.X_test[:1], data.y_test[:1], method=method, rows=rows)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def section(numbers: pd.DataFrame) -> Section:
    found = numbers.pivot_table(
        index=["method", "update_set"], columns="data", values="seconds", sort=False
    )
    table = (1000 * found).map("{:.3g}".format).rename(columns=TITLES).reset_index()
    theirs = [THEIRS.get((m, u)) for m, u in found.index]
    table["authors' code, Adult"] = ["" if t is None else f"{1000 * t:,.0f}" for t in theirs]
    text = f"""
Milliseconds per training row, with the original labels. The change of the model is computed for
{ROWS} random training rows, and the time is divided by {ROWS}. Times are medians of several runs on two
threads. The last line is the adjoint, our backward pass, which gives the exact derivative for all rows
in one pass; its time is divided by the number of rows. With Top64Leaves, LeafInfluence is the paper's
forward algorithm and LeafRefit the exact refit.

{markdown(table)}

FIGURE

The paper shows this as bars without numbers. The last column has times of its authors' code on Adult,
measured on another day on two cores. In the paper smaller update sets save much. Here only SinglePoint
does: our kernels spend their time reading rows, and choosing the leaves needs the changes of all rows.
SinglePoint saves less for LeafRefit than for LeafInfluence, because LeafRefit still solves every leaf
of every tree again.
"""
    return Section(TITLE, text, numbers, figure(found), claims(found), DIFFERS)


def claims(found: pd.DataFrame) -> dict[str, bool]:
    """Return the conclusions, and whether they hold."""
    refit = found.loc["LeafRefit"]
    derivative = found.loc["LeafInfluence"]
    adjoint = found.loc["adjoint, exact"].iloc[0]
    cheapest = [
        (times.drop("SinglePoint") > times.loc["SinglePoint"]).all().all()
        for times in (refit, derivative)
    ]
    return {
        "SinglePoint is the cheapest update set of both methods": all(cheapest),
        "LeafInfluence is no slower than LeafRefit with the same update set": bool(
            (derivative < 1.1 * refit).drop("Top64Leaves").all().all()
        ),
        "the adjoint is more than a hundred times faster than the exact forward method": bool(
            (derivative.loc["Top64Leaves"] > 100 * adjoint).all()
        ),
    }


def figure(found: pd.DataFrame) -> FigureBase:
    """Draw a bar for each method, a panel for each data set."""
    drawn, panels = axes(len(found.columns), height=3.6, width=9.5, sharey=True)
    names = [f"{m}, {u}" for m, u in found.index]
    colours = {"LeafRefit": COLOURS[0], "LeafInfluence": COLOURS[1]}
    bars = [colours.get(m, COLOURS[2]) for m, _ in found.index]
    for ax, name in zip(panels, found.columns, strict=True):
        ax.barh(names[::-1], 1000 * found[name][::-1], color=bars[::-1])
        ax.set(title=TITLES[name], xscale="log", xlabel="milliseconds per training row")
        ax.tick_params(labelsize=8)
    return drawn
