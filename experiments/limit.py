"""How much of retraining any sums of influences can predict, whichever method they come from.

python experiments/limit.py        # -> docs/paper/limit.csv and limit.md, which docs/structure.md includes

A loss after training on a half of the rows is a function of which rows are in it. It has a part that is
a sum over these rows, parts of pairs, of three rows and so on, and noise of the training. With halves of
which each row is in both or in neither, or in one of two, in such shares that these choices have
correlation c, the losses have correlation r(c) = v1 c + v2 c^2 + v3 c^3 + ..., with the shares v of the
parts, none of which is negative. So

    r(1/2) - r(-1/2) = v1 + v3/4 + v5/16 + ... >= v1

and no sum of numbers of rows has a higher correlation with the loss than the root of v1. The LDS is a
rank correlation, so losses are replaced by the normal scores of their ranks over the halves, and the
limit is the rank correlation of two normal variables with that correlation."""

from __future__ import annotations

import limit_text
import numpy as np
import pandas as pd
from attribution import World
from attribution import linear_correlations as correlation
from paper_attribution import FULL
from results import folder_of
from scipy.stats import norm

SETS = 60  # of five trainings
FIRST_SEED = 50_000


def halves(rows: int, sets: int) -> np.ndarray:
    """Return halves (sets, 5, rows).

    Of each set: one, its rest, one that shares three quarters of its rows, the rest of that, and the
    first again."""
    rng = np.random.default_rng(31)
    found = []
    for _ in range(sets):
        place = np.argsort(rng.permutation(rows))
        one = place < rows // 2
        moved = rows // 8
        other = (place >= moved) & (place < rows // 2 + moved)
        found.append([one, ~one, other, ~other, one])
    return np.array(found)


def measured(losses: np.ndarray) -> dict[str, float]:
    """Return r(1) and the bound of v1, means over test rows, from losses (sets, 5, tests) of `halves`."""
    sets, kinds, tests = losses.shape
    count = sets * kinds
    ranks = losses.reshape(count, tests).argsort(axis=0).argsort(axis=0)
    scores = norm.ppf((ranks + 0.5) / count).reshape(losses.shape)
    one, rest, other, other_rest, again = scores.swapaxes(0, 1)
    half = [correlation(one, other), correlation(rest, other_rest), correlation(again, other)]
    opposite = [
        correlation(one, other_rest),
        correlation(rest, other),
        correlation(again, other_rest),
    ]
    bound = np.mean(half, axis=0) - np.mean(opposite, axis=0)
    return {
        "again": float(correlation(one, again).mean()),
        "bound": float(bound.mean()),
        "bound_error": float(bound.std(ddof=1) / np.sqrt(tests)),
    }


def line(name: str, library: str) -> dict[str, float]:
    """Return what was measured for one model."""
    world = World(name, library, FULL)
    drawn = halves(FULL.rows, SETS)
    every = drawn.reshape(-1, FULL.rows)
    losses = world.retrained(every, FIRST_SEED + np.arange(len(every)))
    return measured(losses.reshape(*drawn.shape[:2], -1))


def main() -> None:
    """Measure all lines, and write what they say."""
    lines = [(name, library) for name in FULL.data for library in FULL.libraries]
    numbers = pd.DataFrame(
        [line(*place) for place in lines],
        pd.MultiIndex.from_tuples(lines, names=["data", "library"]),
    )
    numbers.to_csv(folder_of(full=True) / "limit.csv", float_format="%.6g")
    print(limit_text.write(FULL))


if __name__ == "__main__":
    main()
