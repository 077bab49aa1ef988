"""Measure leaftrace beside the tools people use for neighbouring questions: `make compare`.

    python benchmarks/compare.py          # writes docs/comparison.md

All see the same CatBoost model, training rows and test rows; 10 % of the training labels were flipped. Two numbers are
measured, wherever a tool ranks training rows:

    flipped   area under the ROC curve by which its ranking finds the flipped labels
    retrained rank correlation of the sums of its scores over random halves of the rows with the test
              loss of models trained on these halves (the LDS of the literature)

Neither is the purpose of every tool; the page says what each answers.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import shap
from catboost import CatBoostClassifier, CatBoostRegressor, Pool
from cleanlab.rank import get_label_quality_scores
from pydvl.valuation import Dataset, MaxUpdates, ModelUtility, MSRBanzhafValuation, SupervisedScorer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split

import leaftrace as lt

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
QUIET = {"verbose": False, "allow_writing_files": False, "thread_count": 1, "random_seed": 0}
# One Newton step a tree, where CatBoost's own influence is exact.
SETTINGS = {"iterations": 50, "depth": 4, "leaf_estimation_iterations": 1, "boosting_type": "Plain"}
CLASSIFIER = {**SETTINGS, "leaf_estimation_method": "Newton", **QUIET}
HALVES = 60
UPDATES = 200  # models that pyDVL trains


@dataclass(frozen=True)
class World:
    """Training rows with some labels flipped, test rows, and models of random halves."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    flipped: np.ndarray | None  # (n,)
    make: Callable[[], CatBoostClassifier | CatBoostRegressor]

    @property
    def model(self):
        return self.make().fit(self.X, self.y)

    def loss(self, model) -> float:
        if self.flipped is None:
            return float(np.mean((model.predict(self.X_test) - self.y_test) ** 2))
        p = model.predict_proba(self.X_test)[np.arange(len(self.y_test)), self.y_test]
        return float(-np.log(p).mean())

    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows (halves, n) are in each half, and the test losses of models of these."""
        random = np.random.default_rng(1)
        inside = np.zeros((HALVES, len(self.y)), bool)
        for mask in inside:
            mask[random.permutation(len(self.y))[: len(self.y) // 2]] = True
        losses = [self.loss(self.make().fit(self.X[mask], self.y[mask])) for mask in inside]
        return inside, np.array(losses)


@dataclass(frozen=True)
class Line:
    """What a tool gave. ``harm``: (n,) scores that are higher for rows that hurt, or None."""

    tool: str
    gives: str
    seconds: float
    harm: np.ndarray | None


def timed(work: Callable[[], np.ndarray | None]) -> tuple[float, np.ndarray | None]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def ranks(x: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(x)).astype(float)


def agreement(harm: np.ndarray, inside: np.ndarray, losses: np.ndarray) -> float:
    return float(np.corrcoef(ranks(inside @ harm), ranks(losses))[0, 1])


# ---- tools ----


def influence(world: World, method=None) -> np.ndarray:
    tracer = lt.Tracer(world.model, world.X, world.y, n_jobs=1)
    found = tracer.influence(world.X_test, world.y_test, reduce="mean", method=method)
    return found.values[:, 0].astype(float)


def label_noise(world: World) -> np.ndarray:
    tracer = lt.Tracer(world.model, world.X, world.y, n_jobs=1)
    return -ranks(np.argsort(lt.label_noise(tracer).order))


def data_values(world: World) -> np.ndarray:
    tracer = lt.Tracer(world.model, world.X, world.y, n_jobs=1)
    return -lt.data_values(tracer, world.X_test, world.y_test, members=30).values


def catboost_importance(world: World) -> np.ndarray:
    pool = Pool(world.X, world.y)
    test = Pool(world.X_test, world.y_test)
    model = world.model
    rows, scores = model.get_object_importance(
        test, pool, type="Average", update_method="AllPoints", thread_count=1
    )
    harm = np.zeros(len(world.y))
    harm[np.asarray(rows, int)] = scores
    # Of two signs, CatBoost's is that of the change of the loss without the row.
    return harm


def shap_values(world: World) -> None:
    shap.TreeExplainer(world.model).shap_values(world.X_test)


def cleanlab_scores(world: World) -> np.ndarray:
    p = cross_val_predict(world.make(), world.X, world.y, cv=5, method="predict_proba")
    return -get_label_quality_scores(world.y, p)


class Hashable(CatBoostClassifier):
    """CatBoost's classifier, which pyDVL takes for a key."""

    __hash__ = object.__hash__


def pydvl_values(world: World) -> np.ndarray:
    train = Dataset(world.X, world.y)
    scorer = SupervisedScorer("neg_log_loss", Dataset(world.X_test, world.y_test), default=-1.0)
    utility = ModelUtility(Hashable(**CLASSIFIER), scorer, show_warnings=False)
    found = MSRBanzhafValuation(utility, MaxUpdates(UPDATES), seed=0).fit(train).result
    harm = np.zeros(len(world.y))
    harm[found.indices] = -found.values
    return harm


Tool = Callable[[World], np.ndarray | None]


def by(method) -> Tool:
    """Return a tool that is a method of leaftrace."""
    return lambda world: influence(world, method)


CLASSIFIER_TOOLS: dict[str, tuple[str, Tool]] = {
    "leaftrace, `influence`": ("effect of each row on predictions and losses, exact", influence),
    "leaftrace, `StructureInfluence`": (
        "the same with splits that give way",
        by(lt.StructureInfluence()),
    ),
    "leaftrace, `label_noise`": ("labels that surprise the model", label_noise),
    "leaftrace, `data_values`": ("what each row is worth", data_values),
    "CatBoost, `get_object_importance`": ("effect of each row, row by row", catboost_importance),
    "SHAP, `TreeExplainer`": ("what each feature adds to a prediction", shap_values),
    "cleanlab, label quality": ("labels that models of other folds contradict", cleanlab_scores),
    f"pyDVL, Data Banzhaf, {UPDATES} models": (
        "what each row is worth, by training again",
        pydvl_values,
    ),
    "tree_influence*, BoostIn": ("effect of each row, one step deep", by(lt.baselines.BoostIn())),
    "tree_influence*, TREX": ("similar rows, by a surrogate", by(lt.baselines.TREX())),
}
REGRESSOR_TOOLS: dict[str, tuple[str, Tool]] = {
    "leaftrace, `influence`": ("effect of each row, exact", influence),
    "AXIL*": ("loadings of labels in predictions", by(lt.baselines.AXIL())),
    "CatBoost, `get_object_importance`": ("effect of each row", catboost_importance),
}


def measured(world: World, tools: dict[str, tuple[str, Tool]]) -> list[Line]:
    """Run every tool once."""
    return [
        Line(name, gives, *timed(lambda tool=tool: tool(world)))
        for name, (gives, tool) in tools.items()
    ]


# ---- the page ----


def table(world: World, lines: list[Line]) -> str:
    inside, losses = world.halves()
    noisy = world.flipped is not None
    head = ["tool", "gives", "seconds", *(["flipped"] if noisy else []), "retrained"]
    out = [" | ".join(head), " | ".join(["---"] * len(head))]
    for line in lines:
        found = ["", ""]
        if line.harm is not None:
            if noisy:
                found[0] = f"{roc_auc_score(world.flipped, line.harm):.2f}"
            found[1] = f"{agreement(line.harm, inside, losses):.2f}"
        cells = [line.tool, line.gives, f"{line.seconds:.2g}", *found[0 if noisy else 1 :]]
        out.append(" | ".join(cells))
        print(out[-1], file=sys.stderr)
    return "\n".join(f"| {text} |" for text in out)


def worlds() -> tuple[World, World]:
    random = np.random.default_rng(0)
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    flipped = random.random(len(y)) < 0.1
    classes = World(
        X, y ^ flipped, X_test, y_test, flipped, lambda: CatBoostClassifier(**CLASSIFIER)
    )
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
    numbers = World(X, y, X_test, y_test, None, lambda: CatBoostRegressor(**SETTINGS, **QUIET))
    return classes, numbers


def main() -> None:
    classes, numbers = worlds()
    warnings.simplefilter("ignore")
    first = table(classes, measured(classes, CLASSIFIER_TOOLS))
    second = table(numbers, measured(numbers, REGRESSOR_TOOLS))
    names = ("catboost", "shap", "cleanlab", "pydvl", "scikit-learn", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    template = (Path(__file__).parent / "compare.md").read_text(encoding="utf-8")
    text = template.format(
        rows=len(classes.y), flipped=int(classes.flipped.sum()), tests=len(classes.y_test), halves=HALVES,
        first=first, second=second, versions=versions, regression_rows=len(numbers.y),
    )  # fmt: skip
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
