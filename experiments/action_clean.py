"""Cleaning Adult and Amazon with flipped labels: how much of the loss that the noise cost comes back."""

from __future__ import annotations

import data
import numpy as np

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
`clean` removed, and the 4,000 it would take if the number of flips were known. *Same rows* are rounds of removals, too,
but the same validation rows choose a batch and decide whether it helped, until it does not. Three draws of flips."""


def noisy(name: str) -> str:
    spoilt = [Spoilt(name, seed) for seed in SEEDS]
    found = {action: [s.clean(action) for s in spoilt] for action in ACTIONS}
    lines = ["| | rows changed | of them flipped | hold-out loss | recovered |", "| --- | --- | --- | --- | --- |"]
    first = spoilt[0]
    lines.append(f"| noisy labels, true labels | | | {first.before:.4f}, {first.ideal:.4f} | 0 %, 100 % |")
    for action, results in found.items():
        label = f'`clean`, action="{action}"' + (" (default)" if action == "remove" else "")
        lines.append(line(label, spoilt, [r.rows for r in results], [r.model for r in results]))
    counts = [len(r.rows) for r in found["remove"]]
    for label, most in (("Detector, as many rows", counts), ("Detector, 4,000 rows", [4000] * len(SEEDS))):
        rows = [s.detector(k) for s, k in zip(spoilt, most, strict=True)]
        lines.append(line(label, spoilt, rows, [s.tracer.retrain(r) for s, r in zip(spoilt, rows, strict=True)]))
    same = [s.same_rows() for s in spoilt]
    lines.append(line("same rows", spoilt, [m.without for m in same], same))
    told = found["remove"][0]
    effects = told.effects.to_dict("records")
    shown = [f"| {e['of']} | {e['before']:.4f} | {e['predicted']:+.4f} | {e['refitted']:+.4f} | {e['retrained']:+.4f} |"
             for e in effects]  # fmt: skip
    head = ["| of | before | predicted | refitted | retrained |", "| --- | --- | --- | --- | --- |"]
    note = f'The first draw with action="remove", {len(told.rounds)} rounds: {told.advice}'
    return "\n".join([*lines, "", note, "", *head, *shown])


def line(label: str, spoilt: list[Spoilt], rows: list[np.ndarray], models: list) -> str:
    changed = ", ".join(f"{len(r):,}" for r in rows)
    flipped = ", ".join(f"{s.flips[r].mean():.0%}" for s, r in zip(spoilt, rows, strict=True))
    losses = [float(m.loss(*s.holdout).mean()) for s, m in zip(spoilt, models, strict=True)]
    back = ", ".join(f"{(s.before - x) / (s.before - s.ideal):.0%}" for s, x in zip(spoilt, losses, strict=True))
    return f"| {label} | {changed} | {flipped} | {', '.join(f'{x:.4f}' for x in losses)} | {back} |"


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

    def same_rows(self, batch: float = 0.03) -> lt.RetrainedModel:
        best, tracer = self.tracer.retrain(), self.tracer
        while True:
            harm = -tracer.influence(*self.val, reduce="mean").change[:, 0]
            rows = best.rows.keep[np.argsort(-harm)[: round(batch * len(harm))]]
            model = self.tracer.retrain(np.append(best.without, rows))
            if model.loss(*self.val).mean() >= best.loss(*self.val).mean():
                return best
            best, tracer = model, self.tracer.follow(model)


def unspoilt() -> str:
    lines = ["| | rounds | kept | change of the hold-out loss, 95 % interval | `clean` says |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for name in ("adult", "amazon"):
        d = getattr(data, name)()
        tracer, (val, holdout) = lt.Tracer(data.catboost(name).fit(d.X, d.y), d.X, d.y), d.halves()
        for action in ACTIONS:
            found = lt.clean(tracer, *val, *holdout, action=action)
            kept = sum(r.kept for r in found.rounds)
            interval = "not looked at" if found.interval is None else "{:+.4f} to {:+.4f}".format(*found.interval)
            says = f"{len(found.rows):,} rows" if found.improved else "no improvement"
            lines.append(f"| {name.capitalize()}, {action} | {len(found.rounds)} | {kept} | {interval} | {says} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
