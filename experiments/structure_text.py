"""Tables of docs/structure.md, from the numbers of paper_attribution.py.

structure_summary.md   what StructureInfluence has in the mean, beside LeafInfluence
structure_leaves.md    line by line, what the values of sides changed"""

from __future__ import annotations

import pandas as pd
from attribution_text import has_l2, precise, shares
from contenders import AVERAGES, EXACT, SEEDS, SOFT, SOFT_SEEDS
from results import folder_of, markdown

BEFORE = "lds_splits_alone"  # the LDS when the choices of splits alone gave way


def write(numbers: pd.DataFrame) -> None:
    """Write both files. ``numbers``: the lines of docs/paper/attribution.csv."""
    folder = folder_of(full=True)
    lds = numbers.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    (folder / "structure_summary.md").write_text(summary(lds) + "\n")
    (folder / "structure_leaves.md").write_text(changes(numbers) + "\n")


def summary(lds: pd.DataFrame) -> str:
    """Return means over all lines, and what follows from them."""
    labels = [EXACT, SOFT, SEEDS, *AVERAGES]
    mean = lds.mean()
    table = pd.DataFrame(
        {
            "LDS": mean[labels],
            "share of the ceiling": shares(lds)[labels],
            "the same, models with l2": shares(lds[has_l2(lds)])[labels],
            "models without l2": shares(lds[~has_l2(lds)])[labels],
        }
    )
    one = (lds[SOFT] > lds[EXACT]).sum()
    ten = (lds[SOFT_SEEDS] > lds[SEEDS]).sum()
    side = "ahead of" if mean[SOFT] > mean[SEEDS] else "not ahead of"
    return f"""{markdown(table.map(precise).rename_axis("").reset_index())}

One model with soft splits is ahead of one with fixed trees on {one} of {len(lds)} lines, by
{(mean[SOFT] - mean[EXACT]):.3f} in the mean. It is {side} an average of ten models with fixed trees
({mean[SOFT]:.3f} against {mean[SEEDS]:.3f}). Ten models with soft splits are ahead of ten with fixed trees on
{ten} of {len(lds)} lines."""


def old_lines_text(numbers: pd.DataFrame) -> str:
    """Say which lines of StructureInfluence are from before the values of sides moved."""
    if BEFORE not in numbers:
        return ""
    soft = numbers[numbers["method"] == SOFT]
    old = soft[soft[BEFORE].isna()]
    if not len(old):
        return ""
    names = " and ".join(f"{line.data} with {line.library}" for line in old.itertuples())
    return f"""The lines of StructureInfluence for {names} are from before the values of sides
moved ([line by line](structure.md#measured-again))."""


def changes(numbers: pd.DataFrame) -> str:
    """Return a line for each data set and library: choices alone → with the values of sides."""
    ways = {SOFT: "one model", SOFT_SEEDS: "10 seeds"}
    part = numbers[numbers["method"].isin(ways)]
    place = ["data", "library"]
    lines = part.drop_duplicates(place)[place].apply(tuple, axis=1)
    old, new = (
        part.pivot(index=place, columns="method", values=column).loc[lines, list(ways)]
        for column in (BEFORE, "lds")
    )
    cells = old.map(precise) + " → " + new.map(precise)
    cells = cells.where(old.notna(), new.map(precise) + ", not measured again")
    old = old.fillna(new)
    table = cells.rename(columns=ways).reset_index()
    table.insert(0, "", table.pop("data") + ", " + table.pop("library"))
    parts = {
        "**mean**": new.index == new.index,
        "**mean, models with l2**": has_l2(new),
        "**mean, models without l2**": ~has_l2(new),
    }
    means = [
        [name, *(f"{old[w][rows].mean():.3f} → {new[w][rows].mean():.3f}" for w in ways)]
        for name, rows in parts.items()
    ]
    table = pd.concat([table, pd.DataFrame(means, columns=table.columns)])
    gain = new - old
    rise = [
        f"{name} {gain[way].mean():+.3f} in the mean, on {int((gain[way] > 0).sum())} lines more and on "
        f"{int((gain[way] < 0).sum())} less (from {gain[way].min():+.3f} to {gain[way].max():+.3f})"
        for way, name in ways.items()
    ]
    return f"""{markdown(table)}

The change: {"; ".join(rise)}."""
