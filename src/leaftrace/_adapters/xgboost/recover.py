"""Training parameters that the model does not report, found from its leaf values.

A saved file keeps no training parameters but those of the objective, and a learning rate that a
callback changed is reported as it was last. They follow from the leaf values v of all steps, with G
and H summed over the training rows:

    v = -eta T_alpha(G) / (H + lambda)
    so   v H = -eta G - lambda v - eta alpha sign(v)      where v is not 0

which is linear in eta, lambda and eta alpha; if eta alone is not known, it is v / s for each step.

Where all leaves have about the same H, only eta / (H + lambda) shows, and many pairs of eta and
lambda give the same leaves. Then nothing is recovered: the user has to give them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ids
from ..._model.ensemble import Ensemble, LeafRule
from ..._model.losses import Softmax
from ..._model.node_trees import StepNodes
from ..._model.value_noise import FLOAT32_ROUNDING, value_noise
from .objectives import as_float32

# Largest relative error of leaf values that are reproduced. The sums here are float64 without
# rounding, so XGBoost's float32 leaves an error of 1e-6 at most.
TOLERANCE = 1e-5

# A recovered learning rate must be known to this relative accuracy, given that leaf values are
# rounded to float32. Influences are as accurate as it is.
IDENTIFIED = 1e-3


@dataclass(frozen=True)
class RecoverySums:
    """Sums of the rows in each leaf, all outputs in one list: (leaves,) arrays.

    ``step``   number of the leaf's step
    ``value``  leaf value in the model
    ``G, H``   sums of w g and w h
    ``size``   sum of w |g|: the rounding of G is relative to it, not to G itself
    ``s``      step before the learning rate, of leaves that are quantiles; otherwise None
    ``nodes``  for each step the nodes of its trees, if leaves depend on others; otherwise None
    """

    step: NDArray[np.int64]
    value: F64
    G: F64
    H: F64
    size: F64
    s: F64 | None
    nodes: Sequence[StepNodes] | None = None

    def steps(self, rule: LeafRule) -> F64:
        """(leaves,) steps before the learning rate."""
        if self.s is not None:
            return self.s
        if self.nodes is None:
            return rule.step(self.G, self.H, self.H + rule.l2)[0]
        edges = np.searchsorted(self.step, np.arange(len(self.nodes) + 1))
        sums = np.column_stack([self.G, self.H])
        parts = [sums[a:b] for a, b in pairwise(edges)]
        return np.concatenate(
            [
                nodes.values(rule, part[:, :1], part[:, 1:], rule.l2)[:, 0]
                for nodes, part in zip(self.nodes, parts, strict=True)
            ]
        )

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """(leaves,) whether a value may be at a bound that other leaves give."""
        if self.nodes is None:
            return np.zeros(len(self.value), bool)
        return np.concatenate([nodes.bounded for nodes in self.nodes])

    def error(self, rule: LeafRule, rate: float | F64) -> float:
        """Largest error of a leaf value, relative to the largest value."""
        rates = rate if np.ndim(rate) == 0 else np.asarray(rate)[self.step]
        largest = float(np.abs(self.value).max(initial=0.0)) or 1.0
        error = np.abs(rates * self.steps(rule) - self.value)
        noise = value_noise(rates, self.size, self.H + rule.l2)
        return float(np.maximum(error - noise, 0).max(initial=0.0)) / largest

    def agree(self, rule: LeafRule, rate: float | F64) -> bool:
        """Whether this rule and learning rate give the leaf values."""
        return self.error(rule, rate) <= TOLERANCE

    def confirm_rates(self) -> bool:
        """Whether a learning rate for each step can be checked: by a further leaf a step, on average.

        A rate of its own gives one leaf of a step any value, and leaves of value zero fit any rate.
        """
        leaves = np.bincount(self.step[self.value != 0])
        return int(np.maximum(leaves - 1, 0).sum()) >= int(np.count_nonzero(leaves))


def leaf_sums(e: Ensemble, steps: int) -> RecoverySums:
    """Sums of the first steps, each at the model's own scores."""
    A = e.start()
    parts = []
    for t in range(steps):
        e.move(t, e.leaves, A)
        values = e.values[e.leaf_range(t)]
        sums = (values, *step_sums(e, t, A))
        parts.append([np.full(values.size, t), *(x.ravel() for x in sums)])
    step, value, G, H, size, s = (np.concatenate(x) for x in zip(*parts, strict=True))
    statistic = None if e.rule.statistic is None else s
    nodes = None if e.step_nodes is None else e.step_nodes[:steps]
    return RecoverySums(step.astype(np.int64), value, G, H, size, statistic, nodes)


def step_sums(e: Ensemble, t: int, A: F64) -> tuple[F64, F64, F64, F64]:
    """(M, O) G, H, sums of w |g| and statistics of the leaves of step t, at the scores A."""
    g = e.gradients(A, t)
    h = e.second_derivatives(A, t) if e.coupled else _second_derivatives(e, e.loss.state(A))
    shape = e.values[e.leaf_range(t)].shape
    G = np.zeros(shape)
    H = np.zeros(shape)
    size = np.zeros(shape)
    s = np.zeros(shape)
    for r in range(*e.trees(t).indices(len(e.first_output))):
        ids = e.leaves[r]
        first = e.first_output[r]
        w = e.tree_weight(r)
        for k in range(e.leaf_outputs):
            G[:, k] += np.bincount(ids, w * g[:, first + k], len(G))
            H[:, k] += np.bincount(ids, w * h[:, first + k], len(H))
            size[:, k] += np.bincount(ids, w * np.abs(g[:, first + k]), len(size))
        if e.rule.statistic is not None:
            own = np.unique(ids)
            y = e.labels_of(first)
            s[own, 0] = e.rule.statistic_of(first)(ids, len(s), y - A[:, first], y, w)[own]
    return G, H, size, s


def _second_derivatives(e: Ensemble, state: F64) -> F64:
    """(n, K) the diagonal of h."""
    if isinstance(e.loss, Softmax):
        return state * (1 - state)
    return np.einsum("nkk->nk", e.loss.hessian(state, e.y))


def reported_agree(e: Ensemble) -> bool:
    """Whether the reported parameters give the leaf values of the first steps.

    Leaves of value zero are few and not like the others, so where there are some all steps count.
    """
    steps = e.n_steps if np.any(e.values == 0) else min(3, e.n_steps)
    return leaf_sums(e, steps).agree(e.rule, e.learning_rate)


def possible_rules(e: Ensemble) -> Iterator[LeafRule]:
    """The leaf rule with the loosest least H, and the loosest that explains leaves of value zero.

    A leaf stays at zero, although its gradients do not cancel, if its H is below the least.
    """
    yield e.rule
    if e.rule.statistic is not None or not np.any(e.values == 0):
        return
    sums = leaf_sums(e, e.n_steps)
    cancels = np.abs(sums.G) <= FLOAT32_ROUNDING * sums.size
    stopped = sums.H[(sums.value == 0) & ~cancels]
    if len(stopped):
        yield replace(e.rule, min_hessian=(1 + FLOAT32_ROUNDING) * float(stopped.max()))


@dataclass(frozen=True)
class Recovered:
    """A leaf rule and learning rates that give all leaf values.

    ``names``      the parameters that differ from the reported ones
    ``ambiguous``  whether other values of these parameters give the same leaves
    """

    rule: LeafRule
    rate: float | F64
    names: list[str]
    ambiguous: bool = False


def rates_of_rounds(e: Ensemble) -> Recovered | None:
    """The learning rates of a model in memory, which reports one of them; None if none fit.

    A callback, or training that was continued, may have changed the rate between rounds. While all
    trees put the rows into the same leaves, other rates look like labels times a number, so nothing
    can be said.
    """
    if has_one_partition(e):
        return None
    sums = leaf_sums(e, e.n_steps)
    rates = _best_rates(e, sums, e.rule)
    if np.any(rates <= 0) or not sums.agree(e.rule, rates) or not sums.confirm_rates():
        return None
    return Recovered(e.rule, rates, ["a learning_rate for each round"])


def has_one_partition(e: Ensemble) -> bool:
    """Whether all trees put the rows into the same leaves."""
    return all(_same_partition(e.leaves[0], ids) for ids in e.leaves[1:])


def _same_partition(a: Ids, b: Ids) -> bool:
    """Whether two trees put the same rows together."""
    pairs = np.unique(np.stack([a, b]).astype(np.int64), axis=1)
    return pairs.shape[1] == len(np.unique(a)) == len(np.unique(b))


def recover_parameters(
    e: Ensemble, rate_unit: float, l2_unit: float, given: Collection[str] = ()
) -> Recovered | None:
    """Find learning rate, lambda and alpha of a model from a file; None if no values fit.

    ``rate_unit, l2_unit``: factors from the ensemble's numbers to XGBoost's, which are often round.
    ``given``: parameters that the user gave, which stay as they are.
    """
    sums = leaf_sums(e, e.n_steps)
    rule = e.rule
    rates = _best_rates(e, sums, rule)
    if "learning_rate" not in given and np.all(rates > 0) and sums.agree(rule, rates):
        ambiguous = "reg_lambda" not in given and not _identified(sums, rule)
        rate = _fewest_digits(
            float(np.median(rates)), rate_unit, lambda rate: sums.agree(rule, rate)
        )
        if sums.agree(rule, rate):
            return Recovered(rule, rate, ["learning_rate"], ambiguous)
        if sums.confirm_rates():
            return Recovered(rule, rates, ["a learning_rate for each round"], ambiguous)
    if rule.statistic is not None or {"reg_lambda", "learning_rate"} <= set(given):
        return None
    for names in (["learning_rate", "reg_lambda"], ["learning_rate", "reg_lambda", "reg_alpha"]):
        with_l1 = "reg_alpha" in names
        found = _solve(sums, rule, with_l1, rate_unit, l2_unit)
        if found is not None and not _contradicts(e, *found, given):
            return Recovered(*found, names, not _identified(sums, rule, with_l1))
    return None


def _contradicts(e: Ensemble, rule: LeafRule, rate: float, given: Collection[str]) -> bool:
    """Whether recovered parameters are not those that the user gave."""
    reported = float(np.max(e.learning_rate))
    pairs = {
        "learning_rate": (rate, reported),
        "reg_lambda": (rule.l2, e.rule.l2),
        "reg_alpha": (rule.l1, e.rule.l1),
    }
    differ = {name for name, (a, b) in pairs.items() if abs(a - b) > IDENTIFIED * max(a, b)}
    return bool(differ & set(given))


def _identified(sums: RecoverySums, rule: LeafRule, with_l1: bool = False) -> bool:
    """Whether the leaf values tell learning rate and lambda apart."""
    if rule.statistic is not None:
        return True
    equations = _equations(sums, rule, with_l1)
    if equations is None:
        return False
    columns, target = equations
    rate = float(np.linalg.lstsq(columns, target, rcond=None)[0][0])
    _, singular, right = np.linalg.svd(columns, full_matrices=False)
    if singular[-1] <= 1e-12 * singular[0]:
        return False
    error = FLOAT32_ROUNDING * float(np.sqrt(np.sum((right[:, 0] / singular) ** 2)))
    return error <= IDENTIFIED * abs(rate)


def _best_rates(e: Ensemble, sums: RecoverySums, rule: LeafRule) -> F64:
    """(T,) the learning rate that fits each step best."""
    s = sums.steps(rule)
    over = np.bincount(sums.step, s * s, e.n_steps)
    rates = np.divide(
        np.bincount(sums.step, s * sums.value, e.n_steps),
        over,
        out=np.zeros(e.n_steps),
        where=over > 0,
    )
    return np.where(over > 0, rates, np.median(rates[over > 0]) if np.any(over > 0) else 0.0)


def _solve(
    sums: RecoverySums, rule: LeafRule, with_l1: bool, rate_unit: float, l2_unit: float
) -> tuple[LeafRule, float] | None:
    """The rule and learning rate that solve the equations of all leaves, or None.

    Round numbers that agree are better than the solution itself, which carries the rounding of the
    values.
    """
    solution = _least_squares(sums, rule, with_l1)
    if solution is None:
        return None
    rate, l2, l1 = solution
    solved = replace(rule, l2=l2, l1=l1)
    if rate <= 0 or not sums.agree(solved, rate):
        return None
    for digits in range(1, 7):
        short_rate = _to_digits(rate * rate_unit, digits) / rate_unit
        short_l2 = _to_digits(l2 * l2_unit, digits) / l2_unit
        shorter = replace(rule, l2=short_l2, l1=_to_digits(l1, digits))
        if sums.agree(shorter, short_rate):
            return shorter, short_rate
    return solved, rate


def _least_squares(
    sums: RecoverySums, rule: LeafRule, with_l1: bool
) -> tuple[float, float, float] | None:
    """Learning rate, l2 and l1 that give the leaf values best; None if there are too few leaves."""
    equations = _equations(sums, rule, with_l1)
    if equations is None:
        return None
    solution = np.linalg.lstsq(*equations, rcond=None)[0]
    rate = float(solution[0])
    l2 = max(float(solution[1]), 0.0)
    l1 = max(float(solution[2]) / rate, 0.0) if with_l1 and rate > 0 else 0.0
    return rate, l2, l1


def _equations(sums: RecoverySums, rule: LeafRule, with_l1: bool) -> tuple[F64, F64] | None:
    """Matrix and right-hand side for (eta, lambda, eta alpha); None if there are too few leaves.

    An equation is weighted so that its error is about the relative rounding of its leaf value.
    """
    used = (sums.value != 0) & (sums.H > 0) & ~sums.bounded
    if np.isfinite(rule.max_step):  # leaves at the bound have the largest value there is
        used &= np.abs(sums.value) < (1 - 1e-5) * np.abs(sums.value).max()
    v = sums.value[used]
    G = sums.G[used]
    H = sums.H[used]
    if len(v) < 3:
        return None
    weight = 1 / (np.abs(v) * (H + 1))  # every leaf's value is rounded in proportion to itself
    columns = np.stack([-G, -v, -np.sign(v)][: 2 + with_l1], axis=1) * weight[:, None]
    return columns, v * H * weight


def _fewest_digits(x: float, unit: float, agrees: Callable[[float], bool]) -> float:
    """x with as few digits as agree, counted in these units."""
    for digits in range(1, 7):
        shorter = _to_digits(x * unit, digits) / unit
        if agrees(shorter):
            return shorter
    return x


def _to_digits(x: float, digits: int) -> float:
    """x with this many digits, rounded to float32 as XGBoost keeps it."""
    return as_float32(f"{x:.{digits}g}")


def recovery_note(names: Sequence[str], params: Mapping[str, str], loaded: bool) -> str:
    """A note with the recovered parameters of these names. ``loaded``: from a file."""
    shown = [f"{name}={float(params[name]):.6g}" if name in params else name for name in names]
    reason = "as the model reports others"
    if loaded:
        reason = "as a file keeps no training parameters"
    return f"{', '.join(shown)} recovered from the leaf values, {reason}"
