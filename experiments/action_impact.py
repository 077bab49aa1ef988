"""Deletion requests: the effect of removing one row, a random group, a whole source. Adult."""

from __future__ import annotations

import numpy as np
from data import adult, catboost

import leaftrace as lt


def run() -> str:
    data = adult()
    tracer = lt.Tracer(catboost("adult").fit(data.X, data.y), data.X, data.y)
    rng = np.random.default_rng(0)
    country = data.X["native_country"]
    second = country.value_counts().index[1]
    groups = {
        "one row": rng.choice(tracer.n_rows, 1),
        "100 random rows": rng.choice(tracer.n_rows, 100, replace=False),
        "the second largest country": np.flatnonzero(country == second),
        "all with label 1 aged 40 to 50": np.flatnonzero(
            (data.y == 1) & data.X["age"].between(40, 49).to_numpy()
        ),
    }
    lines = []
    for name, rows in groups.items():
        impact = lt.removal_impact(tracer, rows, data.X_test, data.y_test, controls=3)
        for of, before, *changes in impact.effects.itertuples(index=False):
            cells = [f"{change:.4g}" for change in (before, *changes)]
            control = f"{impact.controls.mean():.4g}" if of.startswith("mean move") else ""
            lines.append(f"| {name} | {len(rows):,} | {of} | {' | '.join(cells)} | {control} |")
    return f"""## Deletion requests

How far do the {len(data.y_test):,} test predictions move when training rows are removed? The data are Adult,
the model is the paper's CatBoost. The last column is the mean move when the same number of rows, drawn
at random, is removed (three retrainings). Training again chooses other splits whichever rows are
removed; for small groups, that is all there is to see.

| removed | rows | of | before | predicted | refitted | retrained | random rows |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    print(run())
