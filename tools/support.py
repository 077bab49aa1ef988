"""Write docs/support.md: train and trace a model for every option of every library.

    python tools/support.py            # all libraries, into docs/support.md
    python tools/support.py LightGBM   # one, to the screen

Every option that is exact in memory is then traced from files, on Dask and on Spark (support_places.py).

`support_<library>.py` lists the options. A row is *exact* if the replay gives all of the model's own
leaf values, *approximate* if it does not (a Tracer then raises an error by default), and *refused* if
the model cannot be replayed.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from support_places import NAMES, NO, Places, option_of

import leaftrace as lt

LIBRARIES = {
    "CatBoost": "catboost",
    "XGBoost": "xgboost",
    "LightGBM": "lightgbm",
    "scikit-learn": "sklearn",
}
BOUNDS = {"XGBoost": 1e-6}  # largest error of an exact row; 1e-9 for the others
RANKER_BOUND = 1e-6  # of LightGBM's rankers, which add up pairs in float32
# Refused lines of models that are no gradient boosting and no forest: they are listed apart.
OTHER_KINDS = {
    "booster=gblinear",
    "AdaBoostClassifier",
    "BaggingRegressor",
    "IsolationForest",
    "StackingRegressor",
    "Ridge",
}
# Approximate lines of models that were traced without something that they do not keep.
NOT_TOLD = {
    "continued training with another learning rate",
    "file, subsample not given",
    "Booster.refit(decay_rate=0.9), the default",
}
TARGET = Path(__file__).parents[1] / "docs" / "support.md"


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    option: str
    verdict: str  # exact, approximate, refused
    error: float | None
    note: str
    places: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NAMES, NO))


def outcome(option, make, places) -> Outcome:
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
    elsewhere = places.results(
        exactly(tracer, model, X, y, arguments), option_of(model, X, y, arguments)
    )
    return Outcome(option, "exact", tracer.fidelity.max_error, note, elsewhere)


def exactly(tracer, model, X, y, arguments):
    """Return the tracer with passes in float64, with which answers from other places are compared."""
    return lt.Tracer(model, X, y, **{**arguments, "dtype": "float64"})


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


def outcomes(library: str, places: Places) -> list[Outcome]:
    """Train and trace a model for every option of a library."""
    module = importlib.import_module(f"support_{LIBRARIES[library]}")
    found = []
    for option, make in module.rows():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn about unusual settings
            found.append(outcome(option, make, places))
        print(f"{library:13s} {found[-1].verdict:12s} {option}", file=sys.stderr)
    return found


def table(library: str, found: list[Outcome]) -> str:
    """Return the section of a library."""
    package = LIBRARIES[library].replace("sklearn", "scikit-learn")
    lines = [
        f"## {library} {version(package)}",
        "",
        "| option | memory | files | Dask | Spark | largest relative error | note |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in found:
        if listed_apart(row):
            continue
        error = "" if row.error is None else f"{row.error:.0e}"
        where = " | ".join(row.places[name] for name in NAMES)
        note = row.note.replace("|", "/")
        lines.append(f"| {row.option} | {row.verdict} | {where} | {error} | {note} |")
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


def listed_apart(row: Outcome) -> bool:
    """Whether a line is in one of the lists after the tables."""
    other_kind = row.option in OTHER_KINDS and row.verdict == "refused"
    return other_kind or (row.option in NOT_TOLD and row.verdict == "approximate")


def items(found: dict[str, list[Outcome]], verdict: str) -> str:
    """Return the lines of this verdict that are listed apart."""
    return "\n".join(
        f"- {library}, {row.option}: {row.note}"
        for library, rows in found.items()
        for row in rows
        if listed_apart(row) and row.verdict == verdict
    )


def page(found: dict[str, list[Outcome]]) -> str:
    """Return the text of docs/support.md."""
    rows = [row for rows in found.values() for row in rows if not listed_apart(row)]
    exact, approximate, refused = (
        sum(row.verdict == verdict for row in rows)
        for verdict in ("exact", "approximate", "refused")
    )
    tables = "\n\n".join(table(library, rows) for library, rows in found.items())
    return f"""# What leaftrace can replay

To *replay* a model means to recompute all its leaf values from the training rows. This page is written
by `python tools/support.py`, which trains a model for every line and compares the recomputed leaf
values with the model's own. Errors are relative to the largest leaf value.

Of {len(rows)} options, {exact} are exact, {approximate} approximate and {refused} refused. Of the exact
ones, {elsewhere(rows)} are also exact [where rows do not fit in memory](scale.md).

- *Exact*: the error is at most 1e-6 for XGBoost, which stores its numbers in float32, and for LightGBM's
  rankers, which add up pairs in float32; it is at most 1e-9 otherwise.
- *Approximate*: the leaf values differ, and `Tracer` raises `FidelityError`. With `fidelity="warn"` it
  warns and continues.
- *Refused*: the model cannot be replayed, and `Tracer` raises `UnsupportedModel` with the message
  in the last column.
- *LeafRefit only*: leaf values are quantiles and have no derivatives.
- *Client*: exact on a cluster, which finds the leaves of the rows; the rest is computed at the client.
- —: refused, or such data cannot be there (a Pool, a sparse table, two columns of labels on Spark).

{tables}

## Without what a model does not keep

These models were traced without being told something that their libraries do not store. `Tracer`
raises `FidelityError`, and the tables above have the same models with it.

{items(found, "approximate")}

## Other kinds of models

These are neither gradient boosting nor forests, so there is no training of trees to replay. `Tracer`
raises `UnsupportedModel`:

{items(found, "refused")}"""


def elsewhere(rows: list[Outcome]) -> str:
    """Return how many options are exact in each of the other places, in words."""
    exact = [row for row in rows if row.verdict == "exact"]
    counts = {name: sum(row.places[name] != NO for row in exact) for name in NAMES}
    client = sum(row.places["Dask"] == "client" for row in exact)
    dask = f"{counts['Dask']} on Dask ({client} of them at the client)"
    return f"{counts['files']} from files, {dask} and {counts['Spark']} on Spark"


def main() -> None:
    libraries = [name for name in sys.argv[1:] if not name.startswith("-")]
    with Places() as places:
        found = {library: outcomes(library, places) for library in libraries or LIBRARIES}
    check(found)
    text = page(found)
    if libraries:
        print(text)
    else:
        TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
