"""Beyond the paper: what acting on the rankings of each method does.

python experiments/paper_curves.py StructureInfluence     # methods whose names begin so, at full size

measures some methods again and keeps the other lines. contenders.py has the methods, attribution.py the
curves."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from attribution import ACTS, SHARES, Size, World, column
from contenders import BOOSTIN, EXACT, LEAVE_ONE_OUT, SINGLE_POINT, Contender, contenders
from matplotlib.figure import FigureBase
from paper import assemble
from paper_attribution import FULL as LARGE
from paper_attribution import PLACE, QUICK, estimates, kept_lines, merged
from results import COLOURS, Section, axes, legend, markdown
from store import cached, code
from tqdm import tqdm

TITLE = "Beyond the paper: acting on the rankings"
FULL = replace(LARGE, left_out=("XGBoost", "LightGBM"))
COLUMNS = [column(act, share) for act in ACTS for share in SHARES]


def run(full: bool) -> Section:
    size = FULL if full else QUICK
    lines = [
        line
        for name in size.data
        for library in size.libraries
        for line in lines_of(name, library, size)
    ]
    return section(pd.DataFrame(lines), size)


def run_again(methods: str) -> Section:
    """Measure the methods whose names begin so at full size, and keep the other lines."""
    lines = [
        line
        for name in FULL.data
        for library in FULL.libraries
        for line in lines_of(name, library, FULL, methods)
    ]
    found = pd.DataFrame(lines).set_index(PLACE)
    return section(merged(kept_lines("curves"), found), FULL)


def lines_of(name: str, library: str, size: Size, methods: str = "") -> list[dict[str, Any]]:
    """Return a line for each method whose name begins so, on one data set with one library."""
    world = World(name, library, size)
    head = {"data": name, "library": library}
    ways = {
        label: way
        for label, way in contenders(world).items()
        if way.acts and label.startswith(methods)
    }
    return [
        {**head, "method": label, **line(world, label, ways[label])}
        for label in tqdm(ways, desc=world.name, unit="method", leave=False)
    ]


def line(world: World, label: str, contender: Contender) -> dict[str, Any]:
    """Return all columns of one line of the table; for leave-one-out, which is here alone, the LDS."""
    settings = world.key | {"how": repr(contender), "seeds": world.size.seeds, "code": code()}

    def compute() -> dict[str, np.ndarray]:
        return {"values": contender.values(world, world.choose, "mean")[0][:, 0]}

    found: dict[str, Any] = world.curves(cached("values", settings, compute)["values"])
    if label == LEAVE_ONE_OUT:
        found["lds"] = float(world.lds(estimates(world, contender)).mean())
    return found


def section(numbers: pd.DataFrame, size: Size) -> Section:
    medians = numbers.groupby("method", sort=False)[COLUMNS].median()
    return Section(TITLE, text(numbers, medians, size), numbers, figure(medians))


def text(numbers: pd.DataFrame, medians: pd.DataFrame, size: Size) -> str:
    """Show what acting on the rankings does."""
    chosen = 5 * size.tests

    def at(act: str, method: str) -> str:
        return f"{medians.loc[method, column(act, SHARES[-1])]:+.1f}"

    best = max(0, -medians.filter(like="clean").min().min())
    removed = [at("remove", method) for method in (EXACT, SINGLE_POINT, BOOSTIN)]
    relabelled = [at("relabel", method) for method in (EXACT, SINGLE_POINT, BOOSTIN)]
    return f"""The models and rows are those of the section before. Rows are ranked by their mean influence
on {chosen} test rows; {chosen} others judge; models of three seeds are retrained. The table has changes of the
mean loss in per cent, as medians over all data sets and libraries of a method.

- "remove": the 1, 2 and 5 % most helpful rows are removed; more is better.
- "clean": the most harmful ones are removed; less is better.
- "relabel": the most helpful ones get wrong labels; more is better.

FIGURE

{markdown(medians.map("{:+.1f}".format).reset_index())}

The order of the methods is different here: many rows change at once, which none of the methods is made
for. For removing 5 %, exact LeafInfluence has {removed[0]}, SinglePoint {removed[1]} and BoostIn {removed[2]};
for relabelling, {relabelled[0]}, {relabelled[1]} and {relabelled[2]}. Removing the most harmful rows lowers the
loss by {best:.1f} % at best: no labels were flipped here, unlike above. Where Amazon is among the data, it
has the largest changes (see the CSV), because 5 % of its rows are most of its rarer class. For choosing
many rows at once there are [data values](howto/values.md).

{alone_text(numbers, size)}"""


def alone_text(numbers: pd.DataFrame, size: Size) -> str:
    """Say what leave-one-out costs and what it predicts."""
    if not size.left_out:
        return ""
    lds = numbers.loc[numbers["method"] == LEAVE_ONE_OUT, "lds"]
    return f"""Leave-one-out retrains {" and ".join(size.left_out)} {size.rows:,} times on each data set. Its LDS is
{lds.min():.2f} to {lds.max():.2f}: what one row does is lost in the chances of a training."""


def figure(medians: pd.DataFrame) -> FigureBase:
    """Draw a panel for each act and a line for each method."""
    drawn, panels = axes(len(ACTS), height=4.2, width=11)
    styles = [(colour, line) for line in ("-", "--") for colour in COLOURS]
    shares = [0, *(100 * share for share in SHARES)]
    for ax, (act, title) in zip(panels, ACTS.items(), strict=True):
        for (colour, line), method in zip(styles, medians.index, strict=False):
            change = [0, *(medians.loc[method, column(act, share)] for share in SHARES)]
            ax.plot(shares, change, line, marker=".", color=colour, label=method)
        ax.set(
            title=title.capitalize(),
            xlabel="% of the training rows",
            ylabel="change of the mean loss, %",
        )
    legend(drawn, panels[0], "right", 1)
    return drawn


def main() -> None:
    """Measure the methods that the command line names, and write the page."""
    again = run_again(" ".join(sys.argv[1:]))
    print(again.write("curves", full=True).read_text())
    print(f"Page: {assemble(full=True)}")


if __name__ == "__main__":
    main()
