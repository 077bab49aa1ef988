"""The main job in one page: a CatBoost model, the test rows it gets most wrong, the training rows behind them.

Run by `make demo`. Data: scikit-learn's bundled breast cancer set, with one label in ten of the training part flipped,
as real labels sometimes are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import leaftrace as lt

WORST = 3
SHOWN = 4
REMOVED = 10
REPORT = Path("leaftrace-report.html")


def main() -> None:
    data = load_breast_cancer(as_frame=True)
    names = np.array(data.target_names)
    X, X_test, y, y_test = train_test_split(
        data.data, names[data.target], test_size=0.3, random_state=0
    )
    rng = np.random.default_rng(0)
    flipped = np.zeros(len(y), dtype=bool)
    flipped[rng.choice(len(y), len(y) // 10, replace=False)] = True
    y = np.where(flipped, np.where(y == names[0], names[1], names[0]), y)

    print(f"Training CatBoostClassifier() with its default settings on {len(y)} rows ...")
    model = CatBoostClassifier(verbose=False, allow_writing_files=False).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    print(tracer, "\n")

    given = np.searchsorted(model.classes_, y_test)
    p_right = model.predict_proba(X_test)[np.arange(len(y_test)), given]
    worst = np.argsort(p_right)[:WORST]
    influence = tracer.influence(X_test.iloc[worst], y_test[worst])
    top = pd.concat(
        [influence.top(SHOWN, effect=effect) for effect in ("harmful", "helpful")]
    ).drop(columns="rank")
    top["label"] = pd.Series(y, X.index)[top["train_row"]].to_numpy()
    top["flipped"] = np.where(pd.Series(flipped, X.index)[top["train_row"]], "yes", "")
    for j, row in enumerate(worst):
        harmful = np.argsort(-influence.values[:, j])[:REMOVED]
        x = X_test.iloc[[row]]
        label = given[row]
        refitted = tracer.refit(without=harmful).predict_proba(x)[0, label]
        retrained = tracer.retrain(without=harmful).predict_proba(x)[0, label]
        print(
            f"Test row {X_test.index[row]}: is {y_test[row]}, the model gives that {p_right[row]:.1%}"
        )
        print(
            top[top["test_row"] == X_test.index[row]]
            .drop(columns="test_row")
            .to_string(index=False)
        )
        print(
            f"Without its {REMOVED} most harmful training rows ({flipped[harmful].sum()} with a flipped label): "
            f"{refitted:.1%} with refitted leaves, {retrained:.1%} after real retraining.\n"
        )

    everyone = tracer.influence(X_test, y_test, reduce="mean")
    suspects = np.argsort(-everyone.values[:, 0])[: flipped.sum()]
    print(
        f"Of the {flipped.sum()} training rows that hurt the whole test set most, {flipped[suspects].sum()} have a "
        f"flipped label; chance would find {flipped.sum() ** 2 / len(y):.0f}."
    )
    lt.report(
        tracer, X_test, y_test, worst=10, title="Breast cancer, one label in ten flipped"
    ).save(REPORT)
    print(f"Report: {REPORT.resolve()}")


if __name__ == "__main__":
    main()
