"""Write docs/support.md: train and trace a model for every option of every library.

    python tools/support.py            # all libraries, into docs/support.md
    python tools/support.py LightGBM   # one, to the screen

`support_<library>.py` lists the options. A row is *exact* if the replay gives all of the model's own
leaf values, *approximate* if it does not (a Tracer then raises an error by default), and *refused* if
the model cannot be replayed.
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
BOUNDS = {"XGBoost": 1e-6}  # largest error of an exact row; 1e-9 for the others
RANKER_BOUND = 1e-6  # of LightGBM's rankers, which add up pairs in float32
TARGET = Path(__file__).parents[1] / "docs" / "support.md"


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    option: str
    verdict: str  # exact, approximate, refused
    error: float | None
    note: str


def outcome(option, make) -> Outcome:
    """Train and trace the model of one option."""
    model, X, y, arguments = make()
    try:
        tracer = lt.Tracer(model, X, y, **arguments)
    except lt.UnsupportedModel as error:
        return Outcome(option, "refused", None, str(error))
    except lt.FidelityError:
        tracer = lt.Tracer(model, X, y, **{**arguments, "fidelity": "ignore"})
        return Outcome(option, "approximate", tracer.fidelity.max_error, tracer.fidelity.verdict)
    _, *notes = tracer.fidelity.verdict.split("; ")
    limit = limit_of_methods(tracer, X)
    note = "; ".join(filter(None, [limit, *notes]))
    return Outcome(option, "exact", tracer.fidelity.max_error, note)


def limit_of_methods(tracer, X) -> str:
    """Return what does not work with this model, or "" if all methods do."""
    X_test = first_rows(X)
    if X_test is None:
        return ""
    try:
        values = tracer.influence(X_test, of="prediction", output=0).values
    except lt.UnsupportedModel:
        asked = {"of": "prediction", "output": 0, "method": lt.LeafRefit(), "rows": [0, 1]}
        values = tracer.influence(X_test, **asked).values
        assert np.isfinite(values).all()
        return "LeafRefit only"
    assert np.isfinite(values).all()
    return "" if np.any(values != 0) else "LeafInfluence is zero: every leaf holds one label"


def first_rows(X):
    """Return two rows, or None for data that have no rows to take, such as a Pool."""
    if hasattr(X, "iloc"):
        return X.iloc[:2]
    return X[:2] if hasattr(X, "__getitem__") else None


def outcomes(library: str) -> list[Outcome]:
    """Train and trace a model for every option of a library."""
    module = importlib.import_module(f"support_{LIBRARIES[library]}")
    found = []
    for option, make in module.rows():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn about unusual settings
            found.append(outcome(option, make))
        print(f"{library:13s} {found[-1].verdict:12s} {option}", file=sys.stderr)
    return found


def table(library: str, found: list[Outcome]) -> str:
    """Return the section of a library."""
    package = LIBRARIES[library].replace("sklearn", "scikit-learn")
    lines = [
        f"## {library} {version(package)}",
        "",
        "| option | result | largest relative error | note |",
        "| --- | --- | --- | --- |",
    ]
    for row in found:
        error = "" if row.error is None else f"{row.error:.0e}"
        lines.append(f"| {row.option} | {row.verdict} | {error} | {row.note.replace('|', '/')} |")
    return "\n".join(lines)


def check(found: dict[str, list[Outcome]]) -> None:
    """Raise if an exact row has too large an error."""
    for library, rows in found.items():
        for row in rows:
            bound = BOUNDS.get(library, 1e-9)
            if library == "LightGBM" and "rank" in row.option:
                bound = RANKER_BOUND
            message = f"{library}, {row.option}: {row.error} > {bound}"
            assert row.verdict != "exact" or row.error <= bound, message


def page(found: dict[str, list[Outcome]]) -> str:
    """Return the text of docs/support.md."""
    rows = [row for rows in found.values() for row in rows]
    exact, approximate, refused = (
        sum(row.verdict == verdict for row in rows)
        for verdict in ("exact", "approximate", "refused")
    )
    tables = "\n\n".join(table(library, rows) for library, rows in found.items())
    return f"""# What leaftrace can replay

To *replay* a model means to recompute all its leaf values from the training rows. This page is written
by `python tools/support.py`, which trains a model for every line and compares the recomputed leaf
values with the model's own. Errors are relative to the largest leaf value.

Of {len(rows)} options, {exact} are exact, {approximate} approximate and {refused} refused.

- *Exact*: the error is at most 1e-6 for XGBoost, which stores its numbers in float32, and for LightGBM's
  rankers, which add up pairs in float32; it is at most 1e-9 otherwise.
- *Approximate*: the leaf values differ, and `Tracer` raises `FidelityError`. With `fidelity="warn"` it
  warns and continues.
- *Refused*: the model cannot be replayed, and `Tracer` raises `UnsupportedModel` with the message
  in the last column.
- *LeafRefit only*: leaf values are quantiles and have no derivatives.

{tables}"""


def main() -> None:
    libraries = sys.argv[1:] or list(LIBRARIES)
    found = {library: outcomes(library) for library in libraries}
    check(found)
    text = page(found)
    if sys.argv[1:]:
        print(text)
    else:
        TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
