"""Arrays to run a kernel on, and the comparison of a native kernel with its NumPy twin."""

import numpy as np

from leaftrace._model.kernels import kernels
from leaftrace._model.kernels import numpy as twins

N = 300  # rows
M = 7  # leaves of a tree


def agree(name, inputs, outputs, dtype, works=True):
    """Run a native kernel and its twin on copies of the outputs, and compare these."""
    mine, twin = ([o.copy() if isinstance(o, np.ndarray) else o for o in outputs] for _ in range(2))
    getattr(kernels, name)(*inputs, *mine)
    getattr(twins, name)(*inputs, *twin)
    compared = [
        t
        for t in zip(mine, twin, outputs, strict=True)
        if getattr(t[2], "dtype", np.dtype(int)).kind == "f"
    ]
    scale = max(np.abs(b).max(initial=0.0) for _, b, _ in compared)
    assert works == any(np.any(b != before) for _, b, before in compared), (
        "equality of nothing would prove nothing"
    )
    for a, b, _ in compared:
        # Sums of N terms of order one: rounding of each partial sum.
        np.testing.assert_allclose(a, b, atol=scale * N * np.finfo(dtype).eps)


def arrays(dtype, seed=0):
    """Return a function that makes random arrays of a shape."""
    rng = np.random.default_rng(seed)
    return lambda *shape: (rng.normal(size=shape) * 0.1).astype(dtype)


def ids(rng, R, id_type):
    """Return random leaf ids (R, N)."""
    return rng.integers(0, M, (R, N)).astype(id_type)


def sweep_of(rng, R, O, id_type):
    """Return leaf ids and first outputs of a step whose trees have M leaves each."""
    leaf = (ids(rng, R, np.int64) + M * np.arange(R)[:, None]).astype(id_type)
    return leaf, np.arange(R, dtype=np.int32) * O
