"""Training with soft choices of splits, written plainly: what `StructureInfluence` differentiates.

The trees are fixed. Tree t gives a row, besides its leaf's value, for each node that holds the row

    sum over candidate splits s of (pi_s - pi_s at the training's own weights) rate value of the row's side under s

with values and temperatures from the training's own weights, and

    4 (share of the node) sum over s of pi_s rate (value of the side - value at the training's own weights)

with probabilities and shares from the training's own weights. There is an l2 of at least 16 average rows
in gains and values of sides. Where gains and values have different denominators, the ratio of the two
is that of the training's own weights. Leaves go a share of their way from the training's own value.

The share of a node is the probability that it is the first to put apart two rows of a leaf, drawn with
replacement, in the mean over the rows below it. A node does so with the probability that two draws of its
split differ, times the probability that a draw sends the two rows to different sides. The share of the
leaves of a tree is the probability that no node does, in the mean over its leaves.

Everything is a loop over nodes and candidates, each candidate a mask of rows; nothing is shared with the
library but the description of the model (leaves, nodes, loss, leaf rule).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

F64 = np.ndarray
ROUNDING = 1e-9  # of sums and gains; it does not decide which candidates are allowed
EDGE = 1e-4  # steps of the weights must not carry a side that is exactly at a limit over it


@dataclass
class Side:
    """Sums over the training rows of one side: G, denominators of gain and value, rows; (O,) each."""

    G: F64
    Q: F64
    R: F64
    rows: int

    def pull(self, rule: Any) -> F64:
        return np.sign(self.G) * np.maximum(np.abs(self.G) - rule.l1, 0)

    def step(self, D: F64, lam: float, rule: Any, times: Any = 1.0) -> F64:
        steps = [-p / (d + lam) if d + lam > 0 else 0.0
                 for p, d in zip(self.pull(rule), D, strict=True)]  # fmt: skip
        return np.clip(times * np.array(steps), -rule.max_step, rule.max_step)


def column_masks(values: F64, kind: str, order_key: Any) -> Iterator[F64]:
    """Masks of rows that a candidate of a column sends left, over training and test rows."""
    missing = np.isnan(values)
    distinct = np.unique(values[~missing])
    if kind == "one-hot":
        categories = [*distinct, *([np.nan] if missing.any() else [])]
        masks = [missing if np.isnan(c) else values == c for c in categories]
        yield from masks if len(masks) > 2 else masks[:1]
        return
    if kind == "sorted":
        groups = [values == c for c in distinct] + ([missing] if missing.any() else [])
        groups = sorted((g for g in groups if order_key(g) is not None), key=order_key)
        left = np.zeros(len(values), bool)
        for group in groups[:-1]:
            left = left | group
            yield left
        return
    thresholds = [~missing & (values <= threshold) for threshold in distinct[:-1]]
    yield from thresholds
    if kind == "missing" and missing.any():
        yield ~missing
        # A candidate that differs from one before by rows of weight zero alone is not another one.
        yield from (missing | left for left in thresholds)


def derivatives(e: Any, A: F64) -> tuple[F64, F64]:
    """(n, K) first and second derivatives of the loss, not rounded as boosters round them."""
    name = type(e.loss).__name__
    if name.startswith("Logistic"):
        p = 1 / (1 + np.exp(-A))
        return p - e.y.reshape(len(A), -1), p * (1 - p)
    if name.startswith("Softmax"):
        p = np.exp(A - A.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p - np.eye(A.shape[1])[e.y.astype(int)], p * (1 - p)
    state = e.loss.state(A)
    return e.loss.gradient(state, e.y), np.einsum("nkk->nk", e.loss.hessian(state, e.y))


class SoftProgram:
    """The soft program of a tracer, for test rows X.

    ``search``       the description of the splits
    ``values``       (n + m, d) columns of training and test rows
    ``leaves``       (trees, n + m)
    ``temperature``

    ``w``: (n,) weights to take as the training's own; None for those of the model. ``whole_leaves``:
    leaves go all their way.
    """

    def __init__(
        self,
        tracer: Any,
        X: Any,
        temperature: float,
        w: F64 | None = None,
        whole_leaves: bool = False,
    ) -> None:
        source = tracer.engine.source
        self.e = source.ensemble if w is None else replace(source.ensemble, w=w)
        self.search = source.split_search()
        self.n = self.e.n_rows
        self.values = np.concatenate([self.search.values, source.split_columns(X)])
        test_leaves, offset = source.rows(X)
        assert offset is None
        self.leaves = np.concatenate([self.e.leaves, test_leaves], axis=1).astype(int)
        self.temperature = temperature
        # At least as much as 16 rows of average weight and second derivative.
        h = (
            np.ones((self.n, 1))
            if self.search.by_weight
            else derivatives(self.e, self.scores_at_start())[1]
        )
        row = (self.e.w[:, None] * h).mean(axis=1).sum() / np.count_nonzero(self.e.w)
        self.l2 = max(self.e.lam, 16 * float(row))
        self.whole_leaves = whole_leaves
        self.stay: dict[int, dict[int, float]] = {}
        self.own_share: dict[int, float] = {}
        self.own_leaves: dict[tuple[int, int], F64] = {}
        self.too_light: dict[tuple[int, int], F64] = {}
        self.own: dict[tuple[int, int], Any] = {}
        self.scores(self.e.w)  # the training's own point

    def scores_at_start(self) -> F64:
        return np.tile(self.e.base, (self.n, 1))

    # ---- the trees ----

    def node_rows(self, r: int) -> list[tuple[F64, F64]]:
        """For each inner node of tree r: masks of the rows in it, and of those it sends left."""
        nodes = self.search.trees[r]
        N = len(nodes.left)
        first = int(self.e.tree_leaves[r] - self.e.tree_offset[r])
        inside = [np.zeros(self.leaves.shape[1], bool)] * N
        inside += [self.leaves[r] - first == leaf for leaf in range(N + 1)]
        for v in reversed(range(N)):
            inside[v] = inside[nodes.left[v]] | inside[nodes.right[v]]
        return [(inside[v], inside[nodes.left[v]]) for v in range(N)]

    def side(self, mask: F64, terms: dict[str, F64]) -> Side:
        rows = mask[: self.n]
        return Side(*(terms[name][rows].sum(axis=0) for name in ("G", "Q", "R")),
                    int((terms["w"][rows] > 0).sum()))  # fmt: skip

    # ---- one choice ----

    def candidates(
        self, nodes: list[F64], terms: dict[str, F64]
    ) -> Iterator[tuple[int, list[tuple[F64, F64]]]]:
        """(column, for each node the masks left and right) of every candidate that is allowed."""
        lone = len(nodes) == 1
        for f, kind in enumerate(self.search.columns):
            lam = self.lam(f)

            def key(group: F64, lam: float = lam) -> float | None:
                side = self.side(group & nodes[0], terms)
                return None if not side.rows else float((side.G / (side.Q + lam)).sum())

            seen = set()
            for mask in column_masks(self.values[:, f], kind, key):
                split = [(node & mask, node & ~mask) for node in nodes]
                sides = [tuple(self.side(m, terms) for m in pair) for pair in split]
                counted = terms["w"] > 0
                both = [
                    np.concatenate([pair[i][: self.n] & counted for pair in split]).tobytes()
                    for i in (0, 1)
                ]
                rows = [sum(s[i].rows for s in sides) for i in (0, 1)]
                if min(rows) == 0 or seen & set(both):
                    continue
                seen |= set(both)
                of_node = self.side(nodes[0], terms)
                limits = [
                    self.rows_of(s, of_node) < self.search.min_rows
                    or s.Q.mean() < (1 - ROUNDING) * self.search.min_hessian
                    for s in sides[0]
                ]
                if lone and any(limits):
                    continue
                yield f, split

    def rows_of(self, side: Side, node: Side) -> float:
        if self.search.rows_estimated:
            return np.floor(side.Q.sum() / node.Q.sum() * node.rows + 0.5 + ROUNDING)
        return side.rows

    def lam(self, f: int, l2: Any = None) -> float:
        is_sorted = f >= 0 and self.search.columns[f] == "sorted"
        return (self.l2 if l2 is None else l2) + (self.search.category_l2 if is_sorted else 0.0)

    def step_of(self, side: Side, D: F64, lam: float, times: Any = 1.0) -> F64:
        """(O,) the step of a side; zero for outputs that have too little."""
        steps = side.step(D, lam, self.e.rule, times)
        limit = self.search.output_hessian
        return np.where((limit > 0) & (limit - EDGE > side.Q), 0.0, steps)

    def gain(
        self, split: list[tuple[F64, F64]], f: int, terms: dict[str, F64], l2: Any = None
    ) -> float:
        """Twice what steps improve the second-order approximation of the loss by. ``l2``: None for that of choices"""
        lam = self.lam(f, l2)
        return sum(self.side_gain(self.side(m, terms), lam) for pair in split for m in pair)

    def side_gain(self, side: Side, lam: float) -> float:
        s = self.step_of(side, side.Q, lam)
        return -float((2 * s * side.pull(self.e.rule) + s**2 * (side.Q + lam)).sum())

    def choice(self, t: int, r: int, number: int, terms: dict[str, F64], rate: float) -> F64:
        """(n + m, O) what a soft choice adds to the scores of all rows."""
        tree = self.search.trees[r]
        members = np.flatnonzero(tree.choice == number)
        every = self.node_rows(r)
        nodes = [every[v][0] for v in members]
        taken = [(every[v][1], every[v][0] & ~every[v][1]) for v in members]
        out = np.zeros((self.leaves.shape[1], terms["G"].shape[1]))
        if (r, number) not in self.own:
            found = self.fix_choice(nodes, taken, int(tree.column[members[0]]), terms)
            shares = [
                self.node_share(r, node, [s[k][0] for _, s in found[0]], found[2], terms["w"])
                if len(found[2])
                else 0.0
                for k, node in enumerate(nodes)
            ]
            self.own[r, number] = (*found, shares)
        candidates, tau, own_chance, child_values, shares = self.own[r, number]
        if not candidates or not tau > 0:
            return out
        chance = self.chances(candidates, terms, tau)
        for (f, split), p, p0, values in zip(
            candidates, chance, own_chance, child_values, strict=True
        ):
            for pair, pair_values, share in zip(split, values, shares, strict=True):
                for mask, (value, ratio) in zip(pair, pair_values, strict=True):
                    side = self.side(mask, terms)
                    now = self.step_of(side, side.Q, self.lam(f), ratio)
                    out[mask] += (p - p0) * rate * value
                    out[mask] += 4 * share * p0 * rate * (now - value)
        return out

    def fix_choice(self, nodes: list[F64], taken: Any, column: int, terms: dict[str, F64]) -> Any:
        """Candidates, temperature, probabilities and child values at the training's own weights.

        With each value comes the ratio of the denominators of gain and value."""
        candidates = list(self.candidates(nodes, terms))
        if self.search.columns_sampled:
            better = set()
            for l2 in (self.l2, self.e.lam):
                whole = sum(self.side_gain(self.side(node, terms), l2) for node in nodes)
                own = self.gain(taken, column, terms, l2)
                most = own + 0.02 * (own - whole) + ROUNDING * own
                better |= {f for f, split in candidates if self.gain(split, f, terms, l2) > most}
            candidates = [(f, s) for f, s in candidates if f == column or f not in better]
        spread = 0.0
        for mask in (m for pair in taken for m in pair):
            s = self.side(mask, terms)
            slope = self.step_of(s, s.Q, self.lam(column))
            rows = np.flatnonzero(mask[: self.n])
            spread += sum(
                float(-2 * slope @ terms["G"][i] - slope**2 @ terms["Q"][i]) ** 2 for i in rows
            )
        tau = self.temperature * np.sqrt(spread / 2)
        values = [
            [
                tuple(
                    (self.step_of(s, s.R, self.lam(f)), (s.Q + self.lam(f)) / (s.R + self.lam(f)))
                    for s in (self.side(m, terms) for m in pair)
                )
                for pair in split
            ]
            for f, split in candidates
        ]
        chance = self.chances(candidates, terms, tau) if candidates and tau > 0 else []
        return candidates, tau, chance, values

    def chances(self, candidates: Any, terms: dict[str, F64], tau: float) -> F64:
        gains = np.array([self.gain(split, f, terms) for f, split in candidates])
        weights = np.exp((gains - gains.max()) / tau)
        return weights / weights.sum()

    # ---- the whole training ----

    def scores(self, w: F64) -> F64:
        """(m, K) scores of the test rows of the program at weights w (n,) of the training rows."""
        e = self.e
        all_rows = self.leaves.shape[1]
        slope = e.rule.l2 / self.n if e.rule.l2_scales else 0.0
        self.leaf_lam = e.lam + slope * float((w - e.w).sum())  # CatBoost rounds it
        A = np.tile(self.start(w), (all_rows, 1))
        finished = A.copy()
        for t in range(e.n_steps):
            change = self.step(t, A[: self.n], w)
            finished += e.factors[t] * change
            if not e.independent:
                A = finished.copy()
        return finished[self.n :]

    def start(self, w: F64) -> F64:
        """(K,) the starting score to first order; boosters round it, so differences of it are noise."""
        e = self.e
        if e.base_rule is None:
            return e.base.astype(float)
        assert e.base_factor is None
        effects = e.base_rule.effects(e.loss, e.y, e.w, e.y)[0]  # (n, K)
        return e.base + (w - e.w) @ effects

    def step(self, t: int, A: F64, w: F64) -> F64:
        """(n + m, K) values that the trees of a step give to all rows."""
        e = self.e
        g, h = derivatives(e, A)
        out = np.zeros((self.leaves.shape[1], e.n_outputs))
        trees = range(len(e.first_output))[e.trees(t)]
        for r in trees[:1] if self.search.joint else trees:
            O = e.n_outputs if self.search.joint else e.leaf_outputs
            outputs = slice(int(e.first_output[r]), int(e.first_output[r]) + O)
            drawn = np.ones(self.n) if e.sample is None else e.sample[r]
            wt = (w * drawn)[:, None]
            ones = np.ones_like(g[:, outputs])
            terms = {
                "G": wt * g[:, outputs],
                "Q": wt * (ones if self.search.by_weight else h[:, outputs]),
                "R": wt * (h[:, outputs] if e.rule.newton else ones),
                "w": wt[:, 0],
            }
            tree = self.search.trees[r]
            for number in range(int(tree.choice.max(initial=-1)) + 1):
                out[:, outputs] += self.choice(t, r, number, terms, e.rate(t))
            out[:, outputs] += self.leaf_values(r, terms, A, w * drawn, e.rate(t))
        return out

    def leaf_values(self, r: int, terms: dict[str, F64], A: F64, w: F64, rate: float) -> F64:
        """(n + m, O) leaf values by the leaf rule, for leaves of one Newton or gradient step."""
        e = self.e
        assert e.rule.iterations == 1
        assert e.step_nodes is None
        assert e.fixed is None
        out = np.zeros((self.leaves.shape[1], terms["G"].shape[1]))
        for leaf in np.unique(self.leaves[r]):
            mask = self.leaves[r] == leaf
            s = self.side(mask, terms)
            lam = self.leaf_lam + (0 if e.leaf_l2 is None else e.leaf_l2[e.tree_offset[r] + leaf])
            step = s.step(s.R, lam, e.rule)
            if e.leaf_outputs > 1 and e.rule.newton and not e.rule.diagonal:
                state = e.loss.state(A)
                h = np.einsum(
                    "n,nab->ab", w[mask[: self.n]], e.loss.hessian(state, e.y)[mask[: self.n]]
                )
                step = -np.linalg.solve(h + lam * np.eye(len(step)), s.G)
            step = np.clip(step, -e.rule.max_step, e.rule.max_step)
            step[self.too_light.setdefault((r, leaf), e.rule.min_hessian > s.R)] = 0.0
            own = self.own_leaves.setdefault((r, leaf), step)
            out[mask] = rate * (own + self.leaf_share(r, terms) * (step - own))
        return out

    # ---- how far values go ----

    def leaf_share(self, r: int, terms: dict[str, F64]) -> float:
        """The share of the way that the leaves of tree r go, from the training's own weights."""
        if r not in self.own_share:
            stay = self.stay.get(r, {})
            rows = np.flatnonzero(terms["w"] > 0)
            kept = [stay.get(leaf, 1.0) for leaf in set(self.leaves[r, rows].tolist())]
            self.own_share[r] = 1.0 if self.whole_leaves or not kept else float(np.mean(kept))
        return self.own_share[r]

    def node_share(self, r: int, node: F64, lefts: list[F64], chance: F64, w: F64) -> float:
        """The share of a node, whose leaves lose what its choice puts apart.

        ``lefts``: masks of the rows that each candidate sends left."""
        stay = self.stay.setdefault(r, {})
        rows = [i for i in range(self.n) if node[i] and w[i] > 0]
        lost = 0.0
        for leaf in {self.leaves[r, i] for i in rows}:
            own = [i for i in rows if self.leaves[r, i] == leaf]
            pairs = [
                sum(p for p, left in zip(chance, lefts, strict=True) if left[i] != left[j])
                for i in own
                for j in own
            ]
            apart = (1 - float((chance**2).sum())) * float(np.mean(pairs))
            lost += len(own) * stay.get(leaf, 1.0) * apart
            stay[leaf] = stay.get(leaf, 1.0) * (1 - apart)
        return 0.0 if self.whole_leaves or not rows else lost / len(rows)
