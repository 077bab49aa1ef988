"""Show which training rows are behind the worst predictions of a CatBoost model.

`make demo` runs this. The data are scikit-learn's breast cancer set, with one training label in ten
flipped, because real data have wrong labels too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import leaftrace as lt

WORST = 3  # test rows to explain
SHOWN = 4  # harmful and helpful training rows to show for each
REMOVED = 10  # most harmful training rows to remove
REPORT = Path("leaftrace-report.html")


def main() -> None:
    X, y, flipped, X_test, y_test = data_with_flipped_labels()
    print(f"Training CatBoostClassifier() with its default settings on {len(y)} rows ...")
    model = CatBoostClassifier(verbose=False, allow_writing_files=False).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    print(tracer, "\n")
    explain_worst(model, tracer, flipped, X_test, y_test)
    rank_all(tracer, flipped, X_test, y_test)
    title = "Breast cancer, one label in ten flipped"
    lt.report(tracer, X_test, y_test, worst=10, title=title).save(REPORT)
    print(f"Report: {REPORT.resolve()}")


def data_with_flipped_labels():
    """Return training rows, their labels, which of them are flipped, test rows and their labels."""
    data = load_breast_cancer(as_frame=True)
    names = np.array(data.target_names)
    X, X_test, y, y_test = train_test_split(
        data.data, names[data.target], test_size=0.3, random_state=0
    )
    rng = np.random.default_rng(0)
    flipped = np.zeros(len(y), dtype=bool)
    flipped[rng.choice(len(y), len(y) // 10, replace=False)] = True
    other = np.where(y == names[0], names[1], names[0])
    return X, np.where(flipped, other, y), flipped, X_test, y_test


def explain_worst(model, tracer, flipped, X_test, y_test) -> None:
    """Show the rows behind the worst predictions, and what removing them does."""
    given = np.searchsorted(model.classes_, y_test)
    p_right = model.predict_proba(X_test)[np.arange(len(y_test)), given]
    worst = np.argsort(p_right)[:WORST]
    influence = tracer.influence(X_test.iloc[worst], y_test[worst])
    top = top_rows(tracer, influence, flipped)
    for j, row in enumerate(worst):
        harmful = np.argsort(-influence.values[:, j])[:REMOVED]
        x = X_test.iloc[[row]]
        label = given[row]
        refitted = tracer.refit(without=harmful).predict_proba(x)[0, label]
        retrained = tracer.retrain(without=harmful).predict_proba(x)[0, label]
        name = X_test.index[row]
        print(f"Test row {name}: is {y_test[row]}, the model gives that {p_right[row]:.1%}")
        print(top[top["test_row"] == name].drop(columns="test_row").to_string(index=False))
        print(
            f"Without its {REMOVED} most harmful training rows "
            f"({flipped[harmful].sum()} with a flipped label): "
            f"{refitted:.1%} with refitted leaves, {retrained:.1%} after one retraining.\n"
        )


def top_rows(tracer, influence, flipped) -> pd.DataFrame:
    """Return the most harmful and helpful rows, with their labels and whether these are flipped."""
    parts = [influence.top(SHOWN, effect=effect) for effect in ("harmful", "helpful")]
    top = pd.concat(parts).drop(columns="rank")
    rows = tracer.X_train.index
    top["label"] = pd.Series(tracer.y_train, rows)[top["train_row"]].to_numpy()
    top["flipped"] = np.where(pd.Series(flipped, rows)[top["train_row"]], "yes", "")
    return top


def rank_all(tracer, flipped, X_test, y_test) -> None:
    """Say how many of the rows most harmful to the whole test set have a flipped label."""
    influence = tracer.influence(X_test, y_test, reduce="mean")
    count = flipped.sum()
    suspects = np.argsort(-influence.values[:, 0])[:count]
    print(
        f"Of the {count} training rows that raise the loss of the whole test set most, "
        f"{flipped[suspects].sum()} have a flipped label; "
        f"chance would find {count**2 / len(flipped):.0f}."
    )


if __name__ == "__main__":
    main()
