"""Write docs/support.md: train a model for every option of every library, trace it, and say what came out.

    python tools/support.py            # all libraries, into docs/support.md
    python tools/support.py LightGBM   # one, to the screen

`support_<library>.py` lists the options. A row is *exact* if the replay gives all of the model's own leaf values,
*approximate* if it does not (a Tracer then raises unless told to go on) and *refused* if the model cannot be replayed.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

import leaftrace as lt

LIBRARIES = {
    "CatBoost": "catboost",
    "XGBoost": "xgboost",
    "LightGBM": "lightgbm",
    "scikit-learn": "sklearn",
}
BOUNDS = {"XGBoost": 1e-6}  # of an exact row; others 1e-9
TARGET = Path(__file__).parents[1] / "docs" / "support.md"


@dataclass(frozen=True)
class Outcome:
    option: str
    verdict: str  # exact, approximate, refused
    error: float | None
    note: str


def outcome(option, make) -> Outcome:
    model, X, y, arguments = make()
    try:
        tracer = lt.Tracer(model, X, y, **arguments)
    except lt.UnsupportedModel as error:
        return Outcome(option, "refused", None, str(error))
    except lt.FidelityError:
        tracer = lt.Tracer(model, X, y, **{**arguments, "fidelity": "ignore"})
        return Outcome(option, "approximate", tracer.fidelity.max_error, tracer.fidelity.verdict)
    note = "; ".join(tracer.fidelity.verdict.split("; ")[1:])
    return Outcome(
        option,
        "exact",
        tracer.fidelity.max_error,
        "; ".join(filter(None, [methods(tracer, X), note])),
    )


def methods(tracer, X) -> str:
    """Whether all methods answer; empty if so."""
    few = X.iloc[:2] if hasattr(X, "iloc") else X[:2] if hasattr(X, "__getitem__") else None
    if few is None:
        return ""
    try:
        values = tracer.influence(few, of="prediction").values
    except lt.UnsupportedModel:
        values = tracer.influence(few, of="prediction", method=lt.LeafRefit(), rows=[0, 1]).values
        assert np.isfinite(values).all()
        return "LeafRefit only"
    assert np.isfinite(values).all()
    return "" if np.any(values != 0) else "LeafInfluence is zero: every leaf holds one label"


def outcomes(library: str) -> list[Outcome]:
    module = importlib.import_module(f"support_{LIBRARIES[library]}")
    found = []
    for option, make in module.rows():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries, about the ugly settings
            found.append(outcome(option, make))
        print(f"{library:13s} {found[-1].verdict:12s} {option}", file=sys.stderr)
    return found


def table(library: str, found: list[Outcome]) -> str:
    lines = [
        f"## {library} {version(LIBRARIES[library].replace('sklearn', 'scikit-learn'))}",
        "",
        "| option | | largest relative error | |",
        "| --- | --- | --- | --- |",
    ]
    for row in found:
        error = "" if row.error is None else f"{row.error:.0e}"
        lines.append(f"| {row.option} | {row.verdict} | {error} | {row.note.replace('|', '/')} |")
    return "\n".join(lines)


def main() -> None:
    libraries = sys.argv[1:] or list(LIBRARIES)
    found = {library: outcomes(library) for library in libraries}
    for library, rows in found.items():
        for row in rows:
            bound = BOUNDS.get(library, 1e-9)
            assert row.verdict != "exact" or row.error <= bound, (
                f"{library}, {row.option}: {row.error:.1e} > {bound}"
            )
    rows = [row for rows in found.values() for row in rows]
    counts = {v: sum(row.verdict == v for row in rows) for v in ("exact", "approximate", "refused")}
    text = "\n\n".join(
        [
            "# What leaftrace can replay",
            "Made by `python tools/support.py`, which trains a model for every line and compares all leaf values that "
            "the replay computes from the training rows with the model's own, relative to the largest.",
            f"{len(rows)} options: {counts['exact']} exact, {counts['approximate']} approximate, "
            f"{counts['refused']} refused. *Exact* means at most 1e-6 for XGBoost, which keeps its numbers in float32, "
            "and 1e-9 for the others. For *approximate* ones `Tracer` raises `FidelityError` unless told to go on "
            '(`fidelity="warn"`). *LeafRefit only*: leaf values are quantiles and have no derivatives.',
            *(table(library, rows) for library, rows in found.items()),
        ]
    )
    if sys.argv[1:]:
        print(text)
    else:
        TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
