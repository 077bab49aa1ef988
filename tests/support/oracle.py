"""A fixed-structure refit in plain NumPy, written from the formulas and sharing no code with leaftrace.

It computes totals in float64: for each step the sums over leaves of w g and w h at the current scores,
a division, and new scores. leaftrace is compared with its finite differences, and with it without rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Structure:
    """The structure of a model: the leaves of its training rows, and its settings.

    ``steps[t]``         (leaf ids of the rows, number of leaves, first output) of each tree of step t
    ``K, O``             outputs of the model, outputs of a leaf
    ``lr``               learning rate, or one for each step
    ``scales[t]``        factors of the inner iterations of step t
    ``base``             starting score: numbers, or "mean" for the constant that fits the labels best
    ``sample[t][r]``     how often tree r of step t drew each row
    ``moves[t]``         (step, factor) added to the scores before step t; step -1 is the base
    ``more_l2[t][r]``    (L,) l2 of each leaf in addition to ``l2``
    ``more_gradient[t]``  (L,) constants in the sums of g of a step of one tree, in leaves with rows
    ``shift[t]``         (L,) constants in the leaf values of a step of one tree
    ``nodes[t][r]``      the root (`oracle_nodes.Node`) of a tree whose leaves depend on other nodes
    ``chains[t]``        lists of leaves of step t, a tree of one output, whose values must not fall
    ``diagonal``         a vector leaf is solved one output at a time
    ``class_weight``     (n,) multiplies w in the leaves, and in the base unless base_value is given
    ``rounds_residuals`` leaves are statistics of residuals that the library rounds to float32
    ``slack``            how much H may fall short of min_hessian, for finite differences; see `strict`

    Functions of a library; None means the functions below:

    ``derivatives``      (A, y) -> g (n, K), h (n, K, K)
    ``loss_value``       (F, y) -> (m,)
    ``base_value``       (y, w) -> (K,), with w before class weights
    ``leaf``             (ids, L, residual, y, w) -> (L,), a statistic of the rows drawn instead of
                         a Newton step
    ``leaf_of_step``     (residual, w) of all rows, drawn or not -> such a function
    """

    loss: str
    steps: list
    K: int
    O: int
    newton: bool
    l2: float
    lr: float
    scales: list
    base: object = 0.0
    l2_scales: bool = True
    offset: object = 0.0
    sample: list | None = None
    moves: list | None = None
    l1: float = 0.0
    max_step: float = np.inf
    min_hessian: float = 0.0
    slack: float = 0.0
    more_l2: list | None = None
    more_gradient: list | None = None
    shift: list | None = None
    nodes: list | None = None
    chains: list | None = None
    derivatives: object = None
    loss_value: object = None
    base_value: object = None
    leaf: object = None
    leaf_of_step: object = None
    rounds_residuals: bool = False
    diagonal: bool = False
    class_weight: object = 1.0

    def rows(self, keep):
        """Return the structure of some of the rows."""
        steps = [[(ids[keep], L, o) for ids, L, o in step] for step in self.steps]
        sample = self.sample
        if sample is not None:
            sample = [[drawn[keep] for drawn in step] for step in sample]
        offset = self.offset[keep] if np.ndim(self.offset) else self.offset
        class_weight = self.class_weight[keep] if np.ndim(self.class_weight) else self.class_weight
        return replace(self, steps=steps, offset=offset, sample=sample, class_weight=class_weight)

    def strict(self):
        """Return the same for refits, which need no slack.

        A leaf that is exactly at min_hessian becomes zero with any less weight. Its derivative is the
        one for more weight, so finite differences need a lower bound, out of their reach."""
        return replace(self, slack=0.0)

    @property
    def bound(self):
        """The H below which a leaf stays zero; none if it is not positive."""
        return self.min_hessian - self.slack

    def loss_of(self, F, y):
        return self.loss_value(F, y) if self.loss_value else loss_value(self.loss, F, y)

    def rate(self, t):
        return self.lr if np.ndim(self.lr) == 0 else self.lr[t]

    def derivatives_of(self, A, y):
        return self.derivatives(A, y) if self.derivatives else derivatives(self.loss, A, y)

    def before(self, t):
        """Return (step, factor) of what is added to the scores before step t."""
        if self.moves is not None:
            return self.moves[t]
        return [(t - 1, 1.0)] if t else []


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(A):
    e = np.exp(A - A.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def derivatives(loss, A, y):
    """Return g (n, K) and h (n, K, K), the second derivative as the boosters define it."""
    t = y[:, None]
    if loss == "gamma":
        return 1 - t * np.exp(-A), (t * np.exp(-A))[..., None]
    if loss == "tweedie":  # power 1.3
        u = t * np.exp(-0.3 * A)
        v = np.exp(0.7 * A)
        return v - u, (0.3 * u + 0.7 * v)[..., None]
    if loss == "huber":  # delta 0.6
        return np.clip(A - t, -0.6, 0.6), np.ones((*A.shape, 1))
    if loss == "pseudo-huber":  # slope 0.8
        r = 1 + ((A - t) / 0.8) ** 2
        return (A - t) / r**0.5, (r**-1.5)[..., None]
    if loss == "fair":  # c 1.2
        a = np.abs(A - t) + 1.2
        return 1.2 * (A - t) / a, (1.44 / a**2)[..., None]
    if loss == "scaled logistic":  # 0.7
        p = sigmoid(0.7 * A)
        return 0.7 * (p - t), (0.49 * p * (1 - p))[..., None]
    if loss == "one-vs-all":  # scale 0.7
        p = sigmoid(0.7 * A)
        identity = np.eye(A.shape[1])
        return 0.7 * (p - identity[y.astype(int)]), 0.49 * (p * (1 - p))[..., None] * identity
    if loss == "brier":
        return A - np.eye(A.shape[1])[y.astype(int)], np.ones((*A.shape, 1)) * np.eye(A.shape[1])
    if loss == "squared":
        return A - y[:, None], np.ones((*A.shape, 1))
    if loss == "logistic":
        p = sigmoid(A)
        return p - y[:, None], (p * (1 - p))[..., None]
    if loss == "poisson":
        return np.exp(A) - y[:, None], np.exp(A)[..., None]
    p = softmax(A)
    identity = np.eye(A.shape[1])
    return p - identity[y.astype(int)], p[:, :, None] * (identity - p[:, None, :])


def loss_value(loss, F, y):
    if loss == "squared":
        return (F[:, 0] - y) ** 2 / 2
    if loss == "logistic":
        return np.logaddexp(0, F[:, 0]) - y * F[:, 0]
    if loss == "poisson":
        return np.exp(F[:, 0]) - y * F[:, 0]
    r = F[:, 0] - y
    if loss == "gamma":
        return F[:, 0] + y * np.exp(-F[:, 0])
    if loss == "tweedie":
        return y * np.exp(-0.3 * F[:, 0]) / 0.3 + np.exp(0.7 * F[:, 0]) / 0.7
    if loss == "huber":
        return np.where(np.abs(r) < 0.6, r**2 / 2, 0.6 * np.abs(r) - 0.18)
    if loss == "pseudo-huber":
        return 0.64 * (np.sqrt(1 + (r / 0.8) ** 2) - 1)
    if loss == "fair":
        return 1.44 * (np.abs(r) / 1.2 - np.log(1 + np.abs(r) / 1.2))
    if loss == "scaled logistic":
        return np.logaddexp(0, 0.7 * F[:, 0]) - 0.7 * y * F[:, 0]
    target = np.eye(F.shape[1])[y.astype(int)]
    if loss == "one-vs-all":
        return (np.logaddexp(0, 0.7 * F) - 0.7 * target * F).sum(axis=1)
    if loss == "brier":
        return ((F - target) ** 2).sum(axis=1) / 2
    return np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(y)), y.astype(int)]


def base_score(structure, y, w):
    """Return the starting score (K,)."""
    if not isinstance(structure.base, str):
        return np.broadcast_to(np.asarray(structure.base, float), (structure.K,))
    if structure.loss == "softmax":
        p = np.array([w[y == k].sum() for k in range(structure.K)]) / w.sum()
        return np.log(p) - np.log(p).mean()
    mean = np.array([(w * y).sum() / w.sum()])
    if structure.loss == "squared":
        return mean
    return np.log(mean / (1 - mean)) if structure.loss == "logistic" else np.log(mean)


def leaf_total(ids, x, L):
    """Return the sums (L, ...) of x over the rows of each leaf."""
    flat = x.reshape(len(x), -1)
    return np.stack([np.bincount(ids, c, L) for c in flat.T], axis=1).reshape(L, *x.shape[1:])


def soft(G, l1):
    """Return G after soft thresholding by l1."""
    return np.sign(G) * np.maximum(np.abs(G) - l1, 0)


def tree_value(structure, ids, L, o, scales, A, y, w, lam, t=0, r=0):
    """Return the leaf values (L, O) of one tree, from the scores A before it."""
    O = structure.O
    if structure.leaf:
        drawn = np.ones(len(y), bool) if structure.sample is None else structure.sample[t][r] > 0
        found = structure.leaf(ids[drawn], L, (y - A[:, o])[drawn], y[drawn], w[drawn])
        return structure.rate(t) * found[:, None]
    if structure.nodes:
        root = structure.nodes[t][r]
        return structure.rate(t) * from_nodes(structure, root, ids, L, o, A, y, w, lam)
    S = np.zeros((L, O))
    for c in scales:
        B = A.copy()
        B[:, o : o + O] += S[ids]
        g, h = structure.derivatives_of(B, y)
        G = leaf_total(ids, w[:, None] * g[:, o : o + O], L)
        W = np.bincount(ids, w, L)
        if structure.more_gradient:
            G = G + np.where(W > 0, structure.more_gradient[t], 0.0)[:, None]
        if structure.newton:
            D = leaf_total(ids, w[:, None, None] * h[:, o : o + O, o : o + O], L)
            D = D * np.eye(O) if structure.diagonal else D
        else:
            D = W[:, None, None] * np.eye(O)
        H = D
        D = D + np.reshape(lam, (-1, 1, 1)) * np.eye(O)
        some = np.einsum("laa->la", D).min(axis=1) > 0  # not for an empty leaf without l2
        step = np.zeros((L, O))
        step[some] = -np.linalg.solve(D[some], soft(G[some], structure.l1)[..., None])[..., 0]
        if structure.bound > 0:
            step[np.einsum("laa->la", H) < structure.bound] = 0  # each output by itself
        step = np.clip(step, -structure.max_step, structure.max_step)
        if structure.chains:
            step = pooled(S + step, D[:, 0, 0], structure.chains[t]) - S
        S = S + c * step
    return structure.rate(t) * S


def pooled(values, weights, chains):
    """Return values (L, 1) after pooling neighbours in chains until no value falls along one."""
    out = values.copy()
    for chain in chains:
        blocks = []
        for leaf in chain:
            blocks.append(([leaf], values[leaf, 0], weights[leaf]))
            while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
                (a, u, v), (b, x, y) = blocks[-2:]
                total = v + y or 1.0  # leaves without rows and without l2 are zero
                blocks[-2:] = [(a + b, (u * v + x * y) / total, v + y)]
        for leaves, value, _ in blocks:
            out[leaves] = value
    return out


def from_nodes(structure, root, ids, L, o, A, y, w, lam):
    """Return leaf values (L, O) that depend on the steps of other nodes.

    Of two classes with a share each, the first is computed, and the second has the rest."""
    g, h = structure.derivatives_of(A, y)

    def step(node):
        here = np.isin(ids, node.leaves())
        G = (w * g[:, o])[here].sum()
        H = (w * h[:, o, o])[here].sum()
        D = H + lam + node.l2
        # Slopes at weight zero go below it, where a bound of zero is still no bound.
        bounded = structure.bound > 0 and structure.bound > H
        live = D > 0 and not bounded
        s = -soft(G, structure.l1) / D if live else 0.0
        return np.clip(s, -structure.max_step, structure.max_step)

    out = root.outputs(step, L)
    return np.stack([out, -out], axis=1) if structure.O == 2 else out[:, None]


def refit(structure, y, w, n=None):
    """Return (base (K,), values[t][r] (L, O)) with these weights; n rows count in lam."""
    n = len(y) if n is None else n
    if structure.base_value:
        base = structure.base_value(y, w)
    else:
        base = base_score(structure, y, w * structure.class_weight)
    w = w * structure.class_weight
    lam = structure.l2 * w.sum() / n if structure.l2_scales else structure.l2
    A = np.tile(base, (len(y), 1)) + structure.offset
    values = []
    for t, (step, scales) in enumerate(zip(structure.steps, structure.scales, strict=True)):
        A = move(structure, t, structure.steps, base, values, A)
        values.append([])
        for r, (ids, L, o) in enumerate(step):
            here = w if structure.sample is None else w * structure.sample[t][r]
            more = 0.0 if structure.more_l2 is None else structure.more_l2[t][r]
            if structure.leaf_of_step:
                structure = replace(structure, leaf=structure.leaf_of_step(y - A[:, o], w))
            found = tree_value(structure, ids, L, o, scales, A, y, here, lam + more, t, r)
            if structure.shift:
                found = found + structure.shift[t][:, None]
            values[-1].append(found)
    return base, values


def move(structure, t, steps, base, values, A):
    """Return the scores before step t, from those before step t - 1."""
    A = A.copy()
    for r, factor in structure.before(t):
        if r == -1:
            A += factor * base
            continue
        for (ids, _, o), v in zip(steps[r], values[r], strict=True):
            A[:, o : o + structure.O] += factor * v[ids]
    return A


def predict(structure, fitted, test_steps, offset=0.0):
    """Return the scores (m, K) of other rows, from the result of `refit`."""
    base, values = fitted
    F = np.tile(base, (len(test_steps[0][0][0]), 1)) + offset
    for t in range(len(test_steps) + 1):
        F = move(structure, t, test_steps, base, values, F)
    return F


def slope(f, h):
    """Return the five-point central difference of f at 0, with an error of order h^4."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def from_catboost(model, X, scales=None, offset=0.0):
    """Return the structure of a CatBoost model, read from CatBoost alone.

    The second result is a function that gives the steps of other rows."""
    p = model.get_all_params()
    counts = model.get_tree_leaf_counts()
    loss = {"RMSE": "squared", "Poisson": "poisson", "MultiClass": "softmax"}
    K = len(model.get_leaf_values()) // int(np.sum(counts))

    def steps(rows):
        ids = model.calc_leaf_indexes(rows)
        return [[(ids[:, t].astype(int), int(counts[t]), 0)] for t in range(len(counts))]

    its = [1.0] * p["leaf_estimation_iterations"]
    structure = Structure(
        loss=loss.get(p["loss_function"].partition(":")[0], "logistic"),
        steps=steps(X),
        K=K,
        O=K,
        newton=p["leaf_estimation_method"] == "Newton",
        l2=float(np.float32(p["l2_leaf_reg"])),
        lr=float(np.float32(p["learning_rate"])),
        scales=[its] * len(counts) if scales is None else scales,
        base="mean" if p.get("boost_from_average") else model.get_scale_and_bias()[1],
        offset=offset,
    )
    return structure, steps
