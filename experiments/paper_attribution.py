"""Beyond the paper: a comparison of methods by retraining, for every data set and library.

attribution.py has the methods and the measures."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from attribution import (
    ACTS,
    BOOSTIN,
    EXACT,
    REFIT,
    SHARES,
    SINGLE,
    SINGLE_POINT,
    TOP8,
    Influences,
    Size,
    World,
    column,
    correlations,
)
from matplotlib.figure import Figure, FigureBase
from models import KINDS, LIBRARIES
from results import COLOURS, Section, axes, legend, markdown
from tqdm import tqdm

SEEDS = "LeafInfluence, 10 seeds"
LEAVE_ONE_OUT = "leave-one-out"
CEILING = "retrained twice"
NO_L2 = ("LightGBM", "HistGradientBoosting")
TITLE = "Beyond the paper: which method predicts retraining best?"
FULL = Size(2_000, 100, 100, 3, tuple(KINDS), tuple(LIBRARIES), ("XGBoost", "LightGBM"))
QUICK = Size(2_000, 50, 100, 1, ("adult", "houses"), tuple(LIBRARIES)[:4], ())


def run(full: bool) -> Section:
    size = FULL if full else QUICK
    lines = []
    for name in size.data:
        for library in size.libraries:
            lines += lines_of(name, library, size)
    return section(pd.DataFrame(lines).astype({"lds": float}), size)


def lines_of(name: str, library: str, size: Size) -> list[dict[str, Any]]:
    """Return a line for each method, on one data set with one library."""
    world = World(name, library, size)
    ways: dict[str, Influences] = {
        label: partial(world.values, method) for label, method in SINGLE.items()
    }
    ways[SEEDS] = world.averaged
    if library in size.left_out:
        ways[LEAVE_ONE_OUT] = world.leave_one_out
    head = {"data": name, "library": library}
    lines = []
    for label in tqdm(ways, desc=world.name, unit="method", leave=False):
        lines.append({**head, "method": label, **world.line(label, ways[label])})
    ceiling = correlations(world.on_halves(1), world.half_losses)
    error = ceiling.std(ddof=1) / np.sqrt(len(ceiling))
    lines.append({**head, "method": CEILING, "lds": ceiling.mean(), "lds_error": error})
    return lines


def section(numbers: pd.DataFrame, size: Size) -> Section:
    lds = numbers.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    lds = lds[[SEEDS, *SINGLE, *([LEAVE_ONE_OUT] if size.left_out else []), CEILING]]
    acts = numbers[numbers["method"] != CEILING].groupby("method", sort=False)
    columns = [column(act, share) for act in ACTS for share in SHARES]
    medians = acts[columns].median().loc[list(lds.columns[:-1])]
    errors = numbers[numbers["method"] == EXACT]["lds_error"]
    text = f"""
{lds_text(lds, errors, size)}

FIGURE

{lead_text(lds)}

{curves_text(medians, size)}
"""
    return Section(TITLE, text, numbers, figure(lds, medians, size), claims(lds))


def leads(lds: pd.DataFrame) -> pd.DataFrame:
    """Return by how much each method is ahead of exact LeafInfluence."""
    return lds.drop(columns=[SEEDS, EXACT, CEILING]).sub(lds[EXACT], axis=0)


def claims(lds: pd.DataFrame) -> dict[str, bool]:
    """Return the conclusions, and whether they hold."""
    ahead = leads(lds)
    others = ahead.drop(columns=[TOP8, REFIT])
    has_l2 = ~ahead.index.get_level_values("library").isin(NO_L2)
    return {
        "exact LeafInfluence has a higher LDS than all methods but TopKLeaves(8) and LeafRefit, "
        "everywhere": bool(others.max().max() < 0),
        "TopKLeaves(8) is nowhere ahead of it by more than 0.01": bool(ahead[TOP8].max() < 0.01),
        "LeafRefit is ahead of it by more than 0.01 only where leaves have no l2": bool(
            ahead[REFIT][has_l2].max() < 0.01
        ),
        "its average over ten seeds is ahead of it everywhere": bool(
            (lds[SEEDS] > lds[EXACT]).all()
        ),
    }


def lds_text(lds: pd.DataFrame, errors: pd.Series, size: Size) -> str:
    """Explain the LDS and show its table."""
    models = "1 model" if size.seeds == 1 else f"{size.seeds} models"
    left_out = "is left out here"
    if size.left_out:
        left_out = f"retrains {' and '.join(size.left_out)} {size.rows:,} times"
    return f"""{size.rows:,} training rows of each data set are used. Models have 100 trees and draw half of the
columns for each split with their seed (`experiments/models.py`).

The LDS (linear datamodelling score) says how well the influences of a method predict retraining. The
model is trained on {size.halves} random halves of the rows, each with a seed of its own. For each test row, the
LDS is the rank correlation, over the halves, of its loss with the sum of the influences on it over the
rows of the half. The table has the mean over {size.tests} test rows. Methods that use a single model are computed
for {models} and averaged. "{CEILING.capitalize()}" compares these trainings with others on the same halves with
other seeds. Leave-one-out {left_out}. Standard errors of exact LeafInfluence are
{errors.min():.3f} to {errors.max():.3f}.

{markdown(lds.map(lambda v: "" if np.isnan(v) else f"{v:.2f}").reset_index())}"""


def lead_text(lds: pd.DataFrame) -> str:
    """Say how far the methods are ahead of exact LeafInfluence, or behind, and why."""
    ahead = leads(lds)
    others = ahead.drop(columns=[TOP8, REFIT])
    no_l2 = ahead.index.get_level_values("library").isin(NO_L2)
    refit = ahead[REFIT]
    mean = refit.unstack("library").mean()
    top8 = ahead[TOP8].max()
    return f"""TopKLeaves(8) approximates exact LeafInfluence and is at most {top8:.3f} ahead of it.
LeafRefit computes what the removal of one row does, which is not limited to small changes as a
derivative is. Of the other methods, the closest is {-others.max().max():.3f} below exact LeafInfluence.

LeafRefit is up to {refit[no_l2].max():.3f} ahead where leaves have no l2 (the defaults of LightGBM and
HistGradientBoosting), and at most {refit[~no_l2].max():.3f} elsewhere. In a leaf with little second derivative and
no l2, the derivative of a row is far larger than what its removal can do. For the same LightGBM with
l2 = 10, the mean lead is {mean["LightGBM, l2 = 10"]:+.4f} instead of {mean["LightGBM"]:+.4f}.
So LeafRefit is the safer choice for models without l2. On XGBoost its mean lead is {mean["XGBoost"]:+.3f}:
it follows the rule that a leaf below min_child_weight is zero, where a retraining would make another
leaf.

"{CEILING.capitalize()}" compares one random training with another. An average over seeds is less random than
either and can have a higher LDS."""


def curves_text(medians: pd.DataFrame, size: Size) -> str:
    """Show what acting on the rankings does."""
    chosen = 5 * size.tests

    def at(act: str, method: str) -> str:
        return f"{medians.loc[method, column(act, SHARES[-1])]:+.1f}"

    best = max(0, -medians.filter(like="clean").min().min())
    removed = [at("remove", method) for method in (EXACT, SINGLE_POINT, BOOSTIN)]
    relabelled = [at("relabel", method) for method in (EXACT, SINGLE_POINT, BOOSTIN)]
    return f"""The curves show what acting on the rankings does. Rows are ranked by their mean influence
on {chosen} test rows; {chosen} others judge; models of three seeds are retrained. The table has changes of the
mean loss in per cent, as medians over all data sets and libraries of a method.

- "remove": the 1, 2 and 5 % most helpful rows are removed; more is better.
- "clean": the most harmful ones are removed; less is better.
- "relabel": the most helpful ones get wrong labels; more is better.

{markdown(medians.map("{:+.1f}".format).reset_index())}

The order of the methods is different here: many rows change at once, which none of the methods is made
for. For removing 5 %, exact LeafInfluence has {removed[0]}, SinglePoint {removed[1]} and BoostIn {removed[2]};
for relabelling, {relabelled[0]}, {relabelled[1]} and {relabelled[2]}. Removing the most harmful rows lowers the
loss by {best:.1f} % at best: no labels were flipped here, unlike above. Where Amazon is among the data, it
has the largest changes (see the CSV), because 5 % of its rows are most of its rarer class."""


def figure(lds: pd.DataFrame, medians: pd.DataFrame, size: Size) -> FigureBase:
    """Draw the LDS above and the curves below."""
    drawn = Figure(figsize=(11, 8), layout="constrained")
    above, below = drawn.subfigures(2, 1)
    draw_lds(above, lds, size)
    draw_curves(below, medians)
    return drawn


def draw_lds(part: FigureBase, lds: pd.DataFrame, size: Size) -> None:
    """Draw a panel for each data set and a marker for each library."""
    _, panels = axes(len(size.data), figure=part, sharey=True, sharex=True)
    marks = dict(zip(size.libraries, "os^vD", strict=False))
    for ax, name in zip(panels, size.data, strict=True):
        for colour, (library, mark) in zip(COLOURS, marks.items(), strict=False):
            ax.plot(lds.loc[(name, library)], lds.columns, mark, color=colour, ms=5, label=library)
        ax.set(title=name.capitalize(), xlabel="LDS")
        ax.grid(axis="y", alpha=0.3)
        ax.tick_params(labelsize=8)
    panels[0].invert_yaxis()
    legend(part, panels[0], "right", 1)


def draw_curves(part: FigureBase, medians: pd.DataFrame) -> None:
    """Draw a panel for each act and a line for each method."""
    _, panels = axes(len(ACTS), figure=part)
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
    legend(part, panels[0], "right", 1)
