"""The table of what sums of influences can reach, from docs/paper/limit.csv and attribution.csv."""

from __future__ import annotations

import numpy as np
import pandas as pd
from attribution import Size
from attribution_text import CEILING, MORE, ceiling_of, precise
from contenders import SOFT, SOFT_BAGS, SOFT_DEFAULT, SOFT_SEEDS, SOFT_TEN_BAGS, SOFT_TEN_REFITTED
from results import folder_of, markdown

LIMIT = "limit of sums"
SHORT = {
    SOFT: "one model",
    SOFT_SEEDS: "10 seeds",
    SOFT_TEN_BAGS: "10 bags",
    SOFT_BAGS: "40 bags",
    SOFT_TEN_REFITTED: "10 refitted bags",
    SOFT_DEFAULT: "20 refitted bags",
}


def rank_correlation(r: pd.Series) -> pd.Series:
    """Return the rank correlation of two normal variables with correlation r."""
    return 6 / np.pi * np.arcsin(r / 2)


def write(size: Size) -> str:
    """Write docs/paper/limit.md, and return it. ``size``: of the lines of attribution.csv."""
    folder = folder_of(full=True)
    numbers = pd.read_csv(folder / "limit.csv").set_index(["data", "library"])
    written = text(numbers, size)
    (folder / "limit.md").write_text(written)
    return written


def text(numbers: pd.DataFrame, size: Size) -> str:
    """Return the table and what it says. ``numbers``: of limit.py, by data and library."""
    paper = pd.read_csv(folder_of(full=True) / "attribution.csv")
    lds = paper.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    table = lds.loc[numbers.index, list(SHORT)]
    table[LIMIT] = rank_correlation(np.sqrt(numbers["bound"]))
    table[CEILING] = ceiling_of(lds, size, MORE)
    share = table.div(table[CEILING], axis=0).mean()
    of_limit = table.div(table[LIMIT], axis=0).mean()
    error = (numbers["bound_error"] / (2 * np.sqrt(numbers["bound"]))).max()
    means = pd.DataFrame(
        {
            "LDS, mean": table.mean(),
            f"share of the ceiling of {MORE}": share,
            f"share of the {LIMIT}": of_limit,
        }
    )
    return f"""{markdown(means.map(precise).rename_axis("").reset_index())}

No sum comes nearer to the ceiling than about {share[LIMIT]:.2f} of it in the mean. Line by line (standard
errors of the limit over test rows are at most {error:.3f}, so that it can be above the ceiling):

{markdown(table.rename(columns=SHORT).map(precise).reset_index())}
"""
