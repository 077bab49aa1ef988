"""Tables and sentences about how well methods predict retraining, for paper_attribution.py."""

from __future__ import annotations

import numpy as np
import pandas as pd
from attribution import Size
from contenders import (
    AVERAGES,
    BOOSTIN,
    EXACT,
    REFIT,
    SEEDS,
    SOFT,
    SOFT_BAGS,
    SOFT_DEFAULT,
    SOFT_SEEDS,
    SOFT_TEN_BAGS,
    SOFT_TEN_REFITTED,
    TOP8,
    ridge_label,
)
from results import markdown

TWICE = "retrained twice"
CEILING = "ceiling"
RETRAINED = [TWICE, CEILING]
ERRORS = ["lds_error", "lds_error_repetitions"]
MORE = 8  # retrainings, whose mean would be a better ceiling
CHOSE = ("adult", "houses")  # data on which constants of StructureInfluence were chosen
NO_L2 = ("LightGBM", "HistGradientBoosting")
# Columns of the first table
MAIN = (SOFT_DEFAULT, SOFT_TEN_REFITTED, SOFT_BAGS, SOFT_SEEDS, SOFT, SEEDS, EXACT, REFIT, BOOSTIN)


def has_l2(lds: pd.DataFrame) -> np.ndarray:
    """Return which lines are of models whose leaves have l2."""
    return ~lds.index.get_level_values("library").isin(NO_L2)


def leads(lds: pd.DataFrame) -> pd.DataFrame:
    """Return by how much methods of one model with fixed trees are ahead of exact LeafInfluence."""
    soft = [name for name in lds if name.startswith(SOFT)]
    learned = [name for name in lds if name.endswith("trainings")]
    others = [EXACT, SEEDS, *soft, *learned, *RETRAINED]
    return lds.drop(columns=others).sub(lds[EXACT], axis=0)


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
No sum of influences can reach it, because what a half does is not all a sum over its rows
([how near sums can come](structure.md#what-sums-can-reach)).

A ridge regression ("datamodel") learns the influences from trainings on other halves: from as many
trainings as an average over ten seeds takes, and from
{size.fresh[1] // size.fresh[0]} times as many.

{markdown(main.map(number).reset_index())}

All methods, over all lines of the table above. Standard errors of the means are given over test rows
(those of a data set are the same for all libraries, whose errors are taken as one) and over
repetitions; for one line of the table above they are {tests[EXACT].min():.3f} to {tests[EXACT].max():.3f} and
{repetitions[EXACT].min():.3f} to {repetitions[EXACT].max():.3f} for exact LeafInfluence (all in the CSV).
Leave-one-out is in the next section.{digits_text(tests)}

{markdown(shown.reset_index())}"""


def digits_text(errors: pd.DataFrame) -> str:
    """Say which lines have no standard errors. ``errors``: over test rows, (lines, methods)."""
    lacking = errors[SOFT].isna()
    if not lacking.any():
        return ""
    return f"""
{lacking.sum()} lines of StructureInfluence were measured by an earlier run of the same code of which three
digits were kept and no standard errors, so that the errors of its means are those of the other lines."""


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
    labels = [EXACT, SOFT, SEEDS, *AVERAGES]
    parts = {
        "all lines": lds,
        "with l2": lds[has_l2(lds)],
        "without l2": lds[~has_l2(lds)],
        "data that chose no constant": lds[~lds.index.get_level_values("data").isin(CHOSE)],
    }
    table = pd.DataFrame(
        {
            f"{label}, {what}": part[labels].mean() if what == "LDS" else shares(part)[labels]
            for label, part in parts.items()
            if len(part)
            for what in ("LDS", "share of the ceiling")
        }
    )
    return f"""StructureInfluence lets splits give way ([When trees change](structure.md)). Two constants of it, the
temperature and the sizes of the bags, and the sets of rows of "{SOFT_DEFAULT}" were chosen on
Adult and California housing,
so means over the other data sets are given apart. The form of its shares was chosen with models of 1,000
rows of all five data sets, and Amazon with LightGBM was looked at when averages over bags were made to work
without l2. The 40 of "{SOFT_BAGS}" was chosen after a prototype with 30 had been seen on 21 of these lines.
The refitted bags were measured on the other three data sets only after they had been chosen.

{markdown(table.map(precise).rename_axis("method").reset_index())}

{bags_text(lds)}"""


def bags_text(lds: pd.DataFrame) -> str:
    """Say where bags are ahead of seeds, and what refits add."""
    return f""""{SOFT_TEN_BAGS}" and "{SOFT_BAGS}" are models of half and of three quarters of the rows, in turn,
which also value the rows that they were not trained on. "{SOFT_DEFAULT}" is `ensemble_influence` as it
stands: models of halves of the rows, whose trees are also refitted on the rest and on all rows. No further
model is trained for that. Over ten seeds, {lead_of(lds, SOFT_TEN_BAGS, SOFT_SEEDS, "ten bags")};
{lead_of(lds, SOFT_BAGS, SOFT_SEEDS, "40 bags")}; {lead_of(lds, SOFT_TEN_REFITTED, SOFT_SEEDS, "ten refitted bags")}.
Over as many bags, {lead_of(lds, SOFT_TEN_REFITTED, SOFT_TEN_BAGS, "ten refitted bags")}.
The slopes of the loss are means over the members: a member that misjudges a test row has a large slope there,
and would otherwise decide the average."""


def lead_of(lds: pd.DataFrame, label: str, other: str, name: str) -> str:
    """Say by how much a method is ahead of another in the mean, with l2 and without, and where least."""
    lead = lds[label] - lds[other]
    data, library = lead.idxmin()
    smooth = has_l2(lds)
    return (
        f"{name} lead by {lead[smooth].mean():.3f} in the mean where leaves have l2, and by "
        f"{lead[~smooth].mean():.3f} where they have not, on {int((lead > 0).sum())} of {len(lead)} lines (least, "
        f"{lead.min():+.3f}, on {data} with {library})"
    )


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
