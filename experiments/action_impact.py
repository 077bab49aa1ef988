"""Deletion requests: what goes with one person's row, with a random group, with a whole source. Adult."""

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

Adult, the paper's CatBoost: how far the {len(data.y_test):,} test predictions move when training rows go, to first
order, with the trees fixed and retrained. The last column is the mean move when as many rows drawn at random go (three
retrainings): training again chooses other splits whichever rows go, and for small groups that is all that is seen.

| gone | rows | of | before | predicted | refitted | retrained | random rows |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    print(run())
