"""Cleaning Adult and Amazon with flipped labels: how much of the loss that the noise cost comes back."""

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
        parts += [f"### {name.capitalize()}", noisy(name)]
    return "\n\n".join([*parts, "### Without flipped labels", unspoilt()])


TEXT = """## Cleaning a training set

4,000 labels of Adult and of Amazon are flipped (the paper's set-up). `clean` chooses by one half of the test rows; all
losses are those of the other half, which chooses nothing. Recovered is the share of the loss that the flips cost which
is won back by retraining. *Detector* removes the rows whose label the noisy model itself believes least: as many as
`clean` removed, and the 4,000 it would take if the number of flips were known. *Same rows* are rounds of 1,000
removals in which the rows that choose a batch also say whether it helped, until it does not. Three draws of flips; the
losses are those of the first, the other numbers of all three."""


NUMBERS = """The same numbers of rows by influence and by Detector, without a rule to stop (first draw; all validation
rows choose):"""


def noisy(name: str) -> str:
    spoilt = [Spoilt(name, seed) for seed in SEEDS]
    first = spoilt[0]
    lines = [
        "| | rows changed | of them flipped | hold-out loss | recovered | mean |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        f"| noisy labels | | | {first.before:.4f} | | 0 % |",
        f"| true labels | | | {first.ideal:.4f} | | 100 % |",
    ]
    found = {action: [s.clean(action) for s in spoilt] for action in ACTIONS}
    for action, results in found.items():
        label = f'`clean`, "{action}"' + (", the default" if action == "remove" else "")
        lines.append(line(label, spoilt, [r.rows for r in results], [r.model for r in results]))
    counts = [len(r.rows) for r in found["remove"]]
    for label, most in (
        ("Detector, as many rows", counts),
        ("Detector, 4,000 rows", [4000] * len(SEEDS)),
    ):
        rows = [s.detector(k) for s, k in zip(spoilt, most, strict=True)]
        lines.append(
            line(
                label,
                spoilt,
                rows,
                [s.tracer.retrain(r) for s, r in zip(spoilt, rows, strict=True)],
            )
        )
    same = [same_rows(s.tracer, *s.val) for s in spoilt]
    lines.append(line("same rows", spoilt, [m.without for m in same], same))
    told = found["remove"][0]
    note = f'The first draw with "remove", after {len(told.rounds)} rounds. {told.advice}'
    head = [
        "| of | before | predicted | refitted | retrained |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    effects = [
        f"| {e['of']} | {e['before']:.4f} | {e['predicted']:+.4f} | {e['refitted']:+.4f} | {e['retrained']:+.4f} |"
        for e in told.effects.to_dict("records")
    ]
    return "\n".join([*lines, "", note, "", *head, *effects, "", NUMBERS, "", equal_numbers(first)])


def line(label: str, spoilt: list[Spoilt], rows: list[np.ndarray], models: list) -> str:
    changed = ", ".join(f"{len(r):,}" for r in rows)
    flipped = ", ".join(f"{s.flips[r].mean():.0%}" for s, r in zip(spoilt, rows, strict=True))
    if all(len(r) == len(s.y) for s, r in zip(spoilt, rows, strict=True)):
        changed = "weights of all"
        flipped = ""
    losses = [float(m.loss(*s.holdout).mean()) for s, m in zip(spoilt, models, strict=True)]
    back = [(s.before - x) / (s.before - s.ideal) for s, x in zip(spoilt, losses, strict=True)]
    each = ", ".join(f"{b:.0%}" for b in back)
    return f"| {label} | {changed} | {flipped} | {losses[0]:.4f} | {each} | {np.mean(back):.0%} |"


class Spoilt:
    """A data set with flipped labels, its model, and hold-out losses of this model and one of the true labels."""

    def __init__(self, name: str, seed: int) -> None:
        d = getattr(data, name)()
        self.y, self.flips = data.flipped(d.y, seed=seed)
        self.val, self.holdout = d.halves()
        self.tracer = lt.Tracer(data.catboost(name).fit(d.X, self.y), d.X, self.y)
        self.before = float(self.tracer.refit().loss(*self.holdout).mean())
        self.ideal = float(self.tracer.retrain(y=d.y).loss(*self.holdout).mean())

    def clean(self, action: str) -> lt.Clean:
        found = lt.clean(self.tracer, *self.val, *self.holdout, action=action)
        assert found.improved, found.advice
        return found

    def detector(self, count: int) -> np.ndarray:
        p = self.tracer.refit().predict_proba(self.tracer.X_train)
        return np.argsort(p[np.arange(len(p)), self.y])[:count]


def removals(
    tracer: lt.Tracer, X: pd.DataFrame, y: np.ndarray, batch: int = 1000
) -> Iterator[lt.RetrainedModel]:
    """Models after one, two, three ... rounds of removals by influence on these rows, which go on for ever."""
    now = tracer
    keep = np.arange(tracer.n_rows)
    while True:
        harm = -now.influence(X, y, reduce="mean").change[:, 0]
        keep = np.delete(keep, np.argsort(-harm)[:batch])
        model = tracer.retrain(np.delete(np.arange(tracer.n_rows), keep))
        yield model
        now = tracer.follow(model)


def same_rows(tracer: lt.Tracer, X: pd.DataFrame, y: np.ndarray) -> lt.RetrainedModel:
    """The last of these models that lowers the loss of the rows that chose."""
    best = tracer.retrain()
    for model in removals(tracer, X, y):
        if model.loss(X, y).mean() >= best.loss(X, y).mean():
            break
        best = model
    return best


def equal_numbers(s: Spoilt) -> str:
    """Influence and Detector, with the number of rows given."""
    models = list(islice(removals(s.tracer, *s.val), 5))
    counts = [len(m.without) for m in models]
    lines = [
        "| rows removed | " + " | ".join(f"{k:,}" for k in counts) + " |",
        "| --- |" + " ---: |" * len(counts),
    ]
    by_detector = [s.tracer.retrain(s.detector(k)) for k in counts]
    for label, each in (("rounds of 1,000 by influence", models), ("Detector", by_detector)):
        flipped = [s.flips[m.without].mean() for m in each]
        back = [(s.before - float(m.loss(*s.holdout).mean())) / (s.before - s.ideal) for m in each]
        lines.append(f"| {label}: flipped | " + " | ".join(f"{x:.0%}" for x in flipped) + " |")
        lines.append(f"| {label}: recovered | " + " | ".join(f"{x:.0%}" for x in back) + " |")
    return "\n".join(lines)


def unspoilt() -> str:
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
