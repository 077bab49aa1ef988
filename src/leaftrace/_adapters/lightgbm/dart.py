"""The trees that LightGBM's DART dropped, drawn again from its seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import UnsupportedModel
from ..._model.ensemble import BASE
from .model import ParsedModel

Moves = list[list[tuple[int, float]]]


def refuse_unfinished(parsed: ParsedModel, *, first_is_empty: bool) -> None:
    """Raise an error for models whose drops are not known, or were not taken back.

    ``first_is_empty``: no tree of the first step has a split
    """
    if first_is_empty:
        raise UnsupportedModel(
            "the first tree of this DART model has no split, and the model does not record how often LightGBM "
            "tried again, which decides the trees that were dropped; train with fewer constraints on splits."
        )
    negative = sum(tree.shrinkage < 0 for tree in parsed.trees)
    if negative:
        raise UnsupportedModel(
            f"LightGBM found no split while trees of this DART model were dropped, and left {negative} of its "
            f"{len(parsed.trees)} trees with the opposite sign, so that its predictions are wrong; train with fewer "
            "rounds, or fewer constraints on splits."
        )


def dart_schedule(params: dict[str, Any], steps: int, folded: bool) -> tuple[F64, Moves]:
    """Learning rate of each step, and the moves of the scores.

    Trees go out before a step and come back smaller after it. ``folded``: the first trees hold the
    starting score, so it goes with them.
    """
    state = _DartState(params, steps)
    rates = np.empty(steps)
    moves: Moves = []
    returning: dict[int, float] = {}
    for t in range(steps):
        dropped = state.draw_dropped(t)
        leaving = {i: -state.factors[i] for i in dropped}
        moves.append(_net_moves(t, returning, leaving, folded))
        rates[t] = state.add_step(t, dropped)
        returning = {i: state.factors[i] for i in dropped}
    return rates, [*moves, _net_moves(steps, returning, {}, folded)]


class _DartState:
    """DART between two steps.

    ``factors``  (steps,) factor of each step's trees after all drops so far
    ``weights``  (steps,) the numbers that chances to be dropped are in proportion to; their sum is
                 kept as ``total``, with LightGBM's rounding
    """

    def __init__(self, params: dict[str, Any], steps: int) -> None:
        self.rate = float(params["learning_rate"])
        self.drop_rate = params["drop_rate"]
        self.skip_drop = params["skip_drop"]
        self.max_drop = int(params["max_drop"])
        self.uniform = bool(params["uniform_drop"])
        self.like_xgboost = bool(params["xgboost_dart_mode"])
        self.factors = np.ones(steps)
        self.weights = np.zeros(steps)
        self.total = 0.0
        self._x = int(params["drop_seed"]) & 0xFFFFFFFF

    def _random(self) -> float:
        """The next random number from 0 to 1."""
        self._x = (214013 * self._x + 2531011) & 0xFFFFFFFF
        return (self._x >> 16 & 0x7FFF) / 32768

    def draw_dropped(self, t: int) -> list[int]:
        """The steps that step t leaves out."""
        skipped = self._random() < self.skip_drop
        if skipped or t == 0:
            return []
        dropped: list[int] = []
        for i, chance in enumerate(self._chances(t)):
            if self._random() < chance:
                dropped.append(i)
                # A limit of 0 stops after the first, a negative one never.
                if len(dropped) >= self.max_drop >= 0:
                    break
        return dropped

    def _chances(self, t: int) -> F64:
        """(t,) chance of each step before t to be dropped."""
        chance = self.drop_rate
        if self.uniform:
            if self.max_drop > 0:
                chance = min(chance, self.max_drop / t)
            return np.full(t, chance)
        per_weight = t / self.total
        if self.max_drop > 0:
            chance = min(chance, self.max_drop * per_weight / self.total)
        return chance * self.weights[:t] * per_weight

    def add_step(self, t: int, dropped: list[int]) -> float:
        """Make the dropped trees smaller and add step t; returns its learning rate."""
        k = len(dropped)
        new_tree = self.rate if self.like_xgboost else 1
        shrink = k / (k + new_tree)
        for i in dropped:
            self.factors[i] *= shrink
            self.total -= self.weights[i] * (1 / (k + new_tree))
            self.weights[i] *= shrink
        rate = self._learning_rate(k)
        self.weights[t] = rate
        self.total += self.weights[t]
        return rate

    def _learning_rate(self, dropped: int) -> float:
        """Learning rate of a step that drops this many."""
        if not self.like_xgboost:
            return self.rate / (1 + dropped)
        return self.rate / (self.rate + dropped) if dropped else self.rate


def _net_moves(
    t: int, returning: dict[int, float], leaving: dict[int, float], folded: bool
) -> list[tuple[int, float]]:
    """The moves before step t: the step before is added, and dropped trees come back or go out."""
    changes = {i: returning.get(i, 0.0) + leaving.get(i, 0.0) for i in {**returning, **leaving}}
    net = {**changes, BASE: changes.get(0, 0.0)} if folded else dict(changes)
    if t:
        net[t - 1] = net.get(t - 1, 0.0) + 1.0
    return [(i, float(change)) for i, change in sorted(net.items()) if change]
