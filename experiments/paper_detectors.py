"""Beyond the paper: detectors of wrong labels that follow the training, on Adult at five noise levels.

Eisenbürger et al. (arXiv 2409.08647) say that theirs are more than 99 % accurate on Adult at all noise
levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from data import adult, drawn
from matplotlib.figure import FigureBase
from models import LIBRARIES
from noisy import auc
from results import COLOURS, Section, axes, legend, markdown
from sklearn.model_selection import cross_val_predict
from store import cached, code, hashed

import leaftrace as lt

TITLE = "Beyond the paper: 99 % of wrong labels found?"
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4)
MODELS = ("CatBoost", "XGBoost")
GIVEN = "Adult"
MADE = "Adult, labels made by a model"
KNOWING = "true labels known"
NOTHING = "nothing flagged"
DETECTORS = ("Gradients", "AUM", "LRT", "label_noise")
CLAIMED = 0.99


def run(full: bool) -> Section:
    every = adult()
    data = drawn(every.X, every.y, len(every.y) if full else 6_000, 0)
    labels = {GIVEN: data.y, MADE: model_labels(data.X, data.y)}
    lines = []
    for (kind, y), library in ((item, library) for item in labels.items() for library in MODELS):
        for level in LEVELS:
            lines += lines_of(kind, data.X, y, library, level)
    return section(pd.DataFrame(lines), len(data.y))


def model_labels(X: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    """Return the classes that a model of these rows predicts: labels that follow from the columns."""
    return np.ravel(LIBRARIES["LightGBM, l2 = 10"]("classes", 0).fit(X, y).predict(X))


def lines_of(
    kind: str, X: pd.DataFrame, y: np.ndarray, library: str, level: float
) -> list[dict[str, object]]:
    """Return a line for each detector, with this share of the labels flipped."""
    flipped = np.random.default_rng(round(100 * level)).random(len(y)) < level
    given = np.where(flipped, 1 - y, y)
    model = LIBRARIES[library]("classes", 0)
    settings = {"data": hashed(X, y, given), "model": repr(model), "code": code()}
    found = cached("detectors", settings, lambda: scores(model, X, y, given, level))
    head = {"data": kind, "library": library, "noise": level}
    lines = [{**head, "detector": name, **measures(flipped, s)} for name, s in found.items()]
    return [*lines, {**head, "detector": NOTHING, "auc": 0.5, "accuracy": 1 - flipped.mean()}]


def scores(
    model: Any, X: pd.DataFrame, y: np.ndarray, given: np.ndarray, level: float
) -> dict[str, np.ndarray]:
    """Return scores (n,) of each detector, higher for labels that are more likely wrong."""
    fitted = model.fit(X, given)
    noise = lt.label_noise(lt.Tracer(fitted, X, given)).scores
    p = fitted.predict_proba(X)
    p_given = p[np.arange(len(given)), given]
    return {
        "Gradients": noise["gradient"],
        "AUM": noise["margin"],
        "LRT": -p_given / p.max(axis=1),
        "label_noise": noise["default"],
        KNOWING: flip_probability(out_of_fold(model, X, y), given, level),
    }


def out_of_fold(model: Any, X: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    """Return the probability (n,) of class 1 by models of the true labels of other rows."""
    return cross_val_predict(model, X, y, method="predict_proba")[:, 1]


def flip_probability(p: np.ndarray, given: np.ndarray, level: float) -> np.ndarray:
    """Return the probability (n,) that a label was flipped, if p (n,) is that of class 1."""
    kept = (1 - level) * np.where(given == 1, p, 1 - p)
    turned = level * np.where(given == 1, 1 - p, p)
    return turned / (kept + turned)


def measures(flipped: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Return how well a score finds the flipped labels.

    ``accuracy``   share of rows judged rightly, with the threshold that makes it largest
    ``precision``  of as many rows as are flipped, the share that is; it equals the recall then"""
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(flipped[order])  # by the number of flagged rows, from 1
    count = int(flipped.sum())
    flags = np.arange(1, len(score) + 1)
    right = np.r_[0, 2 * hits - flags] + len(score) - count  # hits + rows rightly not flagged
    return {
        "auc": auc(flipped, score),
        "accuracy": float(right.max() / len(score)),
        "precision": float(hits[count - 1] / count),
    }


def section(numbers: pd.DataFrame, rows: int) -> Section:
    numbers = numbers.astype({"auc": float, "accuracy": float, "precision": float})
    accuracy = wide(numbers, "accuracy")
    areas = wide(numbers, "auc")
    best = accuracy.loc[GIVEN].drop(index=[NOTHING, KNOWING], level="detector").max().max()
    silent = accuracy.loc[GIVEN].xs(NOTHING, level="detector").max().max()
    text = f"""
Eisenbürger, Otten, Hudde and Hopfgartner (*Training Gradient Boosted Decision Trees on Tabular Data
Containing Label Noise for Classification Tasks*, arXiv 2409.08647) follow each training row through
boosting and say of their detectors "a noise detection accuracy above 99% on the Adult dataset across
all noise levels". Here a share of Adult's labels ({rows:,} rows), drawn at random, is flipped.

- *Gradients*: the mean over all trees of the size of the row's gradient
- *AUM*: minus the mean over all trees of the margin of the given label
- *LRT*: minus the likelihood ratio, the probability of the given label over the largest one
- *label_noise*: the default score of `lt.label_noise`, without validation rows
- *{KNOWING}*: no detector but a yardstick. Models of the *true* labels of other rows (five folds)
  give the probability of each class, and with the noise level that a label was flipped

We know that paper by its abstract and by summaries, so our versions of its detectors and its accuracy
may differ in detail. Here accuracy is the share of rows that are rightly called flipped or not, with
the threshold that makes it largest, which only one who knows the flips can choose.
"{NOTHING.capitalize()}" is the accuracy of saying that all labels are right.

{markdown(percent(accuracy.loc[GIVEN]))}

FIGURE

No detector is near 99 %: the best has {100 * best:.1f} %, at the lowest noise level, where saying nothing has
{100 * silent:.1f} %. Knowing the true labels of all other rows does not get there either. Many people with the
same columns have different incomes, and for them a flipped label looks like a true one. With labels
that a model made from the columns, which Adult's are not, the same detectors do better:

{markdown(percent(accuracy.loc[MADE]))}

ROC-AUC on Adult's own labels. The order of rows is what users look at, and here the detectors are
close to each other at low noise; at high noise, where the model memorises wrong labels, the means
over all trees find more of them.

{markdown(areas.loc[GIVEN].drop(index=NOTHING, level="detector").map("{:.3f}".format).reset_index())}
"""
    return Section(TITLE, text, numbers, figure(accuracy), claims(accuracy, areas))


def wide(numbers: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a table with a line for each detector and a column for each noise level."""
    lines = ["data", "library", "detector"]
    return numbers.pivot_table(index=lines, columns="noise", values=value, sort=False)


def percent(table: pd.DataFrame) -> pd.DataFrame:
    """Return shares as per cents, to print."""
    named = table.rename(columns=lambda level: f"{level:.0%} flipped")
    return named.map(lambda share: f"{100 * share:.1f}").reset_index()


def claims(accuracy: pd.DataFrame, areas: pd.DataFrame) -> dict[str, bool]:
    """Return the conclusions, and whether they hold."""
    real = accuracy.loc[GIVEN].drop(index=NOTHING, level="detector")
    high = areas.loc[GIVEN][LEVELS[-1]]
    own = real.drop(index=KNOWING, level="detector")
    made = accuracy.loc[MADE].drop(index=[NOTHING, KNOWING], level="detector")
    return {
        "99 % is refuted: no detector has it at any noise level, with whatever threshold": bool(
            (own < CLAIMED).all(axis=None)
        ),
        "nor are models of the true labels": bool(
            (real.xs(KNOWING, level="detector") < CLAIMED).all(axis=None)
        ),
        "each detector is more accurate where a model made the labels": bool(
            (made > own).all(axis=None)
        ),
        f"with {LEVELS[-1]:.0%} flipped, AUM has a higher ROC-AUC than LRT": bool(
            (high.xs("AUM", level="detector") > high.xs("LRT", level="detector")).all()
        ),
    }


def figure(accuracy: pd.DataFrame) -> FigureBase:
    """Draw accuracy against the noise level, a panel for each kind of labels and library."""
    pairs = list(dict.fromkeys(line[:2] for line in accuracy.index))
    drawn_figure, panels = axes(len(pairs), height=3.4, width=11, sharey=True)
    for ax, (kind, library) in zip(panels, pairs, strict=True):
        for colour, (name, line) in zip(
            COLOURS, accuracy.loc[(kind, library)].iterrows(), strict=False
        ):
            style = "--" if name in (KNOWING, NOTHING) else "-"
            ax.plot(
                [100 * x for x in line.index],
                100 * line,
                style,
                marker=".",
                color=colour,
                label=name,
            )
        ax.axhline(100 * CLAIMED, color="black", lw=0.8, ls=":")
        ax.set_title(f"{kind}\n{library}", fontsize=9)
        ax.set_xlabel("% of labels flipped")
    panels[0].set_ylabel("accuracy, %")
    legend(drawn_figure, panels[0], columns=6)
    return drawn_figure
