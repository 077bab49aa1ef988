"""Fixing the predictions that flipped labels made worse, one by one, confirmed by retraining. Adult."""

from __future__ import annotations

import numpy as np
from data import Data, adult, catboost, flipped

import leaftrace as lt

COUNT = 50


def run() -> str:
    data = adult()
    y, noisy = flipped(data.y)
    clean, model = (catboost("adult").fit(data.X, labels) for labels in (data.y, y))
    tracer = lt.Tracer(model, data.X, y)
    rows, margins = worst_hit(data, clean, model)
    fixes = {
        action: [fixed(tracer, data, row, action) for row in rows]
        for action in ("remove", "relabel")
    }
    by_random_rows = sum(
        fixed_by_random_rows(tracer, data, row, len(fix.rows))
        for row, fix in zip(rows, fixes["remove"], strict=True)
    )
    successes = [success(action, found, noisy, by_random_rows) for action, found in fixes.items()]
    changes = [line for action, found in fixes.items() for line in effects(action, found)]
    return f"""## Fixing a prediction

In Adult, 4,000 training labels are flipped; the model is the paper's CatBoost. Among the test rows
that the model of the true labels predicts right and the model of the flipped labels wrong, we take the
{len(rows)} whose loss rose most. Their margin (the raw score, counted towards the true class) went from
{margins[0].mean():+.2f} to {margins[1].mean():+.2f} on average. `fix` looks for the smallest set of training
rows to change so that the prediction becomes right; it counts as fixed only if the retrained model is
right. The rows are chosen by that test row alone, so the other {len(data.y_test) - 1:,} test rows show
what the fix costs.

| action | fixed | by the first retraining | rows: median | most | of them flipped | by as many random rows |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(successes)}

What the fixes do, on average over the {len(rows)} rows. "Worse" and "better" count the fixes for which
the 95 % interval of the change of the mean test loss, by retraining, excludes zero.

| action | of | before | predicted | refitted | retrained | worse | better |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(changes)}
"""


def worst_hit(data: Data, clean: object, model: object) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of test rows, and their margins (2, rows) in the clean and the noisy model."""
    sign = np.where(data.y_test == 1, 1.0, -1.0)
    margins = np.array(
        [sign * m.predict(data.X_test, prediction_type="RawFormulaVal") for m in (clean, model)]
    )
    rise = np.logaddexp(0, -margins[1]) - np.logaddexp(0, -margins[0])
    hit = np.flatnonzero((margins[0] > 0) & (margins[1] < 0))
    rows = hit[np.argsort(-rise[hit], kind="stable")[:COUNT]]
    return rows, margins[:, rows]


def fixed(tracer: lt.Tracer, data: Data, row: int, action: str) -> lt.Fix:
    """Fix one test row, with all others to judge the cost."""
    others = np.arange(len(data.y_test)) != row
    x = data.X_test.iloc[[row]]
    y = data.y_test[row]
    return lt.fix(
        tracer, x, y, X_test=data.X_test[others], y_test=data.y_test[others], action=action
    )


def fixed_by_random_rows(tracer: lt.Tracer, data: Data, row: int, size: int) -> bool:
    """Tell whether retraining without as many random rows predicts the test row right."""
    gone = np.random.default_rng(row).choice(tracer.n_rows, size, replace=False)
    score = tracer.retrain(without=gone).scores(data.X_test.iloc[[row]])[0, 0]
    return bool((score > 0) == (data.y_test[row] == 1))


def success(action: str, found: list[lt.Fix], noisy: np.ndarray, by_random_rows: int) -> str:
    """Return a line of the first table."""
    sizes = [len(f.rows) for f in found]
    first = sum(f.attempts[0].retrained > 0 for f in found)
    share = np.mean([noisy[f.rows].mean() for f in found])
    control = f"{by_random_rows} of {len(found)}" if action == "remove" else ""
    count = f"{sum(f.fixed for f in found)} of {len(found)}"
    rows = f"{np.median(sizes):.0f} | {max(sizes)}"
    return f"| {action} | {count} | {first} | {rows} | {share:.0%} | {control} |"


def effects(action: str, found: list[lt.Fix]) -> list[str]:
    """Return the lines of one action in the second table."""
    names = list(found[0].effects["of"])
    lines = []
    for i, name in enumerate(names):
        if name.startswith("probability"):
            continue  # its class differs between the rows
        ways = ["before", "predicted", "refitted", "retrained"]
        numbers = np.mean([f.effects[ways].iloc[i].to_numpy(float) for f in found], axis=0)
        cells = [f"{numbers[0]:.4f}", *(f"{change:+.5f}" for change in numbers[1:])]
        judged = ["", ""]
        if name.startswith("mean log loss"):
            judged = [str(sum(sign * f.cost[0] > f.cost[1] for f in found)) for sign in (1, -1)]
        lines.append("| " + " | ".join([action, name, *cells, *judged]) + " |")
    return lines


if __name__ == "__main__":
    print(run())
