"""The paper's algorithms with every update set, transcribed into plain Python.

The transcription follows Algorithms 2 to 4 with totals instead of differences. Scores of rows in the
update set U include their change, the others do not. Leaf values come from the formulas, and changes
accumulate. Removing a small weight instead of the whole row, and dividing by it, gives LeafInfluence.
"""

import numpy as np
import oracle

import leaftrace as lt


def transcription(structure, y, w, i, dw, removed, update_set):
    """Return the change of (base, leaf values) if row i's weight changes by dw, or if it is removed.

    A removed row is not in U. Otherwise row i is treated as any row, and with accumulate="updated" it
    is always in U."""
    n = len(y)
    w_hat = w.copy()
    w_hat[i] = 0.0 if removed else w[i] + dw
    lam = structure.l2 * w.sum() / n
    lam_hat = structure.l2 * w_hat.sum() / (n - removed)
    base = oracle.base_score(structure, y, w)
    base_hat = oracle.base_score(structure, y, w_hat)
    A = np.tile(base, (n, 1)) + structure.offset
    D = np.tile(base_hat - base, (n, 1))
    only_updated = isinstance(update_set, lt.TopKLeaves) and update_set.accumulate == "updated"
    changes = []
    for t, (step, scales) in enumerate(zip(structure.steps, structure.scales, strict=True)):
        ((ids, L, o),) = step
        if isinstance(update_set, lt.TopKLeaves):
            counted = np.ones(n)
            if update_set.sample is not None:
                rng = np.random.default_rng([update_set.seed, t])
                counted = np.isin(np.arange(n), rng.choice(n, update_set.sample, replace=False))
            sums = [np.abs(D[(ids == leaf) & (counted > 0)]).sum() for leaf in range(L)]
            top = sorted(range(L), key=lambda leaf: (-sums[leaf], leaf))[: update_set.k]
            used = np.isin(ids, top)
        else:
            used = np.full(n, isinstance(update_set, lt.AllPoints))
        accumulates = used.copy() if only_updated else np.ones(n, bool)
        if only_updated:
            accumulates[i] = used[i] = True
        A_hat = A + np.where(used[:, None], D, 0.0)
        before = oracle.tree_value(structure, ids, L, o, scales, A, y, w, lam)
        after = oracle.tree_value(structure, ids, L, o, scales, A_hat, y, w_hat, lam_hat)
        changes.append([after - before])
        D = D + np.where(accumulates[:, None], (after - before)[ids], 0.0)
        A = A + before[ids]
    return base_hat - base, changes
