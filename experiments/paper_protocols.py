"""Beyond the paper: acting on rankings in rounds, brittle predictions, poison and backdoors.

protocols.py has the protocols. A new method is a new line of `methods`."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from attribution import ACTS, Size, World
from contenders import BOOSTIN, EXACT, SOFT
from matplotlib.figure import FigureBase
from paper_attribution import FULL as LARGE
from paper_attribution import QUICK as SMALL
from protocols import COPIES, FEWEST_SHARE, INJECTED, SHARE, act, attacked, fewest
from results import COLOURS, Section, axes, legend, markdown
from tqdm import tqdm

import leaftrace as lt

TITLE = "Beyond the paper: rounds, brittle predictions, poison and backdoors"
RANDOM = "Random"
ROUNDS = (1, 5)
ATTACKS = ("backdoor", "poison")
FULL = replace(LARGE, libraries=("XGBoost", "LightGBM, l2 = 10"))
QUICK = replace(SMALL, data=("adult",), libraries=("XGBoost",))


def methods() -> dict[str, Any]:
    """Return the methods that are compared."""
    return {
        SOFT: lt.StructureInfluence(),
        EXACT: lt.LeafInfluence(),
        BOOSTIN: lt.baselines.BoostIn(),
        "TreeSim": lt.baselines.TreeSim(),
        "TREX": lt.baselines.TREX("path"),
        "SelfInfluence": lt.baselines.SelfInfluence(),
        RANDOM: lt.baselines.Random(),
    }


def run(full: bool) -> Section:
    size = FULL if full else QUICK
    tests = 10 if full else 5  # of the brittle predictions and of the poison
    worlds = [World(name, library, size) for name, library in product(size.data, size.libraries)]
    changes = []
    numbers = []
    attacks = []
    for world, (label, method) in tqdm(list(product(worlds, methods().items())), leave=False):
        head = {"data": world.name, "method": label}
        for name, rounds in product(ACTS, ROUNDS):
            change = act(world, method, name, rounds)
            changes.append({**head, "measure": f"{name}, {words(rounds)}", "value": change})
        if world.kind != "classes":
            continue
        if "XGBoost" in world.name:
            for place, value in enumerate(fewest(world, method, tests)):
                numbers.append({**head, "measure": f"fewest rows, test {place}", "value": value})
        for kind in ATTACKS:
            found = attacked(world, method, kind, tests)
            lines = [(f"{kind}: {name}", value) for name, value in found.items()]
            attacks += [{**head, "measure": name, "value": value} for name, value in lines]
    parts = [pd.DataFrame(part) for part in (changes, numbers, attacks)]
    return section(*parts, size)


def words(rounds: int) -> str:
    return "one shot" if rounds == 1 else f"{rounds} rounds"


def wide(lines: pd.DataFrame, how: str) -> pd.DataFrame:
    """Return a table with a line for each method and a column for each measure, over all worlds."""
    return lines.pivot_table(
        index="method", columns="measure", values="value", aggfunc=how, sort=False, dropna=False
    )


def section(
    changes: pd.DataFrame, numbers: pd.DataFrame, attacks: pd.DataFrame, size: Size
) -> Section:
    acts = wide(changes, "median")
    few = brittleness(numbers, round(FEWEST_SHARE * size.rows))
    found = wide(attacks, "mean")
    libraries = " and ".join(size.libraries)
    tests = len(numbers) // len(few)
    text = f"""
The same data, {size.rows:,} training rows each, with {libraries}. Methods rank the training rows, something is
done to the first of them, and models of three other seeds are trained again and judged on test rows
that had no part in the ranking.

**In rounds.** {SHARE:.0%} of the rows are removed or relabelled: all at once, or a fifth of them in each of five
rounds, after each of which a new model is trained and ranks the rows that are left. Changes of the mean
loss in per cent, medians over data sets and libraries. "Remove" and "relabel" take the most helpful
rows, so more is better; "clean" removes the most harmful ones, so less is better.

{markdown(acts.map("{:+.1f}".format).reset_index())}

**Brittle predictions.** How many training rows have to go until the class of a test row changes? For each
of {tests} test rows that models of all seeds predict rightly, rows are removed in the order of their
help to it. The number is found by bisection and confirmed by retraining with XGBoost. No more than
{FEWEST_SHARE:.0%} of the rows are removed.

{markdown(few.reset_index())}

**Backdoor and poison.** In the first attack, {INJECTED:.0%} more rows are injected that have a trigger (two columns are
set to certain values, which are in the data) and a false label; test rows with the trigger then get that
label. In the second, {COPIES} near copies of one test row with a false label are injected. Methods rank
the rows by their harm to the attacked test rows; "found" is the share of injected rows among as many
rows at the top, and "success after" the share of attacked test rows that have the false label when
these rows are removed ("before": with all rows). Means over data sets and libraries. Random has one
order of the rows for all test rows of a model, so that its numbers are those of few draws.

{markdown(found.map("{:.3f}".format).reset_index())}

FIGURE
"""
    every = pd.concat([changes, numbers, attacks])
    return Section(TITLE, text, every, figure(acts, numbers, found), claims(acts, numbers, found))


def brittleness(numbers: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return medians of the fewest rows, and the share of test rows whose class was changed."""
    values = numbers.groupby("method", sort=False)["value"]
    middle = values.apply(lambda v: v.fillna(np.inf).median())
    return pd.DataFrame(
        {
            "fewest rows, median": middle.map(
                lambda v: f"{v:.0f}" if v <= most else f"over {most}"
            ),
            "class changed": values.apply(lambda v: f"{v.notna().mean():.0%}"),
        }
    )


def claims(acts: pd.DataFrame, numbers: pd.DataFrame, found: pd.DataFrame) -> dict[str, bool]:
    """Return the conclusions, and whether they hold."""
    one, several = (f"remove, {words(rounds)}" for rounds in ROUNDS)
    changed = numbers["value"].notna().groupby(numbers["method"]).mean()
    best = found.loc[EXACT]
    return {
        "removing in rounds does more harm than in one shot, for LeafInfluence and BoostIn": bool(
            (acts[several] > acts[one])[[EXACT, BOOSTIN]].all()
        ),
        "LeafInfluence changes the class of more test rows than BoostIn and than random rows": bool(
            changed[EXACT] > changed[[BOOSTIN, RANDOM]].max()
        ),
        "both attacks succeed for half of the test rows and more": bool(
            min(best[f"{kind}: before"] for kind in ATTACKS) >= 0.5
        ),
        "LeafInfluence finds the injected rows with a ROC-AUC of 0.95 and more": bool(
            min(best[f"{kind}: auc"] for kind in ATTACKS) >= 0.95
        ),
        "and more of them than BoostIn": bool(
            all(best[f"{k}: found"] > found.loc[BOOSTIN, f"{k}: found"] for k in ATTACKS)
        ),
        "similarity and the label (TreeSim) find them as well, within 0.1 of the share found": bool(
            all(found.loc["TreeSim", f"{k}: found"] > best[f"{k}: found"] - 0.1 for k in ATTACKS)
        ),
        "without LeafInfluence's choice, less than a third of the attacks' success is left": bool(
            max(best[f"{k}: success after"] / best[f"{k}: before"] for k in ATTACKS) < 1 / 3
        ),
        "the training row alone (SelfInfluence) finds few: of injected rows below one third": bool(
            max(found.loc["SelfInfluence", f"{kind}: found"] for kind in ATTACKS) < 1 / 3
        ),
    }


def figure(acts: pd.DataFrame, numbers: pd.DataFrame, found: pd.DataFrame) -> FigureBase:
    """Draw harm by removal, rows until a class changes, and success of attacks afterwards."""
    drawn, (left, middle, right) = axes(3, height=3.6, width=11)
    places = np.arange(len(ROUNDS))
    colours = dict(zip(acts.index, COLOURS, strict=False))
    for name, colour in colours.items():
        line = [acts.loc[name, f"remove, {words(rounds)}"] for rounds in ROUNDS]
        left.plot(places, line, "o-", color=colour, label=name)
        values = np.sort(numbers.loc[numbers["method"] == name, "value"].dropna())
        share = np.arange(1, len(values) + 1) / (numbers["method"] == name).sum()
        middle.step(np.r_[1, values], np.r_[0, share], where="post", color=colour)
        after = [found.loc[name, f"{kind}: success after"] for kind in ATTACKS]
        right.plot(list(ATTACKS), after, "o", color=colour)
    left.set_xticks(places, [words(rounds) for rounds in ROUNDS])
    left.set(ylabel="change of the loss, %", title="Most helpful removed")
    middle.set(xscale="log", xlabel="rows removed", ylabel="share of test rows", ylim=(0, 1))
    middle.set_title("Class changed")
    right.set(ylabel="success of the attack", ylim=(-0.02, 1.02), title="Most harmful removed")
    right.margins(x=0.5)
    legend(drawn, left, columns=7)
    return drawn
