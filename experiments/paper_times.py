"""RQ2: seconds a training row, for every method and update set, and for the adjoint, which does all rows at once.

As in the paper, the change of the model is computed for 100 random training rows and the time is divided by 100. One
test row is asked about, which costs next to nothing. Run it while nothing else runs."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pandas as pd
from data import catboost
from methods import methods
from noisy import SETS, TITLES
from results import COLOURS, Section, axes, markdown

import leaftrace as lt

ROWS = 100
THEIRS = {  # seconds a training row of Adult with the authors' code, measured on two cores
    ("LeafRefit", "SinglePoint"): 0.107, ("LeafRefit", "Top8Leaves"): 6.4, ("LeafRefit", "Top64Leaves"): 7.7,
    ("LeafInfluence", "SinglePoint"): 0.086, ("LeafInfluence", "Top8Leaves"): 7.6,
    ("LeafInfluence", "Top64Leaves"): 8.1,
}  # fmt: skip
DIFFERS = "update sets between SinglePoint and all leaves save no time"


def run(full: bool) -> Section:
    again = 5 if full else 3
    lines = []
    for name, (make, _) in SETS.items():
        data = make()
        tracer = lt.Tracer(catboost(name).fit(data.X, data.y), data.X, data.y)
        rows = np.random.default_rng(7).choice(tracer.n_rows, ROWS, replace=False)
        ways = {key: forward(method) for key, method in methods().items()}
        for key, method in ways.items():
            lines.append((name, *key, seconds(tracer, data, method, rows, again) / ROWS))
        everything = seconds(tracer, data, lt.LeafInfluence(), None, again)
        lines.append((name, "adjoint, exact", "all rows at once", everything / tracer.n_rows))
    return section(pd.DataFrame(lines, columns=["data", "method", "update_set", "seconds"]))


def forward(method: lt.Method) -> lt.Method:
    """The exact derivative by the paper's forward algorithm: all leaves of every tree."""
    exact = isinstance(method, lt.LeafInfluence) and method.update_set == lt.AllPoints()
    return lt.LeafInfluence(lt.TopKLeaves(64)) if exact else method


def seconds(
    tracer: lt.Tracer, data, method: lt.Method, rows: np.ndarray | None, again: int
) -> float:
    """Median of several."""
    found = []
    for _ in range(again):
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
    refit = found.loc["LeafRefit"]
    derivative = found.loc["LeafInfluence"]
    adjoint = found.loc["adjoint, exact"].iloc[0]
    exact = derivative.loc["Top64Leaves"]
    claims = {
        "SinglePoint is the cheapest update set of both methods": bool(
            all(
                (f.drop("SinglePoint") > f.loc["SinglePoint"]).all().all()
                for f in (refit, derivative)
            )
        ),
        "LeafInfluence is no slower than LeafRefit, update set by update set": bool(
            (derivative < 1.1 * refit).drop("Top64Leaves").all().all()
        ),
        "the adjoint is a hundred times faster than the exact forward method and more": bool(
            (exact > 100 * adjoint).all()
        ),
    }
    text = f"""
Milliseconds a training row, with the original labels: the change of the model for {ROWS} random training rows, divided
by {ROWS}; medians of several runs on two threads. The last line is the adjoint, which gives the exact derivative for
all rows in one pass; its time is divided by the number of rows. Top64Leaves of LeafInfluence is the paper's forward
algorithm, that of LeafRefit the exact refit.

{markdown(table)}

FIGURE

The paper shows this as bars without numbers; beside ours are times of its authors' code on Adult, measured on another
day on two cores. In the paper smaller update sets save much. Here only SinglePoint does: the blocked kernels spend
their time reading rows, and choosing the leaves needs the changes of all of them. LeafRefit gains less from it than
LeafInfluence, since it still solves every leaf of every tree anew.
"""
    figure, panels = axes(len(found.columns), height=3.6, width=9.5, sharey=True)
    names = [f"{m}, {u}" for m, u in found.index]
    tones = [
        {"LeafRefit": COLOURS[0], "LeafInfluence": COLOURS[1]}.get(m, COLOURS[2])
        for m, _ in found.index
    ]
    for ax, name in zip(panels, found.columns, strict=True):
        ax.barh(names[::-1], 1000 * found[name][::-1], color=tones[::-1])
        ax.set(title=TITLES[name], xscale="log", xlabel="milliseconds a training row")
        ax.tick_params(labelsize=8)
    return Section("RQ2: time a training row", text, numbers, figure, claims, DIFFERS)
