"""Beyond the paper: how well methods predict retraining, for every data set and library.

python experiments/paper_attribution.py StructureInfluence     # methods whose names begin so, at full size
python experiments/paper_attribution.py StructureInfluence adult wine    # the same on some data sets alone
python experiments/paper_attribution.py "BoostIn|TREX"         # names that begin in one of several ways
python experiments/paper_attribution.py                        # writes the page anew from docs/paper/attribution.csv

measures some methods again, after a change of their code, and keeps the other lines.
contenders.py has the methods, attribution.py the measures, attribution_text.py the tables, paper_curves.py
what acting does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import limit_text
import numpy as np
import pandas as pd
import structure_text
from attribution import Size, World
from attribution_text import (
    CEILING,
    ERRORS,
    MORE,
    RETRAINED,
    ceiling_of,
    has_l2,
    lds_text,
    lead_text,
    leads,
    shares,
)
from contenders import (
    AVERAGES,
    EXACT,
    LEAVE_ONE_OUT,
    REFIT,
    SEEDS,
    SOFT,
    SOFT_BAGS,
    SOFT_SEEDS,
    SOFT_TEN_BAGS,
    SOFT_TEN_REFITTED,
    TOP8,
    Contender,
    contenders,
    ridge_label,
)
from matplotlib.figure import FigureBase
from models import KINDS, LIBRARIES
from paper import assemble
from results import COLOURS, Section, axes, folder_of, legend
from store import cached, code, hashed
from tqdm import tqdm

MIN_LEAD = 0.04  # of StructureInfluence over exact LeafInfluence
AIM = 0.85  # of the ceiling, for averages of StructureInfluence
PLACE = ["data", "library", "method"]
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


def run_again(methods: tuple[str, ...], names: Sequence[str]) -> Section:
    """Measure the methods whose names begin so at full size on these data sets, and keep the other lines.

    The retrainings must be those of the kept lines, which are compared to the digits of the file."""
    kept = kept_lines("attribution")
    lines = [
        line
        for name in names
        for library in FULL.libraries
        for line in lines_of(name, library, FULL, methods)
    ]
    found = pd.DataFrame(lines).set_index(PLACE)
    same = found.index[found.index.get_level_values("method").isin(RETRAINED)]
    if not np.allclose(found.loc[same], kept.loc[same, found.columns], rtol=1e-4):
        raise SystemExit(
            "the retrainings are not those of docs/paper/attribution.csv; run all methods again."
        )
    return section(merged(kept, found).astype({"lds": float}), FULL)


def kept_lines(name: str) -> pd.DataFrame:
    """Return the lines of a file of docs/paper, by data, library and method.

    Methods that are no longer compared are left out."""
    lines = pd.read_csv(folder_of(full=True) / f"{name}.csv")
    known = set(RETRAINED)
    for library in FULL.libraries:
        known |= set(contenders(World("houses", library, FULL)))
    return lines[lines["method"].isin([*known, LEAVE_ONE_OUT])].set_index(PLACE)


def merged(kept: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of both, without an index; of lines that both have, those that were found.

    Methods that were not there before come first."""
    lines = found.reindex(columns=kept.columns.union(found.columns, sort=False))
    again = kept.index.intersection(found.index)
    kept = kept.reindex(columns=lines.columns)
    kept.loc[again, found.columns] = found.loc[again]
    new = lines[~lines.index.isin(kept.index)]
    return pd.concat([new, kept]).reset_index()


def run_on_kept_lines() -> Section:
    """Return the section of docs/paper/attribution.csv, without measuring anything."""
    return section(pd.read_csv(folder_of(full=True) / "attribution.csv"), FULL)


def lines_of(
    name: str, library: str, size: Size, methods: tuple[str, ...] = ("",)
) -> list[dict[str, Any]]:
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

{structure_text.old_lines_text(numbers)}
"""
    drawn = figure(lds, size)
    return Section(TITLE, text, numbers, drawn, claims(lds, size), aims=structure_aims(lds, size))


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
    bags = lds[SOFT_BAGS] - lds[SOFT_SEEDS]
    refitted = lds[SOFT_TEN_REFITTED] - lds[SOFT_TEN_BAGS]
    return {
        "StructureInfluence of one model is ahead of exact LeafInfluence on every line, by at least "
        f"{least} in the mean ({lead.mean():+.3f}, smallest lead {lead.min():+.3f})": bool(
            lead.min() > 0 and lead.mean() >= least
        ),
        "its average over ten seeds is ahead of that of LeafInfluence in the mean "
        f"({seeds.mean():+.3f}, on {counted(seeds)} lines)": bool(seeds.mean() > 0),
        "its average over 40 bags is ahead of that over ten seeds in the mean, with l2 and without "
        f"({bags.mean():+.3f}, on {counted(bags)} lines)": bool(
            bags[has_l2(lds)].mean() > 0 and not bags[~has_l2(lds)].mean() <= 0
        ),
        "its average over ten refitted bags is ahead of that over ten bags in the mean, with l2 and without "
        f"({refitted.mean():+.3f}, on {counted(refitted)} lines)": bool(
            refitted[has_l2(lds)].mean() > 0 and not refitted[~has_l2(lds)].mean() <= 0
        ),
    }


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
    for label in AVERAGES:
        aim = f"{label}: {AIM} of the ceiling in the mean ({both(share, of_more, label)})"
        found[aim] = bool(of_more[label] >= AIM)
    return found


def both(share: pd.Series, of_more: pd.Series, label: str) -> str:
    """Return a share of the ceiling that was measured, and of the one that more retrainings would have."""
    return f"{share[label]:.3f}; {of_more[label]:.3f} of that of {MORE} retrainings"


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


def main() -> None:
    """Measure what the command line names, and write the page; exit with 1 if a conclusion does not hold."""
    methods, *names = sys.argv[1:] or [""]
    if methods:
        again = run_again(tuple(methods.split("|")), names or FULL.data)
    else:
        again = run_on_kept_lines()
    print(again.write("attribution", full=True).read_text())
    structure_text.write(again.numbers)
    limit_text.write(FULL)
    print(f"Page: {assemble(full=True)}")
    if broken := [claim for claim, holds in again.claims.items() if not holds]:
        sys.exit("does not hold: " + "; ".join(broken))


if __name__ == "__main__":
    main()
