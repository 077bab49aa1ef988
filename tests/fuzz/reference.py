"""The oracle's answers for a case, each with the error that rounding and finite differences may leave in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import oracle

ROUNDING = 1e-7  # of single precision, in which libraries keep gradients, weights or scores
NO_L2 = 1e-9  # libraries have a little where the user has none
AMPLIFIED = 20  # times the effect of one draw of rounding errors


@dataclass(frozen=True)
class Answer:
    """Numbers of the oracle, and the largest error that each may have."""

    value: np.ndarray
    error: np.ndarray


def rounding(rng, shape):
    """Return factors of random rounding errors."""
    return 1 + ROUNDING * rng.choice([-1.0, 1.0], shape)


@dataclass(frozen=True)
class Reference:
    """A case as the oracle sees it: structure, labels, weights, and the steps of the test rows."""

    structure: oracle.Structure
    test_steps: list
    y: np.ndarray
    w: np.ndarray
    y_test: np.ndarray
    has_classes: bool
    seed: int | None = None  # of rounding errors; None: there are none

    @property
    def has_splits(self):
        return any(
            len(np.unique(ids)) > 1 or L > 1 for step in self.structure.steps for ids, L, _ in step
        )

    def rows_without_slope(self):
        """Return (n,) whether a row has weight zero in a leaf without any weight and without l2.

        Any weight moves such a leaf from zero to -g / h at once."""
        s = self.structure
        found = np.zeros(len(self.y), bool)
        if s.min_hessian or (
            s.nodes and s.nodes[0][0].smoothed
        ):  # the leaf stays at zero, or at the value of its parent
            return found
        w = self.w * s.class_weight
        lam = s.l2 * w.mean() if s.l2_scales else s.l2
        for t, step in enumerate(s.steps):
            for r, (ids, L, _) in enumerate(step):
                drawn = np.ones(len(w)) if s.sample is None else s.sample[t][r]
                l2 = lam if s.more_l2 is None else lam + s.more_l2[t][r]
                jumps = (np.bincount(ids, w * drawn, L) == 0) & (l2 < NO_L2)
                found |= jumps[ids] & (self.w == 0) & (drawn * s.class_weight > 0)
        return found

    def rounded(self, seed):
        """Return the same with rounding errors in labels, each and all alike, weights and learning rates.

        Rates of even seeds are off to the other side than those of odd ones: where a leaf fits its only
        row exactly, scores then lie on both sides of the label."""
        rng = np.random.default_rng(seed)
        y = self.y
        if not self.has_classes:
            y = y * rounding(rng, y.shape) * rounding(rng, ())
        T = len(self.structure.steps)
        lr = (
            np.broadcast_to(self.structure.lr, T)
            * rounding(np.random.default_rng(0), T) ** (-1) ** seed
        )
        w = self.w * rounding(rng, len(self.w))
        return replace(self, structure=replace(self.structure, lr=lr), y=y, w=w, seed=seed)

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
        y = self.y[keep]
        if self.seed is not None and structure.rounds_residuals:
            # Other rounding than in a run with all rows, so that it does not cancel in a difference. That of a
            # residual is of the size of label or score, which may lie far apart at the start.
            size = np.maximum(np.abs(y), np.abs(structure.base).max())
            y = y + size * (rounding(np.random.default_rng(self.seed + 10), y.shape) - 1)
        fitted = oracle.refit(structure, y, self.w[keep])
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
        """Return what a function says of this reference, with the effect of rounding errors.

        These must not carry a leaf over a bound that it is exactly at."""
        near = np.asarray(of(self))
        spread = [np.abs(np.asarray(of(self.rounded(seed))) - near) for seed in (1, 2)]
        value = of(replace(self, structure=self.structure.strict()))
        return Answer(np.asarray(value), AMPLIFIED * np.maximum(*spread))

    def slope(self, of, h):
        """Return the derivative of ``of(reference, e)`` at e = 0, and its error.

        Where derivatives to both sides differ, the error includes both."""
        f = {e: of(self, e * h) for e in (-2, -1, -0.5, 0, 0.5, 1, 2)}
        value = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)
        nearer = (8 * (f[0.5] - f[-0.5]) - (f[1] - f[-1])) / (6 * h)
        rounding = 1e-14 * abs(f[0]) / h
        error = 3 * abs(value - nearer) + 10 * rounding
        # Both steps are too long where the function bends within a small part of them.
        tiny = 1e-5 * h
        close = (of(self, tiny) - of(self, -tiny)) / (2 * tiny)
        error += max(0.0, abs(value - close) - 100 * 1e-14 * abs(f[0]) / tiny)
        for again in (self.rounded(1), self.rounded(2)):
            error += AMPLIFIED * abs((of(again, h) - of(again, -h)) - (f[1] - f[-1])) / (2 * h)
        # Slopes to both sides differ by the second derivative times h, which halves with h, and by
        # a kink, as of a leaf whose gradient is exactly l1, which does not. Either slope is right.
        apart = (f[1] - 2 * f[0] + f[-1]) / h
        nearer_apart = (f[0.5] - 2 * f[0] + f[-0.5]) / (h / 2)
        error += abs(2 * nearer_apart - apart)
        return value, error


def reference_of(case, has_classes):
    """Return the reference of a case, read from its library."""
    structure, test_steps = case.structure(case)
    return Reference(
        structure, test_steps, case.data.codes, case.w, case.data.test_codes, has_classes
    )
