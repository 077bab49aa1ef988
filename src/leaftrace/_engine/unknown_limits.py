"""Refits of models whose limits of leaf steps are not known.

A leaf rule has limits: the least sum of h that a leaf needs for a value, and the longest step. Some
model files do not keep them. The leaves of the model bound them: a leaf that has a value has enough
h, and no step is longer than the longest one. A refit is the same for all limits that are possible
if it is the same for the loosest and for the strictest of them. Otherwise it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._data.arrays import F64
from .._data.errors import UnsupportedModel
from .._model.ensemble import Ensemble
from .._model.leaf_rule import LeafRule
from .leaf_equations import Iteration, LeafEquations

# The rounding of scores may move a leaf of the model itself this much beyond a limit, relative to it:
# a row with a score of 16 has an h that changes by 2e-6 with the last bit of float32.
ALLOWANCE = 1e-5


def strictest_rule(e: Ensemble, s: Sequence[F64], D: Sequence[F64]) -> LeafRule | None:
    """The rule with the strictest limits that the model's leaves allow; None if all are known.

    ``s``  for each step (M, O) the steps of its leaves
    ``D``  for each step (M, O, O), with lam
    """
    if e.unknown_limits is None:
        return None
    rule = e.rule
    if "min_hessian" in e.unknown_limits.names:
        least = np.inf
        for t, D_t in enumerate(D):
            H = np.einsum("maa->ma", D_t) - LeafEquations(e, t).lam[:, None]
            least = min(least, float(H[e.values[e.leaf_range(t)] != 0].min(initial=np.inf)))
        rule = replace(rule, min_hessian=(1 - ALLOWANCE) * least)
    if "max_step" in e.unknown_limits.names:
        longest = max(float(np.abs(s_t).max(initial=0.0)) for s_t in s)
        rule = replace(rule, max_step=(1 + ALLOWANCE) * longest)
    return rule


def check_iterations(
    strictest: LeafRule | None, equations: LeafEquations, path: Sequence[Iteration]
) -> None:
    """Raise an error if the strictest limits give other steps than those of a refitted step."""
    if strictest is None:
        return
    e = equations.ensemble
    for iteration in path:
        G = iteration.sums.G
        D = np.einsum("maa->ma", iteration.D)
        if e.step_nodes is None:
            sums = G, D - equations.lam[:, None], D
            check_same(e, equations.t, e.rule.step(*sums)[0], strictest.step(*sums)[0])
            continue
        nodes = e.step_nodes[equations.t]
        H = D - (e.lam + nodes.l2[nodes.leaf, None])
        loosest = nodes.steps(e.rule, G, H, e.lam).s
        check_same(e, equations.t, loosest, nodes.steps(strictest, G, H, e.lam).s)


def check_same(e: Ensemble, t: int, loosest: F64, strictest: F64) -> None:
    """Raise an error if the loosest and the strictest limits give other leaves in step t."""
    if e.unknown_limits is None or np.array_equal(loosest, strictest, equal_nan=True):
        return
    raise UnsupportedModel(
        f"this refit depends on settings of training that are not known (from step {t + 1} of {e.n_steps} on): "
        f"{e.unknown_limits.remedy}"
    )
