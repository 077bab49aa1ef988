"""The trees of a case one after another, as the oracle refits them."""

import numpy as np
import oracle


def trees_of(structure, case):
    """Yield (t, r, leaf ids of the rows, leaves, first output, factor in the model, scores before it)."""
    w = case.w * structure.class_weight
    base, values = oracle.refit(structure, case.data.codes, case.w)
    A = np.tile(base, (len(w), 1)) + structure.offset
    factor = np.ones(len(structure.steps))
    if structure.moves is not None:
        factor[:] = [
            sum(f for moves in structure.moves for r, f in moves if r == t)
            for t in range(len(factor))
        ]
    for t, step in enumerate(structure.steps):
        A = oracle.move(structure, t, structure.steps, base, values, A)
        for r, (ids, L, o) in enumerate(step):
            yield t, r, ids, L, o, factor[t], A
