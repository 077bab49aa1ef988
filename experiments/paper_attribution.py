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
from results import COLOURS, Section, axes, legend, markdown
from store import cached, hashed, parallel
from tqdm import tqdm

import leaftrace as lt

SHARES = (0.01, 0.02, 0.05)  # of the rows; Amazon's rarer class is 6 % of them
ACTS = {
    "remove": "most helpful removed",
    "clean": "most harmful removed",
    "relabel": "most helpful relabelled",
}
AGAIN = 1_000  # seeds of retraining begin here; no model that is asked has one of them
EXACT = "LeafInfluence, exact"
SEEDS = "LeafInfluence, 10 seeds"
CEILING = "retrained twice"
TOP8 = "LeafInfluence, Top8Leaves"
REFIT = "LeafRefit, exact"
SINGLE_POINT = "LeafInfluence, SinglePoint"
BOOSTIN = "BoostIn"
NO_L2 = ("LightGBM", "HistGradientBoosting")
SINGLE = {
    EXACT: lt.LeafInfluence(),
    SINGLE_POINT: lt.LeafInfluence(lt.SinglePoint()),
    TOP8: lt.LeafInfluence(lt.TopKLeaves(8)),
    REFIT: lt.LeafRefit(),
    BOOSTIN: lt.baselines.BoostIn(),
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


FULL = Size(2_000, 100, 100, 3, tuple(KINDS), tuple(LIBRARIES), ("XGBoost", "LightGBM"))
QUICK = Size(2_000, 50, 100, 1, ("adult", "houses"), tuple(LIBRARIES)[:4], ())


def load(name: str, size: Size) -> Data:
    """Rows drawn at random from a data set."""
    count = 11 * size.tests
    if name in ("houses", "wine"):
        return (houses if name == "houses" else wine)(size.rows, count)
    whole = {"adult": adult, "amazon": amazon, "hospital": lambda: hospital(biased=False)}[name]()
    X = whole.X.rename(
        columns=lambda text: text.replace("[", "").replace("<", "below ")
    )  # XGBoost takes none of them
    return drawn(X, whole.y, size.rows, count)


class World:
    """A data set, a library, and models trained on parts of the rows."""

    def __init__(self, name: str, library: str, size: Size) -> None:
        self.data = load(name, size)
        self.kind = KINDS[name]
        self.size = size
        self.name = f"{name}, {library}"
        self.make = LIBRARIES[library]
        m = size.tests
        self.asked = slice(0, m)
        self.choose = slice(m, 6 * m)
        self.judge = slice(6 * m, 11 * m)
        data = hashed(self.data.X, self.data.y, self.data.X_test, self.data.y_test)
        self.key = {
            "data": data,
            "library": library,
            "model": repr(self.make(self.kind, 0)),
            "size": size.tests,
        }
        self.halves = np.random.default_rng(8).random((size.halves, size.rows)) < 0.5

    def fit(self, seed: int, keep: Any = slice(None), y: np.ndarray | None = None) -> Any:
        return self.make(self.kind, seed).fit(
            self.data.X.iloc[keep], (self.data.y if y is None else y)[keep]
        )

    def losses(self, model: Any, tests: slice) -> np.ndarray:
        return losses(model, self.kind, self.data.X_test.iloc[tests], self.data.y_test[tests])

    def on_halves(self, again: int) -> np.ndarray:
        """(halves, tests) losses, each half trained with a seed of its own."""
        seeds = AGAIN + again * len(self.halves) + np.arange(len(self.halves))
        train = lambda h: self.losses(self.fit(int(seeds[h]), self.halves[h]), self.asked)  # noqa: E731
        make = lambda: {"v": np.array(parallel(train, range(len(self.halves))))}  # noqa: E731
        return cached(
            "halves", self.key | {"halves": hashed(self.halves), "seeds": seeds.tolist()}, make
        )["v"]

    @cached_property
    def tracers(self) -> list[lt.Tracer]:
        return [
            lt.Tracer(self.fit(seed), self.data.X, self.data.y) for seed in range(self.size.seeds)
        ]

    def values(self, method: Any, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Influences (rows, tests) of each model that is asked."""
        X = self.data.X_test.iloc[tests]
        y = self.data.y_test[tests]
        return [
            tracer.influence(X, y, method=method, reduce=reduce).values for tracer in self.tracers
        ]

    def averaged(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        X = self.data.X_test.iloc[tests]
        y = self.data.y_test[tests]
        make = lambda seed: self.make(self.kind, seed)  # noqa: E731
        ask = {"members": 10, "bag": 1.0, "reduce": reduce}
        return [lt.ensemble_influence(make, self.data.X, self.data.y, X, y, **ask).influence.values]

    def alone(self, tests: slice, reduce: str | None) -> list[np.ndarray]:
        """Leave-one-out: (rows, tests) losses with the row minus without it, of the model of seed 0."""
        every = np.arange(self.size.rows)

        def without(i: int) -> np.ndarray:
            return self.losses(self.fit(0, np.delete(every, i)), slice(0, self.choose.stop))

        def make() -> dict[str, np.ndarray]:
            rows = tqdm(every, desc=f"{self.name}, alone", leave=False)
            return {"v": np.array(parallel(without, rows))}

        after = cached("alone", self.key, make)["v"]
        values = (self.losses(self.fit(0), slice(0, self.choose.stop)) - after)[:, tests]
        return [values.mean(axis=1, keepdims=True) if reduce else values]

    def line(
        self, method: str, ask: Callable[[slice, str | None], list[np.ndarray]]
    ) -> dict[str, float]:
        """All columns of one line of the table."""
        settings = self.key | {
            "method": method,
            "how": repr(SINGLE.get(method)),
            "seeds": self.size.seeds,
        }
        settings |= {"halves": hashed(self.halves), "shares": SHARES}
        return {
            name: float(v) for name, v in cached("lines", settings, lambda: self._line(ask)).items()
        }

    def _line(self, ask: Callable[[slice, str | None], list[np.ndarray]]) -> dict[str, Any]:
        found = np.concatenate(
            [correlations(self.halves.astype(float) @ v, self.truth) for v in ask(self.asked, None)]
        )
        line = {"lds": found.mean(), "lds_error": found.std(ddof=1) / np.sqrt(self.size.tests)}
        order = np.argsort(ask(self.choose, "mean")[0][:, 0], kind="stable")  # most helpful first
        return line | self.curves(order)

    @cached_property
    def truth(self) -> np.ndarray:
        return self.on_halves(0)

    def mean_loss(self, keep: np.ndarray | slice, y: np.ndarray | None = None) -> float:
        """Of the rows that judge, over three seeds."""
        return float(
            np.mean(
                [self.losses(self.fit(AGAIN + s, keep, y), self.judge).mean() for s in range(3)]
            )
        )

    @cached_property
    def before(self) -> float:
        return self.mean_loss(slice(None))

    def curves(self, order: np.ndarray) -> dict[str, float]:
        """Changes of the loss in per cent of what it was, for each act and share."""
        n = len(order)
        wrong = other_labels(self.data.y, self.kind)

        def relabelled(rows: np.ndarray) -> np.ndarray:
            y = self.data.y.copy()
            y[rows] = wrong[rows]
            return y

        acts = {
            "remove": lambda k: self.mean_loss(np.sort(order[k:])),
            "clean": lambda k: self.mean_loss(np.sort(order[: n - k])),
            "relabel": lambda k: self.mean_loss(slice(None), relabelled(order[:k])),
        }
        todo = [(act, share) for act in ACTS for share in SHARES]
        after = parallel(lambda one: acts[one[0]](round(one[1] * n)), todo)
        return {
            column(*one): 100 * (loss / self.before - 1)
            for one, loss in zip(todo, after, strict=True)
        }


def column(act: str, share: float) -> str:
    return f"{act}_{share:.0%}"


def correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(tests,) Spearman's, over the halves; ties are ranked in the order of the halves."""
    a, b = (x.argsort(axis=0).argsort(axis=0).astype(float) for x in (a, b))
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    return (a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))


def run(full: bool) -> Section:
    size = FULL if full else QUICK
    lines = []
    for name in size.data:
        for library in size.libraries:
            world = World(name, library, size)
            ways = {m: lambda t, r, how=how: world.values(how, t, r) for m, how in SINGLE.items()}  # noqa: B023
            ways |= {SEEDS: world.averaged} | (
                {ALONE: world.alone} if library in size.alone else {}
            )
            for method in tqdm(ways, desc=f"{name}, {library}", unit="method", leave=False):
                found = world.line(method, ways[method])
                lines.append({"data": name, "library": library, "method": method, **found})
            ceiling = correlations(world.on_halves(1), world.truth)
            lines.append({"data": name, "library": library, "method": CEILING, "lds": ceiling.mean(),
                          "lds_error": ceiling.std(ddof=1) / np.sqrt(len(ceiling))})  # fmt: skip
    return section(pd.DataFrame(lines).astype({"lds": float}), size)


def section(numbers: pd.DataFrame, size: Size) -> Section:
    lds = numbers.pivot_table(index=["data", "library"], columns="method", values="lds", sort=False)
    lds = lds[[*(m for m in (SEEDS, *SINGLE, ALONE) if m in lds), CEILING]]
    ahead = lds.drop(columns=[EXACT, SEEDS, CEILING]).sub(
        lds[EXACT], axis=0
    )  # of exact LeafInfluence
    others = ahead.drop(columns=[TOP8, REFIT])
    no_l2 = ahead.index.get_level_values("library").isin(NO_L2)
    acts = numbers[numbers["method"] != CEILING].groupby("method", sort=False)
    middle = (
        acts[[column(act, share) for act in ACTS for share in SHARES]]
        .median()
        .loc[list(lds.columns[:-1])]
    )
    claims = {
        "exact LeafInfluence has a higher LDS than all methods but TopKLeaves(8) and LeafRefit, everywhere": bool(
            others.max().max() < 0
        ),
        "TopKLeaves(8) is nowhere ahead of it by more than 0.01": bool(ahead[TOP8].max() < 0.01),
        "LeafRefit is ahead of it by more than 0.01 only where leaves have no l2": bool(
            ahead[REFIT][~no_l2].max() < 0.01
        ),
        "its average over ten seeds is ahead of it everywhere": bool(
            (lds[SEEDS] > lds[EXACT]).all()
        ),
    }
    errors = numbers[numbers["method"] == EXACT]["lds_error"]
    alone = (
        f"retrains {' and '.join(size.alone)} {size.rows:,} times"
        if size.alone
        else "is left out here"
    )
    lead = ahead[REFIT].unstack("library").mean()
    at = lambda act, method: f"{middle.loc[method, column(act, SHARES[-1])]:+.1f}"  # noqa: E731
    text = f"""
{size.rows:,} training rows of each data set, models of 100 trees that draw half of the columns for each split with
their seed (`experiments/models.py`). LDS (linear datamodelling score): the model is trained on {size.halves} random
halves of the rows, each with a seed of its own; the rank correlation, over the halves, of the loss of a test row with
the sum of influences on it over the rows of the half; mean over {size.tests} test rows. Single-model methods are asked
of {size.seeds} model{"s" if size.seeds > 1 else ""} and averaged. "{CEILING.capitalize()}" is training on the same
halves with other seeds. Leave-one-out {alone}. Standard errors of exact LeafInfluence are {errors.min():.3f} to
{errors.max():.3f}.

{markdown(lds.map(lambda v: "" if np.isnan(v) else f"{v:.2f}").reset_index())}

FIGURE

Of the methods that compute something else, the closest to exact LeafInfluence is {-others.max().max():.3f} below it.
TopKLeaves(8) approximates it and is at most {ahead[TOP8].max():.3f} ahead. LeafRefit computes what the removal of one
row does, without the derivative's limit of small changes; it is up to {ahead[REFIT][no_l2].max():.3f} ahead where
leaves have no l2 (the defaults of LightGBM and HistGradientBoosting), and at most {ahead[REFIT][~no_l2].max():.3f}
elsewhere: in a leaf with little second derivative and no l2 the derivative of a row is far larger than what its removal
can do. The same LightGBM with l2 = 10: a mean lead of {lead["LightGBM, l2 = 10"]:+.4f} instead of
{lead["LightGBM"]:+.4f}. So LeafRefit is the safer choice for models without l2. On XGBoost its mean lead
is {lead["XGBoost"]:+.3f}: it follows the rule that a leaf below min_child_weight is zero, where a retraining would make
another leaf. "{CEILING.capitalize()}" compares one random training with another; an average over seeds is less random
than either and can pass it.

Acting on the rankings (the curves): changes of the mean loss in per cent, medians over a method's lines. Rows are
ranked by their mean influence on {5 * size.tests} test rows; {5 * size.tests} others judge; three seeds are retrained.
"remove": without the 1, 2 and 5 % most helpful rows, more is better. "clean": without the most harmful ones, less is
better. "relabel": the most helpful ones get wrong labels, more is better.

{markdown(middle.map("{:+.1f}".format).reset_index())}

The order is another one here: many rows change at once, which no method is about. By removal of 5 %, exact
LeafInfluence has {at("remove", EXACT)}, SinglePoint {at("remove", SINGLE_POINT)} and BoostIn {at("remove", BOOSTIN)};
by relabelling, {at("relabel", EXACT)}, {at("relabel", SINGLE_POINT)} and {at("relabel", BOOSTIN)}. Taking out the most
harmful rows lowers the loss by {max(0, -middle.filter(like="clean").min().min()):.1f} % at best: no label was made
wrong here, unlike above. Where Amazon is among the data it has the largest changes (see the CSV), since 5 % of its rows
are most of its rarer class.
"""
    figure = Figure(figsize=(11, 8), layout="constrained")
    above, below = figure.subfigures(2, 1)
    _, panels = axes(len(size.data), figure=above, sharey=True, sharex=True)
    marks = dict(zip(size.libraries, "os^vD", strict=False))
    for ax, name in zip(panels, size.data, strict=True):
        for colour, (library, mark) in zip(COLOURS, marks.items(), strict=False):
            ax.plot(lds.loc[(name, library)], lds.columns, mark, color=colour, ms=5, label=library)
        ax.set(title=name.capitalize(), xlabel="LDS")
        ax.grid(axis="y", alpha=0.3)
        ax.tick_params(labelsize=8)
    panels[0].invert_yaxis()
    legend(above, panels[0], "right", 1)
    _, panels = axes(len(ACTS), figure=below)
    styles = [(colour, line) for line in ("-", "--") for colour in COLOURS]
    for ax, (act, title) in zip(panels, ACTS.items(), strict=True):
        for (colour, line), method in zip(styles, middle.index, strict=False):
            change = [0, *(middle.loc[method, column(act, share)] for share in SHARES)]
            ax.plot(
                [0, *(100 * s for s in SHARES)],
                change,
                line,
                marker=".",
                color=colour,
                label=method,
            )
        ax.set(
            title=title.capitalize(),
            xlabel="% of the training rows",
            ylabel="change of the mean loss, %",
        )
    legend(below, panels[0], "right", 1)
    return Section(
        "Beyond the paper: which method predicts retraining best?", text, numbers, figure, claims
    )
