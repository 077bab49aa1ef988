"""Everything against its peers, in one run on the same model and data: `make bench`.

Writes docs/benchmarks.md and docs/benchmarks.png. Times are medians of wall time on the threads this machine has, with
nothing else running; what counts is the ratio within a line. Data: Adult (LEAFTRACE_DATA) and generated rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from catboost import CatBoost, CatBoostClassifier, Pool

import leaftrace as lt
from leaftrace import _kernels
from leaftrace._engine import costs
from leaftrace._kernels import numpy as twins

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import adult  # noqa: E402

PAPER = {"iterations": 100, "depth": 6, "learning_rate": 0.2, "boosting_type": "Plain"}
PAPER |= {"leaf_estimation_method": "Newton", "leaf_estimation_iterations": 1}
QUIET = {"verbose": 0, "allow_writing_files": False}
Table = list[list[str]]


def median(fn: Callable[[], object], repeats: int = 5) -> float:
    """Median seconds of fn, after one call to warm up where calls are short."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
        if times[0] > 20:
            break
    return float(np.median(times))


def show(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"


def ratio(x: float) -> str:
    return f"{x:,.0f} x" if x >= 10 else f"{x:.2g} x"


def exponent(n: list[int], seconds: list[float]) -> float:
    """Slope of log time against log n."""
    return float(np.polyfit(np.log(n), np.log(seconds), 1)[0])


def against_catboost(
    data, sizes: list[int], slow_up_to: int
) -> tuple[Table, dict[str, dict[int, float]], str]:
    X, y, X_test, y_test = data
    times: dict[str, dict[int, float]] = {}
    for n in sizes:
        model = CatBoostClassifier(**PAPER, **QUIET).fit(X[:n], y[:n])
        start = time.perf_counter()
        tracer = lt.Tracer(model, X[:n], y[:n])
        tracer.influence(X_test[:1], y_test[:1])
        times.setdefault("leaftrace: build, first answer", {})[n] = time.perf_counter() - start
        for m in (1, 100):
            rows = X_test[:m], y_test[:m]
            times.setdefault(f"leaftrace exact, m = {m}", {})[n] = median(
                lambda r=rows, t=tracer: t.influence(*r), 9
            )
            for method, limit in (
                ("AllPoints", slow_up_to),
                ("TopKLeaves:top=8", 8000),
                ("SinglePoint", 10**9),
            ):
                if n <= limit and (m == 1 or n <= 8000 or method == "SinglePoint"):
                    ask = {
                        "top_size": -1,
                        "type": "PerObject",
                        "update_method": method,
                        "thread_count": -1,
                    }
                    pools = Pool(X_test[:m], y_test[:m]), Pool(X[:n], y[:n])
                    times.setdefault(f"CatBoost {method}, m = {m}", {})[n] = median(
                        lambda p=pools, a=ask, k=model: k.get_object_importance(*p, **a), 3
                    )
        print(n, {name: show(t[n]) for name, t in times.items() if n in t}, flush=True)
    table = [["", *[f"n = {n:,}" for n in sizes], "growth"]]
    for name, t in times.items():
        grown = [n for n in t if n >= 2000]
        growth = f"n^{exponent(grown, [t[n] for n in grown]):.2f}" if len(grown) > 1 else ""
        table.append([name, *[show(t[n]) if n in t else "" for n in sizes], growth])
    lines = []
    for m, n in ((1, 8000), (1, sizes[-1]), (100, 8000)):
        theirs = times[f"CatBoost AllPoints, m = {m}"].get(n)
        ours = times[f"leaftrace exact, m = {m}"].get(n)
        if theirs and ours:
            lines.append(
                f"- exact, m = {m}, n = {n:,}: {ratio(theirs / ours)} faster than CatBoost's AllPoints"
            )
    n = sizes[-1]
    crude = times["CatBoost SinglePoint, m = 100"][n]
    ours = times["leaftrace exact, m = 100"][n]
    build = times["leaftrace: build, first answer"][n]
    lines.append(
        f"- exact, m = 100, n = {n:,}: {ratio(crude / ours)} faster than CatBoost's SinglePoint approximation"
    )
    lines.append(
        f"- the same with building the tracer counted in: {ratio(crude / (ours + build))} faster"
    )
    return table, times, "\n".join(lines)


def whole_test_set(data) -> str:
    X, y, X_test, y_test = data
    tracer = lt.Tracer(CatBoostClassifier(**PAPER, **QUIET).fit(X, y), X, y)
    tracer.influence(X_test[:1], y_test[:1])
    one = median(lambda: tracer.influence(X_test[:1], y_test[:1]), 9)
    all_rows = median(lambda: tracer.influence(X_test, y_test, reduce="mean"), 9)
    return (
        f"Mean loss of {len(y_test):,} test rows: {show(all_rows)}, "
        f"{ratio(all_rows / one)} one test row ({show(one)})."
    )


def removals(data) -> Table:
    """LeafRefit: seconds a removal, beside a refit in plain NumPy."""
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
        ask = {"method": lt.LeafRefit(update_set), "rows": np.arange(512)}
        tracer.influence(X_test[:1], y_test[:1], method=ask["method"], rows=np.arange(64))
        each = median(lambda a=ask: tracer.influence(X_test[:1], y_test[:1], **a), 5) / 512
        table.append([type(update_set).__name__, show(each), ratio(base / each)])
    return table


def kernels_against_twins(data) -> Table:
    """The backward pass and its expansion on Adult, on each instruction set and in NumPy."""
    X, y, X_test, y_test = data
    model = CatBoostClassifier(**PAPER, **QUIET).fit(X, y)
    table = [["exact influence, 32 test rows, one thread", "time", "against NumPy twins"]]
    names = "backward", "row_effects", "queries", "steps", "forward", "costs"
    modules = [
        sys.modules["leaftrace._model.ensemble"],
        *(sys.modules[f"leaftrace._engine.{name}"] for name in names),
    ]
    times = {}
    for name in ("NumPy twins", "baseline", "avx2", "avx512"):
        native = name != "NumPy twins"
        if native:
            try:
                _kernels.kernels.set_isa(name)
            except ValueError:
                continue
        for module in modules:
            module.kernels = _kernels.kernels if native else twins
        tracer = lt.Tracer(model, X, y, n_jobs=1)
        tracer.influence(X_test[:32], y_test[:32])
        times[name] = median(
            lambda t=tracer: t.influence(X_test[:32], y_test[:32]), 7 if native else 3
        )
        table.append([name, show(times[name]), ratio(times["NumPy twins"] / times[name])])
    return table


def million(trees: int, memory_limit: int | None, model_file: str | None) -> None:
    """In a process of its own: one query on a million generated rows; prints key=value lines."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    X = rng.normal(size=(n, 10)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n) > 0).astype(np.float32)
    if model_file and not os.path.exists(model_file):
        settings = {
            **PAPER,
            **QUIET,
            "iterations": trees,
            "max_bin": 64,
            "loss_function": "Logloss",
        }
        CatBoost(settings).fit(X, y).save_model(model_file)
        return
    model = CatBoost().load_model(model_file)
    predict = median(lambda: model.predict(X, prediction_type="RawFormulaVal"), 5)
    with open("/proc/self/statm", encoding="ascii") as file:
        before = int(file.read().split()[1]) * resource.getpagesize() / 1e9
    build = median(lambda: lt.Tracer(model, X, y, memory_limit=memory_limit), 3)
    tracer = lt.Tracer(model, X, y, memory_limit=memory_limit)
    start = time.perf_counter()
    tracer.influence(X[:1], y[:1])
    first = time.perf_counter() - start
    kept = tracer.engine.work.keeps_effects
    again = median(lambda: tracer.influence(X[:1], y[:1]), 5 if kept else 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    a = np.zeros(200_000_000, np.float32)
    b = np.ones(200_000_000, np.float32)
    copy = median(lambda: np.copyto(a, b), 5)
    results = {
        "predict": predict,
        "build": build,
        "first": first,
        "again": again,
        "kept": int(kept),
    }
    results |= {"memory": peak - before, "bandwidth": 2 * a.nbytes / copy}
    print("\n".join(f"{k}={v}" for k, v in results.items()))


def in_own_process(trees: int, memory_limit: int | None, folder: str) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--million",
        str(trees),
        "--model",
        os.path.join(folder, f"{trees}.cbm"),
    ]
    command += ["--memory-limit", str(memory_limit)] if memory_limit else []
    if not os.path.exists(command[5]):
        subprocess.run(command, check=True)
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {k: float(v) for k, v in (line.split("=") for line in out.split())}


def millions(folder: str) -> Table:
    rows = 1_000_000
    table = [["1,000,000 rows, one query", "100 trees", "1,000 trees"]]
    runs = [in_own_process(100, None, folder), in_own_process(1000, 3 << 30, folder)]
    # Backward: U, two leaf ids, abar read and written; expansion: V, a leaf id.
    touched = [rows * trees * (4 + 1 + 1 + 8 + 4 + 1) for trees in (100, 1000)]
    bounds = [t / r["bandwidth"] for t, r in zip(touched, runs, strict=True)]
    lines = {
        "CatBoost's predict on the rows": [show(r["predict"]) for r in runs],
        "building the tracer, median of 3": [
            f"{show(r['build'])} ({ratio(r['build'] / r['predict'])} predict)" for r in runs
        ],
        "first query": [show(r["first"]) for r in runs],
        "a further query": [
            f"{show(r['again'])} ({'row effects kept' if r['kept'] else 'recomputed to stay in memory'})"
            for r in runs
        ],
        "streaming bound (bytes touched / copy bandwidth)": [show(b) for b in bounds],
        "query against the bound": [
            ratio(r["again"] / b) for r, b in zip(runs, bounds, strict=True)
        ],
        "peak memory beyond the input": [f"{r['memory']:.2f} GB" for r in runs],
    }
    return table + [[name, *cells] for name, cells in lines.items()]


def many_queries() -> Table:
    """Row form and leaf form, and what was estimated, where the leaf form is chosen."""
    rng = np.random.default_rng(0)
    n = 200_000
    m = 2000
    X = rng.normal(size=(n, 10)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n) > 0).astype(np.float32)
    tracer = lt.Tracer(CatBoostClassifier(**PAPER, **QUIET, max_bin=64).fit(X, y), X, y)
    rows = np.arange(1000)
    tracer.influence(X[:1], y[:1])
    table = [
        [
            f"{m:,} queries on {len(rows):,} of {n:,} rows",
            "estimated",
            "measured",
            "largest difference",
        ]
    ]
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
    difference = (
        np.abs(values["leaf form"] - values["row form"]).max() / np.abs(values["row form"]).max()
    )
    table[-1][3] = f"{difference:.0e}"
    return table


def markdown(table: Table) -> str:
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(times: dict[str, dict[int, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    chosen = {
        "leaftrace exact, m = 1": ("#0072B2", "o"),
        "leaftrace exact, m = 100": ("#56B4E9", "o"),
        "CatBoost SinglePoint, m = 100": ("#E69F00", "s"),
        "CatBoost TopKLeaves:top=8, m = 1": ("#CC79A7", "^"),
        "CatBoost AllPoints, m = 1": ("#D55E00", "D"),
    }
    for name, (colour, marker) in chosen.items():
        axes.loglog(
            list(times[name]), list(times[name].values()), marker=marker, color=colour, label=name
        )
    axes.set(
        xlabel="training rows",
        ylabel="seconds",
        title="Influence of all rows on m test rows (Adult, 100 trees)",
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the runs that take minutes")
    parser.add_argument(
        "--only", metavar="WORDS", help="measure one section again and keep the others of the page"
    )
    parser.add_argument("--million", type=int, metavar="TREES", help=argparse.SUPPRESS)
    parser.add_argument("--memory-limit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.million:
        return million(args.million, args.memory_limit, args.model)

    data = adult.load()
    sections = {
        "All training rows on m test rows": lambda: against_catboost_section(data, args.quick),
        "A whole test set": lambda: whole_test_set(data),
        "Removing rows": lambda: markdown(removals(data)),
        "Many queries": lambda: markdown(many_queries()),
        "Kernels": lambda: markdown(kernels_against_twins(data)),
        "A million rows": lambda: millions_section(),
    }
    if args.quick:
        del sections["A million rows"]
    page = ROOT / "docs" / "benchmarks.md"
    texts = (
        dict(part.split("\n\n", 1) for part in page.read_text("utf-8").split("\n## ")[1:])
        if args.only
        else {}
    )
    for name, measure in sections.items():
        if not args.only or args.only in name:
            texts[name] = f"{measure()}\n"
    threads = len(os.sched_getaffinity(0))
    head = (
        f"# Benchmarks\n\nWritten by `make bench`. {_kernels.kernels.isa()} kernels, {threads} threads, CatBoost "
        f"{_catboost_version()}, NumPy {np.__version__}. Medians, with the tracer built unless said otherwise. "
        f"Adult has {len(data[1]):,} training rows; models have 100 trees of depth 6 unless said otherwise.\n"
    )
    page.write_text(
        "\n".join([head, *(f"## {name}\n\n{texts[name]}" for name in sections)]), encoding="utf-8"
    )
    print(page.read_text(encoding="utf-8"))


def against_catboost_section(data, quick: bool) -> str:
    sizes = [1000, 2000, 4000, 8000, len(data[1])]
    table, times, ratios = against_catboost(data, sizes, 8000 if quick else len(data[1]))
    plot(times, ROOT / "docs" / "benchmarks.png")
    return (
        "CatBoost is `get_object_importance`. Growth is fitted from n = 2,000 on.\n\n"
        f"{markdown(table)}\n\n![seconds against training rows](benchmarks.png)\n\n{ratios}"
    )


def millions_section() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return markdown(millions(folder))


def _catboost_version() -> str:
    import catboost

    return catboost.__version__


if __name__ == "__main__":
    main()
