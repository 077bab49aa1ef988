"""Cleaning Adult and Amazon with flipped labels: how much of the added loss is undone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import data
import numpy as np
import pandas as pd

import leaftrace as lt

ACTIONS = ("remove", "relabel", "auto", "reweight")
SEEDS = (0, 1, 2)


def run() -> str:
    parts = [TEXT]
    for name in ("adult", "amazon"):
        parts += [f"### {name.capitalize()}", section(name)]
    return "\n\n".join([*parts, "### Without flipped labels", without_flips()])


TEXT = """## Cleaning a training set

4,000 training labels of Adult and of Amazon are flipped, as in the paper. `clean` uses one half of
the test rows to choose what to change. All losses are those of the other half, the hold-out, which is
used for nothing else. The flips raise the hold-out loss; *recovered* is the share of that rise that
cleaning and retraining undo. There are three draws of the flips: hold-out losses are those of the
first, the other numbers those of all three.

- *Detector* removes the rows whose label gets the lowest probability from the noisy model: as many
  rows as `clean` removed, and the 4,000 that one would take if the number of flips were known.
- *Same rows* removes 1,000 rows at a time, chosen by influence on one half of the test rows, until
  the loss of that same half stops falling."""


NUMBERS = """Influence and Detector with the same number of rows removed, and no rule to stop (first draw; all
validation rows are used to choose):"""


def section(name: str) -> str:
    """Return all tables of one data set."""
    tasks = [NoisyTask(name, seed) for seed in SEEDS]
    first = tasks[0]
    lines = [
        "| | rows changed | of them flipped | hold-out loss | recovered | mean |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        f"| noisy labels | | | {first.before:.4f} | | 0 % |",
        f"| true labels | | | {first.ideal:.4f} | | 100 % |",
    ]
    found = {action: [task.clean(action) for task in tasks] for action in ACTIONS}
    for action, results in found.items():
        default = ", the default" if action == "remove" else ""
        rows = [result.rows for result in results]
        models = [result.model for result in results]
        lines.append(line(f'`clean`, "{action}"{default}', tasks, rows, models))
    counts = [len(r.rows) for r in found["remove"]]
    for label, most in (
        ("Detector, as many rows", counts),
        ("Detector, 4,000 rows", [4000] * len(SEEDS)),
    ):
        rows = [task.detector(k) for task, k in zip(tasks, most, strict=True)]
        models = [task.tracer.retrain(r) for task, r in zip(tasks, rows, strict=True)]
        lines.append(line(label, tasks, rows, models))
    models = [same_rows(task.tracer, *task.val) for task in tasks]
    lines.append(line("same rows", tasks, [model.without for model in models], models))
    removed = found["remove"][0]
    note = f'The first draw with "remove", after {len(removed.rounds)} rounds. {removed.advice}'
    head = [
        "| of | before | predicted | refitted | retrained |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    effects = [
        f"| {e['of']} | {e['before']:.4f} | {e['predicted']:+.4f} | {e['refitted']:+.4f} | "
        f"{e['retrained']:+.4f} |"
        for e in removed.effects.to_dict("records")
    ]
    return "\n".join([*lines, "", note, "", *head, *effects, "", NUMBERS, "", equal_numbers(first)])


def line(label: str, tasks: list[NoisyTask], rows: list[np.ndarray], models: list) -> str:
    """Return the line of one way of cleaning, from the rows it changed and the models it gave."""
    changed = ", ".join(f"{len(r):,}" for r in rows)
    flipped = ", ".join(f"{t.flips[r].mean():.0%}" for t, r in zip(tasks, rows, strict=True))
    if all(len(r) == len(t.y) for t, r in zip(tasks, rows, strict=True)):
        changed = "weights of all"
        flipped = ""
    losses = [t.holdout_loss(model) for t, model in zip(tasks, models, strict=True)]
    recovered = [t.recovered(loss) for t, loss in zip(tasks, losses, strict=True)]
    shares = ", ".join(f"{share:.0%}" for share in recovered)
    mean = np.mean(recovered)
    return f"| {label} | {changed} | {flipped} | {losses[0]:.4f} | {shares} | {mean:.0%} |"


class NoisyTask:
    """A data set with flipped labels, its model, and the hold-out losses with flipped and true labels."""

    def __init__(self, name: str, seed: int) -> None:
        d = getattr(data, name)()
        self.y, self.flips = data.flipped(d.y, seed=seed)
        self.val, self.holdout = d.halves()
        self.tracer = lt.Tracer(data.catboost(name).fit(d.X, self.y), d.X, self.y)
        self.before = self.holdout_loss(self.tracer.refit())
        self.ideal = self.holdout_loss(self.tracer.retrain(y=d.y))

    def holdout_loss(self, model: lt.RefittedModel | lt.RetrainedModel) -> float:
        return float(model.loss(*self.holdout).mean())

    def recovered(self, loss: float) -> float:
        """Return the share of the loss added by the flips that a model with this loss has undone."""
        return (self.before - loss) / (self.before - self.ideal)

    def clean(self, action: str) -> lt.Clean:
        found = lt.clean(self.tracer, *self.val, *self.holdout, action=action)
        assert found.improved, found.advice
        return found

    def detector(self, count: int) -> np.ndarray:
        """Return the rows whose label has the lowest probability in the noisy model."""
        p = self.tracer.refit().predict_proba(self.tracer.X_train)
        return np.argsort(p[np.arange(len(p)), self.y])[:count]


def removals(
    tracer: lt.Tracer, X: pd.DataFrame, y: np.ndarray, batch: int = 1000
) -> Iterator[lt.RetrainedModel]:
    """Yield models after one, two, three ... rounds of removals by influence on these rows, without end."""
    now = tracer
    keep = np.arange(tracer.n_rows)
    while True:
        harm = -now.influence(X, y, reduce="mean").change[:, 0]
        keep = np.delete(keep, np.argsort(-harm)[:batch])
        model = tracer.retrain(np.delete(np.arange(tracer.n_rows), keep))
        yield model
        now = tracer.follow(model)


def same_rows(tracer: lt.Tracer, X: pd.DataFrame, y: np.ndarray) -> lt.RetrainedModel:
    """Return the last of these models that lowers the loss of the rows used to choose."""
    best = tracer.retrain()
    for model in removals(tracer, X, y):
        if model.loss(X, y).mean() >= best.loss(X, y).mean():
            break
        best = model
    return best


def equal_numbers(task: NoisyTask) -> str:
    """Compare influence and Detector, with the number of rows given."""
    by_influence = list(islice(removals(task.tracer, *task.val), 5))
    counts = [len(model.without) for model in by_influence]
    by_detector = [task.tracer.retrain(task.detector(k)) for k in counts]
    lines = [
        "| rows removed | " + " | ".join(f"{k:,}" for k in counts) + " |",
        "| --- |" + " ---: |" * len(counts),
    ]
    for label, models in (
        ("rounds of 1,000 by influence", by_influence),
        ("Detector", by_detector),
    ):
        flipped = [f"{task.flips[model.without].mean():.0%}" for model in models]
        recovered = [f"{task.recovered(task.holdout_loss(model)):.0%}" for model in models]
        lines.append(f"| {label}: flipped | " + " | ".join(flipped) + " |")
        lines.append(f"| {label}: recovered | " + " | ".join(recovered) + " |")
    return "\n".join(lines)


def without_flips() -> str:
    """Return what `clean` does with the original labels, where there is little to clean."""
    lines = [
        "| | rounds | kept | change of the hold-out loss, 95 % interval | `clean` says |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for name in ("adult", "amazon"):
        d = getattr(data, name)()
        tracer = lt.Tracer(data.catboost(name).fit(d.X, d.y), d.X, d.y)
        (val, holdout) = d.halves()
        before = tracer.refit().loss(*holdout).mean()
        for action in ACTIONS:
            found = lt.clean(tracer, *val, *holdout, action=action)
            kept = sum(r.kept for r in found.rounds)
            change = "not looked at"
            if found.interval is not None:
                low, high = (x / before for x in found.interval)
                change = f"{found.effects.retrained[0] / before:+.1%} ({low:+.1%} to {high:+.1%})"
            says = f"change {len(found.rows):,} rows" if found.improved else "no improvement"
            lines.append(
                f"| {name.capitalize()}, {action} | {len(found.rounds)} | {kept} | {change} | {says} |"
            )
        change = same_rows(tracer, *val).loss(*holdout).mean() / before - 1
        lines.append(f"| {name.capitalize()}, same rows | | | {change:+.1%} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
