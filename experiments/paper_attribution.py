"""Beyond the paper: how well methods predict retraining, for every data set and library.

python experiments/paper_attribution.py StructureInfluence     # methods whose names begin so, at full size

measures some methods again, after a change of their code, and keeps the lines of the others.
contenders.py has the methods, attribution.py the measures, paper_curves.py what acting does."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from attribution import Size, World
from contenders import (
    BOOSTIN,
    EXACT,
    REFIT,
    SEEDS,
    SOFT,
    SOFT_BAGS,
    SOFT_SEEDS,
    TOP8,
    Contender,
    contenders,
    ridge_label,
)
from matplotlib.figure import FigureBase
from models import KINDS, LIBRARIES
from paper import assemble
from results import COLOURS, Section, axes, folder_of, legend, markdown
from store import cached, code, hashed
from tqdm import tqdm

TWICE = "retrained twice"
CEILING = "ceiling"
RETRAINED = [TWICE, CEILING]
ERRORS = ["lds_error", "lds_error_repetitions"]
MIN_LEAD = 0.04  # of StructureInfluence over exact LeafInfluence
AIM = 0.85  # of the ceiling, for averages of StructureInfluence
MORE = 8  # retrainings, whose mean would be a better ceiling
CHOSE = ("adult", "houses")  # data on which constants of StructureInfluence were chosen
NO_L2 = ("LightGBM", "HistGradientBoosting")
TITLE = "Beyond the paper: which method predicts retraining best?"
FULL = Size(
    rows=2_000,
    tests=100,
    halves=100,
    repeats=4,
    seeds=3,
    data=tuple(KINDS),
    libraries=tuple(LIBRARIES),
    left_out=(),
    fresh=(10, 500),
)
QUICK = Size(
    rows=1_000,
    tests=50,
    halves=100,
    repeats=4,
    seeds=1,
    data=("adult", "houses"),
    libraries=tuple(LIBRARIES)[:4],
    left_out=(),
    fresh=(10, 100),
)


def run(full: bool) -> Section:
    size = FULL if full else QUICK
    lines = []
    for name in size.data:
        for library in size.libraries:
            lines += lines_of(name, library, size)
    return section(pd.DataFrame(lines).astype({"lds": float}), size)


def run_again(methods: str) -> Section:
    """Measure the methods whose names begin so at full size, and keep the lines of the others.

    The retrainings must be those of the kept lines, which are compared to the digits of the file."""
    kept = pd.read_csv(folder_of(full=True) / "attribution.csv")
    place = ["data", "library", "method"]
    lines = [
        line
        for name in FULL.data
        for library in FULL.libraries
        for line in lines_of(name, library, FULL, methods)
    ]
    found = pd.DataFrame(lines).set_index(place)
    both = kept.set_index(place)
    same = found.index[found.index.get_level_values("method").isin(RETRAINED)]
    if not np.allclose(found.loc[same], both.loc[same], rtol=1e-4):
        raise SystemExit(
            "the retrainings are not those of docs/paper/attribution.csv; run all methods again."
        )
    both.loc[found.index, found.columns] = found
    return section(both.reset_index().astype({"lds": float}), FULL)


def lines_of(name: str, library: str, size: Size, methods: str = "") -> list[dict[str, Any]]:
    """Return a line for each method whose name begins so, on one data set with one library."""
    world = World(name, library, size)
    head = {"data": name, "library": library}
    lines = []
    ways = {label: way for label, way in contenders(world).items() if label.startswith(methods)}
    for label in tqdm(ways, desc=world.name, unit="method", leave=False):
        lines.append({**head, "method": label, **line(world, ways[label])})
    for label, count in zip(RETRAINED, (1, size.repeats), strict=True):
        lines.append({**head, "method": label, **mean_and_errors(world.retrained_lds(count))})
    return lines


def line(world: World, contender: Contender) -> dict[str, float]:
    """Return all columns of one line of the table."""
    return mean_and_errors(world.lds(estimates(world, contender)))


def estimates(world: World, contender: Contender) -> np.ndarray:
    """Return what a method says of the halves, (models, halves, tests)."""
    settings = world.key | {
        "how": repr(contender),
        "seeds": world.size.seeds,
        "halves": hashed(world.halves),
        "code": code(),
    }

    def compute() -> dict[str, np.ndarray]:
        return {"summed": world.summed(contender.values(world, world.tests, None))}

    return cached("estimates", settings, compute)["summed"]


def mean_and_errors(found: np.ndarray) -> dict[str, float]:
    """Return the LDS from rank correlations (repetitions, tests), and its standard errors.

    ``lds_error`` is over test rows, ``lds_error_repetitions`` over repetitions of the retraining."""
    return {
        "lds": float(found.mean()),
        "lds_error": standard_error(found.mean(axis=0)),
        "lds_error_repetitions": standard_error(found.mean(axis=1)),
    }


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def section(numbers: pd.DataFrame, size: Size) -> Section:
    lds = numbers.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    names = list(dict.fromkeys(numbers["method"]))
    lds = lds[[*(name for name in names if name not in RETRAINED), *RETRAINED]]
    errors = numbers.pivot_table(
        index=["data", "library"], columns="method", values=ERRORS, sort=False
    )
    text = f"""
{lds_text(lds, errors, size)}

FIGURE

{lead_text(lds)}
"""
    drawn = figure(lds, size)
    return Section(TITLE, text, numbers, drawn, claims(lds, size), aims=structure_aims(lds, size))


def leads(lds: pd.DataFrame) -> pd.DataFrame:
    """Return by how much methods of one model with fixed trees are ahead of exact LeafInfluence."""
    others = [EXACT, SOFT, SEEDS, SOFT_SEEDS, SOFT_BAGS, *RETRAINED]
    learned = [name for name in lds if name.endswith("trainings")]
    return lds.drop(columns=[*others, *learned], errors="ignore").sub(lds[EXACT], axis=0)


def claims(lds: pd.DataFrame, size: Size) -> dict[str, bool]:
    """Return the conclusions, and whether they hold."""
    ahead = leads(lds)
    others = ahead.drop(columns=[TOP8, REFIT])
    smooth = has_l2(lds)
    ridges = lds[[ridge_label(count) for count in size.fresh]]
    found = {
        "exact LeafInfluence has a higher LDS than all other methods of one model with fixed trees "
        "but TopKLeaves(8) and LeafRefit, wherever leaves have l2": bool(
            others[smooth].max().max() < 0
        ),
        "and in the mean over all lines": bool(others.mean().max() < 0),
        "TopKLeaves(8) is nowhere ahead of it by more than 0.01": bool(ahead[TOP8].max() < 0.01),
        "LeafRefit is ahead of it by more than 0.01 only where leaves have no l2": bool(
            ahead[REFIT][smooth].max() < 0.01
        ),
        "its average over ten seeds is ahead of it everywhere": bool(
            (lds[SEEDS] > lds[EXACT]).all()
        ),
        f"ridge regression on {size.fresh[-1]} trainings is behind one model's LeafInfluence in the "
        "mean": bool(ridges.mean().max() < lds[EXACT].mean()),
    }
    return found | structure_claims(lds, size)


def structure_claims(lds: pd.DataFrame, size: Size) -> dict[str, bool]:
    """Return the conclusions about StructureInfluence, and whether they hold."""
    least = MIN_LEAD if size.rows >= FULL.rows else 0.0  # with fewer rows, the lead is smaller
    lead = lds[SOFT] - lds[EXACT]
    seeds = lds[SOFT_SEEDS] - lds[SEEDS]
    bags = (lds[SOFT_BAGS] - lds[SOFT_SEEDS])[has_l2(lds)]
    return {
        "StructureInfluence of one model is ahead of exact LeafInfluence on every line, by at least "
        f"{least} in the mean ({lead.mean():+.3f}, smallest lead {lead.min():+.3f})": bool(
            lead.min() > 0 and lead.mean() >= least
        ),
        "its average over ten seeds is ahead of that of LeafInfluence in the mean "
        f"({seeds.mean():+.3f}, on {counted(seeds)} lines)": bool(seeds.mean() > 0),
        "where leaves have l2, seeds and bags together are ahead of its average over ten seeds in the "
        f"mean ({bags.mean():+.3f}, on {counted(bags)} lines)": bool(bags.mean() > 0),
    }


def has_l2(lds: pd.DataFrame) -> np.ndarray:
    """Return which lines are of models whose leaves have l2."""
    return ~lds.index.get_level_values("library").isin(NO_L2)


def counted(leads: pd.Series) -> str:
    return f"{int((leads > 0).sum())} of {len(leads)}"


def structure_aims(lds: pd.DataFrame, size: Size) -> dict[str, bool]:
    """Return what StructureInfluence was to reach beyond that, and whether it does.

    Shares are judged by the ceiling that the mean of `MORE` retrainings would have."""
    mean = lds.mean()
    share = shares(lds)
    found = {
        "StructureInfluence of one model is ahead of LeafInfluence over ten seeds in the mean "
        f"({mean[SOFT]:.3f} against {mean[SEEDS]:.3f})": bool(mean[SOFT] > mean[SEEDS]),
    }
    higher = lds.assign(**{CEILING: ceiling_of(lds, size, MORE)})
    of_more = shares(higher)
    for label in (SOFT_SEEDS, SOFT_BAGS):
        aim = f"{label}: {AIM} of the ceiling in the mean ({both(share, of_more, label)})"
        found[aim] = bool(of_more[label] >= AIM)
    smooth = has_l2(lds)
    part = both(shares(lds[smooth]), shares(higher[smooth]), SOFT_BAGS)
    found[f"the same where leaves have l2, a part chosen after the run ({part})"] = bool(
        shares(higher[smooth])[SOFT_BAGS] >= AIM
    )
    return found


def both(share: pd.Series, of_more: pd.Series, label: str) -> str:
    """Return a share of the ceiling that was measured, and of the one that more retrainings would have."""
    return f"{share[label]:.3f}; {of_more[label]:.3f} of that of {MORE} retrainings"


# Columns of the first table
MAIN = (SOFT_BAGS, SOFT_SEEDS, SOFT, SEEDS, EXACT, REFIT, BOOSTIN)


def lds_text(lds: pd.DataFrame, errors: pd.DataFrame, size: Size) -> str:
    """Explain the LDS and show its tables."""
    models = "1 model" if size.seeds == 1 else f"{size.seeds} models"
    few, many = (ridge_label(count) for count in size.fresh)
    main = lds[[name for name in (*MAIN, few, many, *RETRAINED) if name in lds]]
    tests, repetitions = (errors[kind][lds.columns] for kind in ERRORS)
    every = pd.DataFrame(
        {
            "LDS, mean": lds.mean(),
            "error, test rows": error_of_mean(tests),
            "error, repetitions": np.sqrt((repetitions**2).sum()) / repetitions.count(),
            "lowest": lds.min(),
            "highest": lds.max(),
            "share of the ceiling, mean": shares(lds),
        }
    )
    shown = every.map(precise)
    shown["error, repetitions"] = every["error, repetitions"].map("{:.4f}".format)
    return f"""{size.rows:,} training rows of each data set are used. Models have 100 trees and draw half of the
columns for each split with their seed (`experiments/models.py`).

The LDS (linear datamodelling score) says how well the influences of a method predict retraining. The
model is trained on {size.halves} random halves of the rows, each with a seed of its own. For each test row, the
LDS is the rank correlation, over the halves, of its loss with the sum of the influences on it over the
rows of the half. The halves are trained {1 + size.repeats} times, with other seeds each time, and the tables have
the mean over {size.tests} test rows and these {1 + size.repeats} repetitions. Methods that use a single model are
computed for {models} and averaged.

"{TWICE.capitalize()}" compares one repetition with the next. Both are random. The {CEILING} compares a
repetition with the mean of the {size.repeats} others: what a method can reach that knows exactly what a half does on
average. By the formula of Spearman and Brown, the mean of {MORE} would have about
{ceiling_of(lds, size, MORE).mean():.3f} in the mean over all lines in place of {lds[CEILING].mean():.3f}.

A ridge regression ("datamodel") learns the influences from trainings on other halves: from as many
trainings as an average over ten seeds takes, and from
{size.fresh[1] // size.fresh[0]} times as many.

{markdown(main.map(number).reset_index())}

All methods, over all lines of the table above. Standard errors of the means are given over test rows
(those of a data set are the same for all libraries, whose errors are taken as one) and over
repetitions; for one line of the table above they are {tests[EXACT].min():.3f} to {tests[EXACT].max():.3f} and
{repetitions[EXACT].min():.3f} to {repetitions[EXACT].max():.3f} for exact LeafInfluence (all in the CSV).
Leave-one-out is in the next section.

{markdown(shown.reset_index())}"""


def ceiling_of(lds: pd.DataFrame, size: Size, count: int) -> pd.Series:
    """Return the ceiling that the mean of more retrainings would have, for each line.

    The mean of k repetitions, any two of which have correlation r, has correlation
    r sqrt(k / (1 + (k - 1) r)) with another one; its growth with k is applied to the ceiling."""
    r = lds[TWICE]

    def reliability(k: int) -> pd.Series:
        return k / (1 + (k - 1) * r)

    return lds[CEILING] * np.sqrt(reliability(count) / reliability(size.repeats))


def error_of_mean(errors: pd.DataFrame) -> pd.Series:
    """Return errors of means over all lines, from errors of lines that share their test rows."""
    of_data = errors.groupby("data").mean()
    return np.sqrt((of_data**2).sum()) / of_data.count()


def number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2f}"


def precise(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def lead_text(lds: pd.DataFrame) -> str:
    """Say how far the methods are ahead of exact LeafInfluence, or behind, and why."""
    ahead = leads(lds)
    others = ahead.drop(columns=[TOP8, REFIT])
    no_l2 = ~has_l2(lds)
    refit = ahead[REFIT]
    mean = refit.unstack("library").mean()
    top8 = ahead[TOP8].max()
    return f"""TopKLeaves(8) approximates exact LeafInfluence and is at most {top8:.3f} ahead of it.
LeafRefit computes what the removal of one row does, which is not limited to small changes as a
derivative is. The best of the other methods is {-others[~no_l2].max().max():.3f} or more below exact LeafInfluence
where leaves have l2, and at most {max(0, others[no_l2].max().max()):.3f} ahead of it where they have not.

LeafRefit is up to {refit[no_l2].max():.3f} ahead where leaves have no l2 (the defaults of LightGBM and
HistGradientBoosting), and at most {refit[~no_l2].max():.3f} elsewhere. In a leaf with little second derivative and
no l2, the derivative of a row is far larger than what its removal can do. For the same LightGBM with
l2 = 10, the mean lead is {mean["LightGBM, l2 = 10"]:+.4f} instead of {mean["LightGBM"]:+.4f}.
So LeafRefit is the safer choice for models without l2. On XGBoost its mean lead is {mean["XGBoost"]:+.3f}:
it follows the rule that a leaf below min_child_weight is zero, where a retraining would make another
leaf.

{structure_text(lds)}

{ridge_text(lds)}"""


def structure_text(lds: pd.DataFrame) -> str:
    """Say how far StructureInfluence comes, also on the data that had no part in making it."""
    labels = [EXACT, SOFT, SEEDS, SOFT_SEEDS, SOFT_BAGS]
    parts = {
        "all lines": lds,
        "with l2": lds[has_l2(lds)],
        "without l2": lds[~has_l2(lds)],
        "data that chose nothing": lds[~lds.index.get_level_values("data").isin(CHOSE)],
    }
    table = pd.DataFrame(
        {
            f"{label}, {what}": part[labels].mean() if what == "LDS" else shares(part)[labels]
            for label, part in parts.items()
            if len(part)
            for what in ("LDS", "share of the ceiling")
        }
    )
    return f"""StructureInfluence lets splits give way ([When trees change](structure.md)). One constant of it and
the temperature of "{SOFT_BAGS}" (half of the usual one; the bags have half of the rows and score those
left out, too) were chosen on Adult and California housing, so means over the other data sets are given
apart.

{markdown(table.map(precise).rename_axis("method").reset_index())}

{bags_text(lds)}"""


def bags_text(lds: pd.DataFrame) -> str:
    """Say where seeds and bags together fail, and what follows from it."""
    lead = lds[SOFT_BAGS] - lds[SOFT_SEEDS]
    smooth = lead[has_l2(lds)]
    other = lead[~has_l2(lds)]
    data, library = lead.idxmin()
    side = "ahead" if other.mean() > 0 else "behind"
    return f"""Where leaves have l2, seeds and bags together are ahead of ten seeds by {smooth.mean():.3f} in the
mean, and nowhere behind by more than {max(0, -smooth.min()):.3f}. Without l2 they are {side} by
{abs(other.mean()):.3f}, and on {data} with {library} they have {lead.min():+.3f}.
The likely reason is a row that was left out and is misjudged: it meets leaves with next to no second
derivative, where the slope at weight zero has no bound. So `ensemble_influence` does not do this by default;
`bag=(1.0, 0.5), score_left_out=True, method=StructureInfluence(0.5)` is for models with l2, and
`bag=1.0, method=StructureInfluence()` for any."""


def shares(lds: pd.DataFrame) -> pd.Series:
    """Return mean shares of the ceiling; lines that a method does not have are left out."""
    return lds.div(lds[CEILING], axis=0).mean()


def ridge_text(lds: pd.DataFrame) -> str:
    """Say what retraining teaches a regression."""
    mean = lds.mean()
    few, many = (name for name in lds if name.startswith("ridge"))
    return f"""Regression on retrainings reaches a mean LDS of {mean[few]:.2f} ({few.removeprefix("ridge, ")}) and
{mean[many]:.2f} ({many.removeprefix("ridge, ")}); LeafInfluence of one model, one training and one backward pass,
has {mean[EXACT]:.2f}. A training tells a regression one number for each test row, and a backward pass
tells one for each training row."""


def figure(lds: pd.DataFrame, size: Size) -> FigureBase:
    """Draw a panel for each data set and a marker for each library."""
    drawn, panels = axes(len(size.data), height=4.2, width=11, sharey=True, sharex=True)
    marks = dict(zip(size.libraries, "os^vD", strict=False))
    for ax, name in zip(panels, size.data, strict=True):
        for colour, (library, mark) in zip(COLOURS, marks.items(), strict=False):
            ax.plot(lds.loc[(name, library)], lds.columns, mark, color=colour, ms=5, label=library)
        ax.set(title=name.capitalize(), xlabel="LDS")
        ax.grid(axis="y", alpha=0.3)
        ax.tick_params(labelsize=8)
    panels[0].invert_yaxis()
    legend(drawn, panels[0], "right", 1)
    return drawn


if __name__ == "__main__":
    again = run_again(sys.argv[1])
    print(again.write("attribution", full=True).read_text())
    print(f"Page: {assemble(full=True)}")
    if broken := [claim for claim, holds in again.claims.items() if not holds]:
        sys.exit("does not hold: " + "; ".join(broken))
