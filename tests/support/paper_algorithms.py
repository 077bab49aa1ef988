"""The paper's algorithms with every update set, transcribed into plain Python.

The transcription follows Algorithms 2 to 4 with totals instead of differences. Scores of rows in the
update set U include their change, the others do not. Leaf values come from the formulas, and changes
accumulate. Removing a small weight instead of the whole row, and dividing by it, gives LeafInfluence.
"""

import numpy as np
import oracle

import leaftrace as lt


class Tie(Exception):
    """Rounding decides which leaves are in an update set."""


def check_ranks(sums, k):
    """Raise Tie if the first k of these falling sums are not clearly larger than the next."""
    if k < len(sums) and sums[k] > max(0.0, (1 - 1e-9) * sums[k - 1]):
        raise Tie


def without_ties(rows, expected, count=3):
    """Yield (place, expected(row)) for the first rows whose update sets are clear."""
    found = 0
    for place, row in enumerate(rows):
        try:
            yield place, expected(row)
        except Tie:
            continue
        found += 1
        if found == count:
            return
    assert found == count, "all these rows have ties"


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
            order = sorted(range(L), key=lambda leaf: (-sums[leaf], leaf))
            used = np.isin(ids, order[: update_set.k])
            if np.ptp(D, axis=0).any():  # sums of one number tie exactly, and the first leaf counts
                check_ranks(np.array(sums)[order], update_set.k)
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
