"""The native kernel of soft splits on trees most of whose cells have no rows, against its NumPy twin."""

import copy

import numpy as np
import pytest

from leaftrace._model.kernels import is_native, kernels
from leaftrace._model.kernels import numpy as twins

pytestmark = pytest.mark.skipif(not is_native(), reason="native kernels are not in use")

SIZES = np.array([20, 12, 9, 15], np.int32)  # bins; each column is of another kind
CHANGED = ("shares", "abar", "out")


def call_with(rows, B, O, K, level, scale=1.0):
    """Return arguments about a tree of seven nodes. ``level``: nodes of one depth share a choice."""
    rng = np.random.default_rng(rows + B)
    real = rng.standard_normal
    tests = 3
    codes = [rng.integers(0, SIZES, (n, 4)).astype(np.uint8) for n in (rows, tests)]
    leaf = [rng.integers(0, 8, n).astype(np.int32) for n in (rows, tests)]
    choice = [0, 1, 1, 2, 2, 2, 2] if level else list(range(7))
    column = [0, 1, 1, 2, 2, 2, 2] if level else [0, 1, 2, 3, 0, 1, 2]
    nodes = ([1, 3, 5, 7, 9, 11, 13], [2, 4, 6, 8, 10, 12, 14], column, choice)
    left, right, column, choice = (np.array(x, np.int32) for x in nodes)
    scores = scale * real((rows, K, B))
    return {
        "codes": codes[0],
        "leaf": leaf[0],
        "w": rng.uniform(0.5, 2, rows),
        "drawn": np.ones(rows),
        "g": real((rows, O)),
        "h": rng.uniform(0.2, 1, (rows, O)),
        "j": real((rows, O, K)),
        "k": real((rows, O, K)),
        "query_codes": codes[1],
        "query_leaf": leaf[1],
        "c": scale * real((tests, O, B)),
        "sizes": SIZES,
        "kinds": np.arange(4, dtype=np.uint8),
        "left": left,
        "right": right,
        "column": column,
        "choice": choice,
        "numbers": np.array([0.3, 0.0, 0.2, 0.0, 0.0, 1.0, 0.7, 0.3, np.inf, 0.0]),
        "by_weight": False,
        "newton": True,
        "columns_sampled": False,
        "rows_estimated": False,
        "measured": False,
        "shares": np.zeros(8),
        "first": 0,
        "threads": 1,
        "scores": scores,
        "abar": scores.copy(),
        "out": np.zeros((rows, B)),
    }


@pytest.mark.parametrize("level", [False, True], ids=["by node", "by level"])
@pytest.mark.parametrize(("O", "K"), [(1, 1), (1, 3), (3, 3)])
@pytest.mark.parametrize("B", [1, 32])
def test_cells_without_rows_add_nothing(B, O, K, level):
    """The memory of cells without rows holds large numbers of an earlier call, which must not be read."""
    kernels.choice_terms(*call_with(600, B, O, K, level, scale=1e9).values())
    native = call_with(25, B, O, K, level)
    twin = copy.deepcopy(native)
    kernels.choice_terms(*native.values())
    twins.choice_terms(*twin.values())
    assert np.abs(twin["out"]).max() > 0.01
    for name in CHANGED:  # sums in another order differ by rounding
        np.testing.assert_allclose(native[name], twin[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("level", [False, True], ids=["by node", "by level"])
@pytest.mark.parametrize(("O", "K"), [(1, 1), (3, 3)])
def test_limits_of_candidates(O, K, level):
    """Limits change what the kernel and its twin give, and in the same way."""
    at = {"lam": 0, "l1": 1, "min_rows": 3, "own_lam": 7, "max_step": 8, "output_hessian": 9}
    plain = call_with(80, 1, O, K, level)
    kernels.choice_terms(*plain.values())
    limits = {
        "max_step": {"max_step": 0.2},
        "max_step with l1": {"max_step": 0.2, "l1": 1.0},
        "output_hessian": {"output_hessian": 6.0},
        "no limit, negative second derivatives": {
            "h": np.where(plain["h"] < 0.5, -0.02, plain["h"])
        },
        "rows": {"min_rows": 9.0},
        "estimated rows": {"min_rows": 9.0, "rows_estimated": True},
        "columns": {"columns_sampled": True, "own_lam": 0.3},
        "columns, more l2": {"columns_sampled": True, "own_lam": 0.3, "lam": 5.0},
    }
    outs = [plain["out"]]
    for limit in limits.values():
        native = call_with(80, 1, O, K, level)
        for name, value in limit.items():
            if name in at:
                native["numbers"][at[name]] = value
            else:
                native[name] = value
        twin = copy.deepcopy(native)
        kernels.choice_terms(*native.values())
        twins.choice_terms(*twin.values())
        for name in CHANGED:
            np.testing.assert_allclose(native[name], twin[name], rtol=1e-9, atol=1e-11)
        outs.append(native["out"])
    if not level:  # nodes that share a choice have no limit of rows
        apart = [np.abs(a - b).max() for i, a in enumerate(outs) for b in outs[:i]]
        assert min(apart) > 1e-6
