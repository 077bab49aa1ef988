"""Kernels and twins refuse the same bad arguments, and never read or write outside of an array.

`make asan` runs these calls on kernels that end the process at the first bad access.
"""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_calls import B, M, N, calls

from leaftrace._model.kernels import is_native, kernels
from leaftrace._model.kernels import numpy as twins
from leaftrace._model.losses import Logistic, Softmax

CALLS = calls()
BOTH = [twins, kernels] if is_native() else [twins]
HUGE = [-1, -(2**63), 2**63 - 1, 2**63, 2**70]


class Family:
    """A loss that has nothing but `changes`."""

    def __init__(self, changes):
        self.changes = changes


NO_FAMILY = [
    None, object(), Family(None), Family(()), Family(("power",)), Family(("power", ())), Family((2.0, "power")),
    Family(("nonsense", ())), Family(("squared", (1.0,))), Family(("power", ("x",))), Family("ab"),
]  # fmt: skip


def other_shapes(array):
    """Yield an array with one row more, one less and none, and with more and fewer axes."""
    for axis in range(array.ndim):
        yield np.concatenate([array, array.take([0], axis)], axis)
        yield array.take(range(array.shape[axis] - 1), axis)
        yield array.take([], axis)
    yield array[None].copy()
    yield array[0].copy()
    yield array.flatten()
    yield np.zeros((0,) * array.ndim, array.dtype)


def other_kinds(array):
    """Yield an array in other types and layouts, and things that are not arrays."""
    for dtype in ("float32", "float64", "int32", "int64", "uint8", "uint16", "bool", "complex128"):
        if array.dtype != dtype:
            yield array.astype(dtype)
    yield array.astype(array.dtype.newbyteorder())
    yield np.repeat(array, 2, axis=-1)[..., ::2]
    unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    yield unaligned
    yield from (None, array.tolist(), "text", object())


def other_integers(array):
    """Yield an array of integers with single numbers, or all, out of order or out of range."""
    bounds = np.iinfo(array.dtype)
    yield array[..., ::-1].copy()
    for number in (bounds.min, bounds.min + 1, bounds.max - 1, bounds.max, 1, M, 2 * M, N):
        yield np.full_like(array, number)
        for place in (0, array.size // 2, -1):
            changed = array.copy()
            changed.flat[place] = number
            yield changed


def spoiled(value):
    """Yield values that are wrong, or that might be, in place of one that is right."""
    if isinstance(value, np.ndarray):
        yield from other_shapes(value)
        yield from other_kinds(value)
        if value.dtype.kind in "iu":
            yield from other_integers(value)
    elif isinstance(value, bool):
        yield from (not value, None, "text")
    elif isinstance(value, int):
        yield from (*HUGE, 0, 1, 2, 3, N - 1, N, N + 1, None, 1.5)
    elif isinstance(value, float):
        yield from (None, "text", np.nan, np.inf)
    elif isinstance(value, str):
        yield from ("softmax", "nonsense", "", None, 3)
    elif value is None:
        yield from (np.zeros((N, 1)), np.zeros(M), "text")
    else:
        yield from NO_FAMILY


def outcome(module, kernel, arguments, argument=None, bad=None):
    """Return the type of the error that a call raises, or its arrays after it.

    ``argument``: its value is replaced by ``bad``, which is passed as it lies in memory.
    """
    arguments = copy.deepcopy(arguments)
    if argument is not None:
        arguments[argument] = bad
    try:
        with np.errstate(all="ignore"):
            getattr(module, kernel)(*arguments.values())
    except np.linalg.LinAlgError:  # NumPy's solver found a singular matrix; the native one divides
        return np.linalg.LinAlgError
    except TypeError:
        return TypeError
    except ValueError:
        return ValueError
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def same(a, b):
    """Whether two outcomes are the same error, or the same numbers up to rounding."""
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    return all(np.allclose(a[name], b[name], rtol=1e-9, atol=1e-9, equal_nan=True) for name in a)


@pytest.mark.parametrize("name", CALLS)
def test_the_call_itself_is_accepted(name):
    for module in BOTH:
        assert isinstance(outcome(module, *CALLS[name]), dict)


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments_are_refused_by_both(name):
    """Spoil each argument in turn: kernel and twin raise the same error, or agree on the result."""
    kernel, arguments = CALLS[name]
    differ = []
    refused = 0
    for argument, value in arguments.items():
        for bad in zip(*(spoiled(value) for _ in BOTH), strict=True):
            found = [
                outcome(module, kernel, arguments, argument, wrong)
                for module, wrong in zip(BOTH, bad, strict=True)
            ]
            refused += isinstance(found[0], type)
            if not same(found[0], found[-1]):
                differ.append((argument, bad[0], found))
    assert not differ, f"{len(differ)}, the first: {differ[0]}"
    assert refused > 10 * len(arguments)


@pytest.mark.parametrize("name", CALLS)
def test_any_number_is_computed_with(isa_or_twin, name):
    """Numbers that are not finite, huge or tiny end nothing: no undefined shift, no bad index."""
    kernel, arguments = CALLS[name]
    loss = arguments.get("loss")
    for argument, value in arguments.items():
        has_classes = kernel == "softmax_effects" or getattr(loss, "n_outputs", 1) > 1
        if argument == "y" and has_classes:
            continue  # classes, which are checked where a model is opened, or refused
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            for number in (
                np.nan,
                -np.nan,
                np.inf,
                -np.inf,
                1e308,
                -1e308,
                5e-324,
                -0.0,
                -1.5,
                0.0,
            ):
                result = outcome(
                    isa_or_twin, kernel, arguments, argument, np.full_like(value, number)
                )
                assert isinstance(result, dict) or result is np.linalg.LinAlgError


@pytest.fixture(params=["twin", "baseline", "avx2", "avx512"])
def isa_or_twin(request):
    """The twins, and the kernels on each instruction set that this machine has."""
    if request.param == "twin":
        yield twins
        return
    if not is_native():
        pytest.skip("native kernels are not in use")
    before = kernels.isa()
    try:
        kernels.set_isa(request.param)
    except ValueError:
        pytest.skip(f"no {request.param} here")
    yield kernels
    kernels.set_isa(before)


@pytest.mark.parametrize("module", BOTH)
def test_what_was_read_out_of_bounds(module):
    """The arguments for which the native kernels read or wrote outside of their arrays."""

    def refused(name, text, **changed):
        kernel, arguments = CALLS[name]
        with pytest.raises(ValueError, match=text):
            getattr(module, kernel)(*(arguments | changed).values())

    refused("row_effects, logistic", "tables do not go up", tables=np.array([0, 20 * M, 3 * M]))
    refused("row_effects, logistic", "tables do not go up", tables=np.array([0, -2 * M, 3 * M]))
    refused("pair_sums, 1", "an offset beyond", offset=np.array([0, 2**63 - 1]))
    refused("expand, 1", "an offset beyond", offset=np.array([0, 2**63 - 1]))
    few = {"shift": np.ones((M, 1)), "inner": np.ones((M, 1, B))}
    sums = {"dG": np.ones((M, 1, B)), "dH": np.ones((M, 1, 1, B))}
    name = "change_sums, Softmax softmax, inner iteration"
    refused(name, "one tree, with all outputs", **few, **sums)
    nothing = np.zeros((2 * M, 0))
    refused("tree_scores, 1", "at least one", values=nothing)
    refused("tree_sums, 1", "at least one", out=nothing)
    refused("pair_sums, 1", "at least one", U=np.zeros((2, N, 1, 0)), offset=np.zeros(0, np.int64),
            first=np.zeros(0, np.int32))  # fmt: skip
    for loss in NO_FAMILY:
        refused("removal_step, Logistic logistic", "loss", loss=loss)
        refused(name, "loss", loss=loss)
    refused(
        "removal_step, Softmax softmax", "several outputs of a loss that has one", loss=Logistic()
    )
    refused("removal_step, Logistic logistic", "expected", loss=Softmax(3))


@pytest.mark.parametrize("module", BOTH)
def test_sizes_beyond_any_memory(module):
    """Arrays without a row can have any other size; sizes are multiplied without overflow."""
    many = 2**55
    _, arguments = CALLS["change_sums, Softmax softmax"]
    rows = {"leaf": np.zeros((1, 0), np.uint8), "D": np.zeros((0, many, 1), np.float64)}
    with pytest.raises(ValueError):
        module.change_sums(*(arguments | rows).values())
    with pytest.raises(ValueError, match="at least one"):
        module.top_leaves(np.zeros((many, 0)), 1, np.zeros((many, 0)))


@pytest.mark.parametrize("module", BOTH)
def test_choices_beyond_any_memory(module):
    """Nodes, bins and outputs whose product wraps around, in arrays that are small or have no rows."""
    N = 2**15
    d = 256
    O = 765_000_000  # all sizes of the memory that is asked for wrap around to below zero
    nodes = np.arange(N, dtype=np.int32)
    chain = {"left": N + nodes, "right": np.append(nodes[1:], 2 * N).astype(np.int32)}
    columns = {"sizes": np.full(d, 256, np.int32), "kinds": np.ones(d, np.uint8)}
    columns |= {"column": np.zeros(N, np.int32), "choice": nodes, "shares": np.zeros(N + 1)}
    shapes = {
        "codes": (0, d), "leaf": (0,), "w": (0,), "drawn": (0,), "g": (0, O), "h": (0, O), "j": (0, O, O),
        "k": (0, O, O), "query_codes": (0, d), "query_leaf": (0,), "c": (0, O, 32), "scores": (0, O, 32),
        "abar": (0, O, 32), "out": (0, 32),
    }  # fmt: skip
    _, arguments = CALLS["choice_terms, 1 of 1"]
    rows = {name: np.zeros(shape, arguments[name].dtype) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match="beyond any memory"):
        module.choice_terms(*(arguments | chain | columns | rows).values())


@pytest.mark.parametrize("module", BOTH)
def test_choices_kept_of_another_tree(module):
    """What was kept of a tree has its rows, bins and nodes, and fits no other shape."""

    def run(arguments, kept):
        module.choice_terms(*(copy.deepcopy(arguments) | {"kept": kept}).values())

    kept = module.KeptChoices()
    for name in ("choice_terms, 1 of 1", "choice_terms, 1 of 3"):
        run(CALLS[name][1], kept)
    arguments = CALLS["choice_terms, 1 of 1"][1]
    others = [CALLS["choice_terms, 3 of 3"][1]]
    others.append(arguments | {"kinds": arguments["kinds"][::-1].copy()})
    others.append(arguments | {"choice": np.arange(3, dtype=np.int32)})
    for other in others:
        with pytest.raises(ValueError, match="kept of another tree"):
            run(other, kept)
    for wrong in (0, "text", object()):
        with pytest.raises(TypeError):
            run(arguments, wrong)


NO_THREADS = """
import resource
import sys
import numpy as np
from kernel_calls import calls
from leaftrace._model.kernels import kernels
_, arguments = calls()["choice_terms, 3 of 3"]
alone = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments.values()]
place = list(arguments).index("threads")
alone[place] = 1
arguments["threads"] = 1024
kernels.choice_terms(*alone)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**26,) * 2)
kernels.choice_terms(*arguments.values())
np.testing.assert_array_equal(arguments["out"], alone[list(arguments).index("out")])
"""


@pytest.mark.skipif(not is_native() or sys.platform != "linux", reason="native kernels on Linux")
def test_threads_that_do_not_start():
    """Parts of the work for which there is no thread are done all the same. A sanitizer needs more memory."""
    if "LEAFTRACE_SANITIZED" in os.environ:
        pytest.skip("a limit of memory and the sanitizer exclude each other")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    subprocess.run([sys.executable, "-c", NO_THREADS], env=environment, check=True)
