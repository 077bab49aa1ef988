"""Measure leaftrace against its peers, in one run on the same model and data: `make bench`.

Writes docs/benchmarks.md and docs/benchmarks.png. Times are medians of wall time on the threads this
machine has, with nothing else running; compare times within a line. The data are Adult (LEAFTRACE_DATA)
and generated rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
from catboost import CatBoostClassifier

import action_estimates
import constrained
import estimates
import growth
import leaftrace as lt
import million
import outputs
import peers
import trainings
from leaftrace._engine import costs
from leaftrace._model import kernels as package
from leaftrace._model.kernels import numpy as twins
from measuring import PAPER, QUIET, Table, markdown, median, ratio, show

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import adult  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "benchmarks.png"
REMOVALS = 512
# Modules that call the kernels by a name of their own.
WITH_KERNELS = (
    "_model.ensemble",
    "_model.leaf_ranks",
    "_engine.chain_sums",
    "_engine.backward",
    "_engine.scored_pass",
    "_engine.row_effects",
    "_engine.queries",
    "_engine.steps",
    "_engine.forward",
    "_engine.forward_block",
    "_engine.costs",
    "_engine.soft_splits",
)


def whole_test_set(data) -> str:
    """Compare the mean loss of all test rows with one test row."""
    X, y, X_test, y_test = data
    tracer = lt.Tracer(CatBoostClassifier(**PAPER, **QUIET).fit(X, y), X, y)
    tracer.influence(X_test[:1], y_test[:1])
    one_row = median(lambda: tracer.influence(X_test[:1], y_test[:1]), 9)
    all_rows = median(lambda: tracer.influence(X_test, y_test, reduce="mean"), 9)
    return (
        f"The mean loss of {len(y_test):,} test rows takes {show(all_rows)}, "
        f"{ratio(all_rows / one_row)} the time of one test row ({show(one_row)})."
    )


def removals(data) -> Table:
    """Compare LeafRefit with a refit in plain NumPy, in seconds per removal."""
    X, y, X_test, y_test = data
    model = CatBoostClassifier(**PAPER, **QUIET).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    ids = model.calc_leaf_indexes(X).T.astype(int)
    counts = model.get_tree_leaf_counts()
    p = model.get_all_params()

    def numpy_refit() -> np.ndarray:
        w = np.ones(len(y))
        w[7] = 0.0
        A = np.zeros(len(y))
        lam = p["l2_leaf_reg"] * w.sum() / (len(y) - 1)
        for leaf, L in zip(ids, counts, strict=True):
            q = 1 / (1 + np.exp(-A))
            G = np.bincount(leaf, w * (q - y), L)
            H = np.bincount(leaf, w * q * (1 - q), L)
            A += (-p["learning_rate"] * G / (H + lam))[leaf]
        return A

    base = median(numpy_refit, 9)
    table = [
        ["LeafRefit, one removal", "time", "against NumPy"],
        ["NumPy, vectorised over rows", show(base), ""],
    ]
    for update_set in (lt.AllPoints(), lt.TopKLeaves(8), lt.SinglePoint()):
        method = lt.LeafRefit(update_set)
        tracer.influence(X_test[:1], y_test[:1], method=method, rows=np.arange(64))  # warm up
        rows = {"method": method, "rows": np.arange(REMOVALS)}
        seconds = median(lambda a=rows: tracer.influence(X_test[:1], y_test[:1], **a), 5)
        per_removal = seconds / REMOVALS
        table.append([type(update_set).__name__, show(per_removal), ratio(base / per_removal)])
    return table


def kernels_against_twins(data) -> Table:
    """Compare instruction sets and the NumPy twins, for the backward pass and its expansion on Adult."""
    X, y, X_test, y_test = data
    model = CatBoostClassifier(**PAPER, **QUIET).fit(X, y)
    table = [["exact influence, 32 test rows, one thread", "time", "against NumPy twins"]]
    modules = [import_module(f"leaftrace.{name}") for name in WITH_KERNELS]
    times = {}
    for name in ("NumPy twins", "baseline", "avx2", "avx512"):
        native = name != "NumPy twins"
        if native:
            try:
                package.kernels.set_isa(name)
            except ValueError:
                continue
        for module in modules:
            module.kernels = package.kernels if native else twins
        tracer = lt.Tracer(model, X, y, n_jobs=1)
        tracer.influence(X_test[:32], y_test[:32])
        times[name] = median(
            lambda t=tracer: t.influence(X_test[:32], y_test[:32]), 7 if native else 3
        )
        table.append([name, show(times[name]), ratio(times["NumPy twins"] / times[name])])
    return table


def many_queries() -> Table:
    """Compare row form and leaf form with each other and with the estimate, where leaf form is chosen."""
    rng = np.random.default_rng(0)
    n = 200_000
    m = 2000
    X = rng.normal(size=(n, 10)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n) > 0).astype(np.float32)
    tracer = lt.Tracer(CatBoostClassifier(**PAPER, **QUIET, max_bin=64).fit(X, y), X, y)
    rows = np.arange(1000)
    tracer.influence(X[:1], y[:1])
    queries = f"{m:,} queries on {len(rows):,} of {n:,} rows"
    table = [[queries, "estimated", "measured", "largest difference"]]
    values = {}
    pays = costs.leaf_form_pays
    for form in ("row form", "leaf form"):
        chosen = pays if form == "leaf form" else lambda *_: False
        costs.leaf_form_pays = chosen
        estimate = tracer.estimate(m, rows=rows)
        assert estimate.form == form, estimate
        start = time.perf_counter()
        values[form] = tracer.influence(X[:m], y[:m], rows=rows).values
        seconds = time.perf_counter() - start
        assert (tracer.engine.space is None) == (form == "row form")
        table.append([form, show(estimate.seconds), show(seconds), ""])
    exact = values["row form"]
    difference = np.abs(values["leaf form"] - exact).max() / np.abs(exact).max()
    table[-1][3] = f"{difference:.0e}"
    return table


def sections(data, quick: bool, models: str | None) -> dict[str, Callable[[], str]]:
    """Return the sections of the page, each with the function that measures it.

    ``models``: folder that keeps the models of a million rows, or None."""
    found = {
        "All training rows on m test rows": lambda: peers.section(data, quick, FIGURE),
        "A whole test set": lambda: whole_test_set(data),
        "Splits that give way": lambda: f"{SOFT}\n\n{trainings.section(data)}",
        "Removing rows": lambda: f"{REFIT}\n\n{markdown(removals(data))}",
        "Many queries": lambda: f"{FORMS}\n\n{markdown(many_queries())}",
        "Estimates": lambda: f"{TRIALS}\n\n{estimates.section()}",
        "Actions before they are called": lambda: f"{PARTS}\n\n{action_estimates.section()}",
        "Several outputs": lambda: f"{OUTPUTS}\n\n{outputs.section()}",
        "Constrained models": lambda: f"{CONSTRAINED}\n\n{constrained.section()}",
        "Growth": lambda: f"{GROWTH}\n\n{growth.section()}",
        "Kernels": lambda: f"{TWINS}\n\n{markdown(kernels_against_twins(data))}",
        "A million rows": lambda: million.section(models),
    }
    if quick:
        del found["A million rows"]
    return found


SOFT = """StructureInfluence lets splits change, so it compares candidate splits as training does. The time of a block
of test rows, and of the mean loss of all test rows, is given in trainings of the model on the same threads."""
REFIT = "LeafRefit removes a training row and recomputes all leaf values."
FORMS = """The row form passes over all rows for each block of queries. The leaf form solves a linear system over
leaves instead ([The mathematics](mathematics.md#leaf-space))."""
TRIALS = """`tracer.estimate` times the passes of the answer over a few rows, and a few steps of soft splits. Both times
are of one thread, and medians over seven tracers. The measured one is its time on the processor, or on the clock if
that is less, as threads of the libraries wait busily."""
PARTS = """`lt.estimate` does one part of each kind (a refit, a retraining) and counts the parts. Where their number
depends on what they say, it gives the time of the shortest and of the longest course. Both times are of one thread; the
measured one is its time on the processor, or on the clock if that is less. The last column is how far it is outside of
the estimate; 1 is inside. Medians of three runs."""
OUTPUTS = """Times are those of one thread on the processor, or on the clock if that is less; answers also in trainings
of the model on one thread."""
CONSTRAINED = """Monotone models against models without constraints, with the same settings and rows: how many times as
long an answer takes, in time on the processor, and the time of the monotone one. Answers are asked in turns, on one
thread."""
GROWTH = """Times of one thread on the processor, for a LightGBM classifier with n = 20,000 rows, T = 100 rounds of a
tree for each class, K = 3 classes and d = 12 columns, of which one grows. Cells end with the power that fits the times
best."""
TWINS = "Each native kernel has a twin in NumPy that computes the same."


def written_sections() -> dict[str, str]:
    """Return the texts of the page as it is."""
    parts = PAGE.read_text("utf-8").split("\n## ")[1:]
    return dict(part.split("\n\n", 1) for part in parts)


def head(rows: int) -> str:
    """Return the beginning of the page."""
    isa = package.kernels.isa()
    threads = len(os.sched_getaffinity(0))
    versions = f"CatBoost {version('catboost')} and NumPy {np.__version__}"
    return f"""# Benchmarks

Written by `make bench`, with {isa} kernels, {threads} threads, {versions}.
Times are medians. They do not include building the tracer, unless the line says so. Adult has {rows:,}
training rows; models have 100 trees of depth 6, unless the line says otherwise.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the runs that take minutes")
    parser.add_argument(
        "--only", metavar="WORDS", help="measure one section again and keep the others of the page"
    )
    parser.add_argument("--models", metavar="FOLDER", help="keep the models of a million rows here")
    given = parser.parse_args()
    data = adult.load()
    found = sections(data, given.quick, given.models)
    texts = written_sections() if given.only else {}
    for name, measure in found.items():
        if not given.only or given.only in name:
            texts[name] = f"{measure()}\n"
    parts = [
        head(len(data[1])),
        *(f"## {name}\n\n{texts[name]}" for name in found if name in texts),
    ]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
