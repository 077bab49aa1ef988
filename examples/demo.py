"""The main job in one page: a CatBoost model, the test rows it gets most wrong, the training rows behind them.

Run by `make demo`. Data: scikit-learn's bundled breast cancer set, with one label in ten of the training part flipped,
as real labels sometimes are.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import leaftrace as lt

WORST, SHOWN, REMOVED = 3, 4, 10
REPORT = Path("leaftrace-report.html")
FEATURES = ["mean radius", "mean texture", "worst area", "worst concave points"]


def main() -> None:
    data = load_breast_cancer(as_frame=True)
    names = np.array(data.target_names)
    X, X_test, y, y_test = train_test_split(data.data, names[data.target], test_size=0.3, random_state=0)
    rng = np.random.default_rng(0)
    flipped = np.zeros(len(y), dtype=bool)
    flipped[rng.choice(len(y), len(y) // 10, replace=False)] = True
    y = np.where(flipped, np.where(y == names[0], names[1], names[0]), y)

    print(f"Training CatBoostClassifier() with its default settings on {len(y)} rows ...")
    model = CatBoostClassifier(verbose=False, allow_writing_files=False).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    print(tracer, "\n")

    code = dict(zip(model.classes_, range(2), strict=True))
    given = np.array([code[label] for label in y_test])
    p_right = model.predict_proba(X_test)[np.arange(len(y_test)), given]
    worst = np.argsort(p_right)[:WORST]
    influence = tracer.influence(X_test.iloc[worst], y_test[worst])

    sections = []
    for j, row in enumerate(worst):
        table = evidence(influence, j, X, y, flipped)
        label = given[row]
        harmful = np.argsort(-influence.values[:, j])[:REMOVED]
        refitted = tracer.refit(without=harmful).predict_proba(X_test.iloc[[row]])[0, label]
        retrained = tracer.retrain(without=harmful).predict_proba(X_test.iloc[[row]])[0, label]
        title = f"Test row {X_test.index[row]}: is {y_test[row]}, the model gives that {p_right[row]:.1%}"
        verdict = (
            f"Without its {REMOVED} most harmful training rows ({flipped[harmful].sum()} with a flipped label): "
            f"{refitted:.1%} with refitted leaves, {retrained:.1%} after real retraining."
        )
        print(title, table.to_string(index=False), verdict, sep="\n", end="\n\n")
        sections.append((title, table, verdict))

    everyone = tracer.influence(X_test, y_test, reduce="mean")
    suspects = np.argsort(-everyone.values[:, 0])[: flipped.sum()]
    closing = (
        f"Of the {flipped.sum()} training rows that hurt the whole test set most, {flipped[suspects].sum()} have a "
        f"flipped label; chance would find {flipped.sum() ** 2 / len(y):.0f}."
    )
    print(closing)
    write_report(sections, repr(tracer), closing)
    print(f"Report: {REPORT.resolve()}")


def evidence(influence: lt.Influence, j: int, X: pd.DataFrame, y: np.ndarray, flipped: np.ndarray) -> pd.DataFrame:
    """The rows that hurt and help test row j most, with what they look like."""
    column = lt.Influence(
        influence.values[:, [j]], np.arange(len(y)), influence.test_index[[j]], weight=influence.weight
    )
    table = pd.concat([column.top(SHOWN, effect=effect) for effect in ("harmful", "helpful")])
    rows = table.pop("train_row").to_numpy()
    table = table.drop(columns=["test_row", "rank"]).reset_index(drop=True)
    table.insert(0, "train_row", X.index[rows])
    table["label"] = y[rows]
    table["flipped"] = np.where(flipped[rows], "yes", "")
    return pd.concat([table, X.iloc[rows][FEATURES].reset_index(drop=True)], axis=1)


def write_report(sections: list[tuple[str, pd.DataFrame, str]], tracer: str, closing: str) -> None:
    body = "".join(
        f"<h2>{escape(title)}</h2>{table.to_html(index=False, border=0, float_format='{:.4g}'.format)}"
        f"<p>{escape(verdict)}</p>"
        for title, table, verdict in sections
    )
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;font-size:.85rem;display:block;overflow-x:auto}"
        "th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #ddd}pre{white-space:pre-wrap}"
        "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,td{border-color:#444}}"
    )
    REPORT.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>leaftrace demo</title><style>{style}</style><h1>Which training rows made it predict this?</h1>"
        f"<pre>{escape(tracer)}</pre>{body}<p><b>{escape(closing)}</b></p></html>",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
