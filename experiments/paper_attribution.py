"""Beyond the paper: methods are rows, protocols are columns, for every data set and library.

    LDS       the model is trained on random halves of the rows; rank correlation, over the halves, of a test row's
              loss with the sum of influences on it over the rows of the half; mean over test rows
    remove    the rows most helpful to other test rows leave (1, 2, 5 % of all): rise of the mean loss, retrained
    clean     the most harmful ones leave: change of the mean loss
    relabel   the most helpful ones get wrong labels: rise of the mean loss
The last three are judged on test rows that chose nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from data import Data, adult, amazon, drawn, hospital, houses, wine
from matplotlib.figure import Figure
from models import KINDS, LIBRARIES, losses, other_labels
from results import COLOURS, Section, axes, markdown
from store import cached, hashed, parallel
from tqdm import tqdm

import leaftrace as lt

SHARES = (0.01, 0.02, 0.05)  # of the rows; Amazon's rarer class is 6 % of them
ACTS = {"remove": "most helpful removed", "clean": "most harmful removed", "relabel": "most helpful relabelled"}
AGAIN = 1_000  # seeds of retraining begin here; no model that is asked has one of them
EXACT, SEEDS, CEILING = "LeafInfluence, exact", "LeafInfluence, 10 seeds", "retrained twice"
SINGLE = {
    EXACT: lt.LeafInfluence(),
    "LeafInfluence, SinglePoint": lt.LeafInfluence(lt.SinglePoint()),
    "LeafInfluence, Top8Leaves": lt.LeafInfluence(lt.TopKLeaves(8)),
    "LeafRefit, exact": lt.LeafRefit(),
    "BoostIn": lt.baselines.BoostIn(),
    "TreeSim": lt.baselines.TreeSim(),
    "TREX": lt.baselines.TREX("path"),  # with "count" its surrogate hardly learns
    "Detector": lt.baselines.Detector(),
    "Random": lt.baselines.Random(),
}
ALONE = "leave-one-out"


@dataclass(frozen=True)
class Size:
    rows: int  # to train on
    tests: int  # of LDS; and as many times five to choose by, and to judge by
    halves: int
    seeds: int  # models that single-model methods are asked about
    data: tuple[str, ...]
    libraries: tuple[str, ...]
    alone: tuple[str, ...]  # libraries whose models are also retrained without each row


FULL = Size(2_000, 100, 100, 3, tuple(KINDS), tuple(LIBRARIES), ("LightGBM",))
QUICK = Size(1_000, 50, 100, 1, ("adult", "houses"), ("CatBoost", "LightGBM"), ())


def load(name: str, size: Size) -> Data:
    """Rows drawn at random from a data set."""
    count = 11 * size.tests
    if name in ("houses", "wine"):
        return (houses if name == "houses" else wine)(size.rows, count)
    whole = {"adult": adult, "amazon": amazon, "hospital": lambda: hospital(biased=False)}[name]()
    X = whole.X.rename(columns=lambda text: text.replace("[", "").replace("<", "below "))  # XGBoost takes none of them
    return drawn(X, whole.y, size.rows, count)


class World:
    """A data set, a library, and models trained on parts of the rows."""

    def __init__(self, name: str, library: str, size: Size) -> None:
        self.data, self.kind, self.size = load(name, size), KINDS[name], size
        self.name, self.make = f"{name}, {library}", LIBRARIES[library]
        m = size.tests
        self.asked, self.choose, self.judge = slice(0, m), slice(m, 6 * m), slice(6 * m, 11 * m)
        data = hashed(self.data.X, self.data.y, self.data.X_test, self.data.y_test)
        self.key = {"data": data, "library": library, "model": repr(self.make(self.kind, 0)), "size": size.tests}
        self.halves = np.random.default_rng(8).random((size.halves, size.rows)) < 0.5

    def fit(self, seed: int, keep: Any = slice(None), y: np.ndarray | None = None) -> Any:
        return self.make(self.kind, seed).fit(self.data.X.iloc[keep], (self.data.y if y is None else y)[keep])

    def losses(self, model: Any, tests: slice) -> np.ndarray:
        return losses(model, self.kind, self.data.X_test.iloc[tests], self.data.y_test[tests])

    def on_halves(self, again: int) -> np.ndarray:
        """(halves, tests) losses, each half trained with a seed of its own."""
        seeds = AGAIN + again * len(self.halves) + np.arange(len(self.halves))
        train = lambda h: self.losses(self.fit(int(seeds[h]), self.halves[h]), self.asked)  # noqa: E731
        make = lambda: {"v": np.array(parallel(train, range(len(self.halves))))}  # noqa: E731
        return cached("halves", self.key | {"halves": hashed(self.halves), "seeds": seeds.tolist()}, make)["v"]

    @cached_property
    def tracers(self) -> list[lt.Tracer]:
        return [lt.Tracer(self.fit(seed), self.data.X, self.data.y) for seed in range(self.size.seeds)]

    def values(self, method: Any, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Influences (rows, tests) of each model that is asked."""
        X, y = self.data.X_test.iloc[tests], self.data.y_test[tests]
        return [tracer.influence(X, y, method=method, reduce=reduce).values for tracer in self.tracers]

    def averaged(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        X, y = self.data.X_test.iloc[tests], self.data.y_test[tests]
        make = lambda seed: self.make(self.kind, seed)  # noqa: E731
        ask = {"members": 10, "bag": 1.0, "reduce": reduce}
        return [lt.ensemble_influence(make, self.data.X, self.data.y, X, y, **ask).influence.values]

    def alone(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Leave-one-out: (rows, tests) losses with the row minus without it, of the model of seed 0."""
        every = np.arange(self.size.rows)
        without = lambda i: self.losses(self.fit(0, np.delete(every, i)), slice(0, self.choose.stop))  # noqa: E731
        make = lambda: {"v": np.array(parallel(without, tqdm(every, desc=f"{self.name}, alone", leave=False)))}  # noqa: E731
        after = cached("alone", self.key, make)["v"]
        values = (self.losses(self.fit(0), slice(0, self.choose.stop)) - after)[:, tests]
        return [values.mean(axis=1, keepdims=True) if reduce else values]

    def protocols(self, method: str, ask: Callable[[slice, str | None], list[np.ndarray]]) -> dict[str, float]:
        """All columns of one line of the table."""
        found = np.concatenate([correlations(self.halves.astype(float) @ v, self.truth) for v in ask(self.asked, None)])
        line = {"lds": found.mean(), "lds_error": found.std(ddof=1) / np.sqrt(self.size.tests)}
        order = np.argsort(ask(self.choose, "mean")[0][:, 0], kind="stable")  # most helpful first
        return line | self.curves(order)

    @cached_property
    def truth(self) -> np.ndarray:
        return self.on_halves(0)

    def mean_loss(self, keep: np.ndarray | slice, y: np.ndarray | None = None) -> float:
        """Of the rows that judge, over three seeds."""
        return float(np.mean([self.losses(self.fit(AGAIN + s, keep, y), self.judge).mean() for s in range(3)]))

    @cached_property
    def before(self) -> float:
        return self.mean_loss(slice(None))

    def curves(self, order: np.ndarray) -> dict[str, float]:
        """Changes of the loss in per cent of what it was, for each act and share."""
        found = cached("curves", self.key | {"order": hashed(order), "shares": SHARES}, lambda: self._curves(order))
        return {column(act, share): float(v) for act in ACTS for share, v in zip(SHARES, found[act], strict=True)}

    def _curves(self, order: np.ndarray) -> dict[str, np.ndarray]:
        n, wrong = len(order), other_labels(self.data.y, self.kind)
        counts = [round(share * n) for share in SHARES]

        def relabelled(rows: np.ndarray) -> np.ndarray:
            y = self.data.y.copy()
            y[rows] = wrong[rows]
            return y

        remove = parallel(lambda k: self.mean_loss(np.sort(order[k:])), counts)
        clean = parallel(lambda k: self.mean_loss(np.sort(order[: n - k])), counts)
        relabel = parallel(lambda k: self.mean_loss(slice(None), relabelled(order[:k])), counts)
        change = lambda after: 100 * (np.array(after) / self.before - 1)  # noqa: E731
        return {"remove": change(remove), "clean": change(clean), "relabel": change(relabel)}


def column(act: str, share: float) -> str:
    return f"{act}_{share:.0%}"


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(tests,) Spearman's, over the halves; 0 where one side is constant."""
    a, b = (x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b))
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))


def run(full: bool) -> Section:
    size, lines = FULL if full else QUICK, []
    for name in size.data:
        for library in size.libraries:
            world = World(name, library, size)
            ways = {m: lambda t, r, how=how: world.values(how, t, r) for m, how in SINGLE.items()}  # noqa: B023
            ways |= {SEEDS: world.averaged} | ({ALONE: world.alone} if library in size.alone else {})
            for method in tqdm(ways, desc=f"{name}, {library}", unit="method", leave=False):
                found = world.protocols(method, ways[method])
                lines.append({"data": name, "library": library, "method": method, **found})
            ceiling = correlations(world.on_halves(1), world.truth)
            lines.append({"data": name, "library": library, "method": CEILING, "lds": ceiling.mean(),
                          "lds_error": ceiling.std(ddof=1) / np.sqrt(len(ceiling))})  # fmt: skip
    return section(pd.DataFrame(lines).astype({"lds": float}), size)


def section(numbers: pd.DataFrame, size: Size) -> Section:
    lds = numbers.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    lds = lds[[*(m for m in (SEEDS, *SINGLE, ALONE) if m in lds), CEILING]]
    rivals = lds.drop(columns=[EXACT, SEEDS, CEILING])
    ahead = rivals.gt(lds[EXACT], axis=0)
    exceptions = [f"{method} on {', '.join(place)}" for place, row in ahead.iterrows() for method in row.index[row]]
    table = lds.map(lambda v: "" if np.isnan(v) else f"{v:.2f}").reset_index()
    acts = numbers[numbers["method"] != CEILING].groupby("method", sort=False)
    means = acts[[column(act, share) for act in ACTS for share in SHARES]].mean().loc[list(lds.columns[:-1])]
    wins = lds[EXACT].gt(rivals.drop(columns=["LeafRefit, exact"], errors="ignore").max(axis=1)).sum()
    claims = {
        "exact LeafInfluence has the highest LDS of all single-model methods, everywhere": not exceptions,
        "its average over ten seeds is ahead of it everywhere": bool((lds[SEEDS] > lds[EXACT]).all()),
    }
    errors = numbers[numbers["method"] == EXACT]["lds_error"]
    text = f"""
{size.rows:,} training rows of each data set, models of 100 trees that draw half of the columns for each split with
their seed (`experiments/models.py`). LDS (linear datamodelling score): the model is trained on {size.halves} random
halves of the rows, each with a seed of its own; the rank correlation, over the halves, of the loss of a test row with
the sum of influences on it over the rows of the half; mean over {size.tests} test rows. Single-model methods are asked
of {size.seeds} model{"s" if size.seeds > 1 else ""} and averaged. "{CEILING.capitalize()}": training on the same halves
with other seeds, which no method of a fixed model can be expected to beat by much. Leave-one-out retrains the model
{size.rows:,} times and is computed for {" and ".join(size.alone) or "no library"} here. Standard errors of exact
LeafInfluence are {errors.min():.3f} to {errors.max():.3f}.

{markdown(table)}

FIGURE

Leaving out LeafRefit, which computes the same to second order, exact LeafInfluence is first of the single-model
methods in {wins} of {len(lds)} lines. Ahead of it: {"; ".join(exceptions) or "none"}.

Acting on the rankings (the curves): changes of the mean loss in per cent, mean over all {len(lds)} lines. Rows are
ranked by their mean influence on {5 * size.tests} test rows; {5 * size.tests} others judge; three seeds are retrained.
"remove": without the 1, 2 and 5 % most helpful rows, more is better. "clean": without the most harmful ones, less is
better. "relabel": the most helpful ones get wrong labels, more is better.

{markdown(means.map("{:+.1f}".format).reset_index())}
"""
    figure = Figure(figsize=(11, 8), layout="constrained")
    above, below = figure.subfigures(2, 1)
    _, panels = axes(len(size.data), figure=above, sharey=True, sharex=True)
    marks = dict(zip(size.libraries, "os^D", strict=False))
    for ax, name in zip(panels, size.data, strict=True):
        for colour, (library, mark) in zip(COLOURS, marks.items(), strict=False):
            ax.plot(lds.loc[(name, library)], lds.columns, mark, color=colour, ms=5, label=library)
        ax.set(title=name.capitalize(), xlabel="LDS")
        ax.grid(axis="y", alpha=0.3)
        ax.tick_params(labelsize=8)
    panels[0].invert_yaxis()
    panels[-1].legend(frameon=False, fontsize=8)
    _, panels = axes(len(ACTS), figure=below)
    styles = [(colour, line) for line in ("-", "--") for colour in COLOURS]
    for ax, (act, title) in zip(panels, ACTS.items(), strict=True):
        for (colour, line), method in zip(styles, means.index, strict=False):
            change = [0, *(means.loc[method, column(act, share)] for share in SHARES)]
            ax.plot([0, *(100 * s for s in SHARES)], change, line, marker=".", color=colour, label=method)
        ax.set(title=title.capitalize(), xlabel="% of the training rows", ylabel="change of the mean loss, %")
    below.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right")
    return Section("Beyond the paper: which method predicts retraining best?", text, numbers, figure, claims)
