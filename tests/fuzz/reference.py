"""The oracle's answers for a case, each with the error that rounding and finite differences may leave in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import oracle

ROUNDING = 1e-7  # of single precision, in which libraries keep gradients, weights or scores
AMPLIFIED = 20  # times the effect of one draw of rounding errors


@dataclass(frozen=True)
class Answer:
    """Numbers of the oracle, and the largest error that each may have."""

    value: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class Reference:
    """A case as the oracle sees it: structure, labels, weights, and the steps of the test rows."""

    structure: oracle.Structure
    test_steps: list
    y: np.ndarray
    w: np.ndarray
    y_test: np.ndarray
    has_classes: bool

    @property
    def has_splits(self):
        return any(len(np.unique(ids)) > 1 or L > 1 for step in self.structure.steps for ids, L, _ in step)

    def rounded(self, seed):
        """Return the same with rounding errors in labels, weights and learning rates."""
        rng = np.random.default_rng(seed)

        def noise(shape):
            return 1 + ROUNDING * rng.choice([-1.0, 1.0], shape)

        y = self.y if self.has_classes else self.y * noise(len(self.y))
        T = len(self.structure.steps)
        structure = replace(self.structure, lr=np.broadcast_to(self.structure.lr, T) * noise(T))
        return replace(self, structure=structure, y=y, w=self.w * noise(len(self.w)))

    def fitted(self, y=None, w=None):
        return oracle.refit(self.structure, self.y if y is None else y, self.w if w is None else w)

    def scores(self, y=None, w=None):
        """Return the scores (m, K) of the test rows after a refit."""
        return oracle.predict(self.structure, self.fitted(y, w), self.test_steps)

    def own_scores(self, y=None):
        """Return the scores (n, K) of the training rows, without scores that the user gave them."""
        return oracle.predict(self.structure, self.fitted(y), self.structure.steps)

    def scores_without(self, rows):
        keep = np.setdiff1d(np.arange(len(self.y)), rows)
        structure = self.structure.rows(keep)
        fitted = oracle.refit(structure, self.y[keep], self.w[keep])
        return oracle.predict(structure, fitted, self.test_steps)

    def losses(self, scores):
        return self.structure.loss_of(scores, self.y_test)

    def loss(self, y=None, w=None):
        """Return the mean loss of the test rows."""
        return self.losses(self.scores(y, w)).mean()

    def loss_moving(self, row, target, share):
        """Return the mean loss if a share of a row's label moves to another class."""
        n = len(self.y)
        structure = self.structure.rows(np.r_[np.arange(n), row])
        w = np.r_[self.w, share * self.w[row]]
        w[row] *= 1 - share
        fitted = oracle.refit(structure, np.r_[self.y, target], w, n)
        return self.losses(oracle.predict(structure, fitted, self.test_steps)).mean()

    def answer(self, of):
        """Return what a function says of this reference, with the effect of rounding errors."""
        value = np.asarray(of(self))
        spread = [np.abs(np.asarray(of(self.rounded(seed))) - value) for seed in (1, 2)]
        return Answer(value, AMPLIFIED * np.maximum(*spread))

    def slope(self, of, h):
        """Return the derivative of ``of(reference, e)`` at e = 0.

        Its error is unbounded where derivatives to both sides differ."""

        def both(r):
            return oracle.slope(lambda e: of(r, e), h)

        value = both(self)
        f0, up, down = (of(self, e) for e in (0.0, h / 4, -h / 4))
        kink = abs((up - f0) - (f0 - down)) / (h / 4)
        # The second derivative explains a part of that: it shrinks with h.
        up, down = (of(self, e) for e in (h / 8, -h / 8))
        smaller = abs((up - f0) - (f0 - down)) / (h / 8)
        rounding = 1e-14 * abs(f0) / h
        error = 3 * abs(value - oracle.slope(lambda e: of(self, e), h / 2)) + 10 * rounding
        error += AMPLIFIED * abs(both(self.rounded(1)) - value)
        if smaller > 0.75 * kink and smaller > 1e-4 * abs(value) + 30 * rounding:
            error = np.inf
        return value, error


def reference_of(case, has_classes):
    """Return the reference of a case, read from its library."""
    structure, test_steps = case.structure(case)
    return Reference(structure, test_steps, case.data.codes, case.w, case.data.test_codes, has_classes)
