"""Checks of the twins' arguments, which refuse what the native kernels refuse.

`checked` compares arrays with the axes that a kernel states. The functions after it look at values:
ids and offsets within their tables, ranges of rows, the loss. What has a wrong type is a TypeError,
everything else a ValueError, as in ``src/native/arguments.hpp``.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..._data.arrays import Ids, Ints, Real

Result = TypeVar("Result")

BLOCKS = (1, 8, 32)  # numbers of columns in a block that the native kernels are compiled for

TYPES = {
    "ids": ("uint8", "uint16", "uint32"),
    "uint8": ("uint8",),
    "uint32": ("uint32",),
    "int32": ("int32",),
    "int64": ("int64",),
    "real": ("float32", "float64"),
    "state": ("float32", "float64"),  # not always the type of the other numbers
    "float64": ("float64",),
    "mask": ("bool",),
}
NEVER_EMPTY = ("O", "K", "B", "N", "d", "columns")  # outputs of a leaf, outputs, columns

# Families of `changes` of a loss, and how many numbers each has.
NUMPY_FAMILY = "numpy"  # only the twins have it, and labels of several numbers
FAMILIES = {
    "squared": 0, "logistic": 0, "poisson": 0, "softmax": 0, "residual": 11, "margin": 11,
    "relative": 11, "exponentials": 5, "sigmoid": 2, "pseudo-Huber": 1, "fair": 1, "power": 1,
    "squared log": 1, NUMPY_FAMILY: 0,
}  # fmt: skip
ONE_OUTPUT = ("squared", "logistic", "poisson")


def require(is_right: bool, what: str) -> None:
    """Raise a ValueError that says what is wrong, unless it is right."""
    if not is_right:
        raise ValueError(f"leaftrace kernel: {what}")


def checked(**arguments: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a twin: check the arguments that are named here, in this order, before it runs.

    ``"int"`` and ``"bool"`` are numbers. Arrays are ``"type axes"``: a type of `TYPES`, and an axis
    is a number, a name that stands for one size in all arrays of the call, or a name and ``+1``.
    ``|`` separates alternatives of axes. ``out`` in front: the array is written to; ``?`` at the
    end: it may be None. All ids of a call have one type, and so have all real numbers. ``labels``
    is float64, and may have a second axis for a loss that only the twins have.
    """

    def decorate(twin: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(twin)

        @functools.wraps(twin)
        def with_checks(*args: Any, **kwargs: Any) -> Result:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            _check_arguments(arguments, given.arguments)
            return twin(*args, **kwargs)

        return with_checks

    return decorate


def _check_arguments(arguments: dict[str, str], given: dict[str, Any]) -> None:
    sizes: dict[str, int] = {}
    types: dict[str, np.dtype] = {}
    for name, text in arguments.items():
        value = given[name]
        if text.startswith("labels "):
            text = _label_axes(text.removeprefix("labels "), given["loss"])
        if text == "bool":
            require_type(isinstance(value, bool), name, "True or False")
        elif text == "int":
            require_type(-(2**63) <= operator.index(value) < 2**63, name, "a 64-bit number")
        elif value is not None or not text.endswith("?"):
            _check_array(name, value, text.removesuffix(" ?"), sizes, types)


def _label_axes(rows: str, loss: Any) -> str:
    """The type and axes of labels of this loss."""
    family = getattr(loss, "changes", None)
    several = isinstance(family, tuple) and family[:1] == (NUMPY_FAMILY,)
    return f"float64 {rows} | {rows} Y" if several else f"float64 {rows}"


def _check_array(
    name: str, array: Any, text: str, sizes: dict[str, int], types: dict[str, np.dtype]
) -> None:
    """Check one array, and remember its sizes by their names, and its type."""
    is_output = text.startswith("out ")
    kind, _, axes = text.removeprefix("out ").partition(" ")
    alternatives = [axis.split() for axis in axes.split("|")]
    require_type(isinstance(array, np.ndarray), name, "an array")
    require_type(array.dtype.isnative and array.dtype.name in TYPES[kind], name, kind)
    require_type(array.dtype == types.setdefault(kind, array.dtype), name, str(types[kind]))
    require_type(array.flags.c_contiguous, name, "in C order")
    require_type(array.flags.writeable or not is_output, name, "writable")
    matching = [names for names in alternatives if len(names) == array.ndim]
    require_type(bool(matching), name, f"of axes ({axes})")
    expected = tuple(
        _size(axis, size, sizes) for axis, size in zip(matching[0], array.shape, strict=True)
    )
    require(array.shape == expected, f"{name} has shape {array.shape}, expected {expected}")
    require(array.flags.aligned, f"{name} is not aligned in memory; pass a copy of it")


def require_type(is_right: bool, name: str, expected: str) -> None:
    """Raise a TypeError that says what an argument is not, unless it is right."""
    if not is_right:
        raise TypeError(f"leaftrace kernel: {name} is not {expected}")


def _size(axis: str, found: int, sizes: dict[str, int]) -> int:
    """The size that an axis must have; the first array with an unknown size decides on it."""
    if axis.isdigit():
        return int(axis)
    if axis.endswith("+1"):
        return sizes.setdefault(axis[:-2], found - 1) + 1
    size = sizes.setdefault(axis, found)
    is_empty = size == 0 and axis.rstrip("'") in NEVER_EMPTY
    require(not is_empty, f"{axis}: there must be at least one")
    require(axis != "B" or size in BLOCKS, "a block has 1, 8 or 32 columns")
    return size


def check_ids(ids: Ids, M: int, offset: int = 0) -> None:
    """Refuse ids that are not rows of a table of M rows, counted from an offset."""
    require(0 <= offset <= M, "an offset beyond its table")
    require(ids.size == 0 or int(ids.max()) < M - offset, "an id beyond its table")


def check_forest(leaf: Ids, offset: Ints, M: int) -> None:
    """Refuse ids of trees, each with its own offset, that are not among M leaves."""
    for ids, start in zip(leaf, offset.tolist(), strict=True):
        check_ids(ids, M, start)


def check_chain(leaf: Ids, edges: Ints, begin: int, end: int, M: int) -> None:
    """Refuse rows and ids beyond steps of one tree each, with M leaves in all."""
    check_rows(begin, end, leaf.shape[1])
    check_edges("edges", edges, M, least=1)
    for ids, leaves in zip(leaf, np.diff(edges).tolist(), strict=True):
        check_ids(ids[begin:end], leaves)


def check_first(first: Ints, O: int, K: int) -> None:
    """Refuse trees that write to other outputs than 0 .. K - 1."""
    is_inside = (first >= 0) & (first <= K - O)
    require(bool(is_inside.all()), "outputs of a tree beyond K")


def check_rows(begin: int, end: int, n: int) -> None:
    """Refuse what is not a range of n rows."""
    require(0 <= begin <= end <= n, "begin and end are not a range of the rows")


def check_numbers(name: str, numbers: Ints, least: int, end: int) -> None:
    """Refuse numbers below `least`, or from `end` on."""
    is_right = bool(np.all((numbers >= least) & (numbers < end)))
    require(is_right, f"{name} is beyond its table")


def check_edges(name: str, edges: Ints, end: int, least: int) -> None:
    """Refuse edges that do not go from 0 to `end`, up by at least `least` each time."""
    is_inside = edges[0] == 0 and edges[-1] == end and np.all((edges >= 0) & (edges <= end))
    is_right = is_inside and np.all(np.diff(edges) >= least)
    require(bool(is_right), f"{name} do not go up from 0 to {end}")


def check_together(**arguments: Any) -> None:
    """Refuse arguments of which only some are None."""
    missing = {value is None for value in arguments.values()}
    *names, last = arguments
    require(len(missing) == 1, f"{', '.join(names)} and {last} go together")


def check_name(loss: str) -> None:
    """Refuse a name that is not that of a loss with one-output kernels."""
    require_type(isinstance(loss, str), "loss", "a name")
    require(loss != "softmax", "softmax has no one-output kernel")
    require(loss in ONE_OUTPUT, f"unknown loss '{loss}'")


def check_loss(loss: Any, K: int) -> str:
    """Refuse a loss without a family of kernels, or of another number of outputs; its family."""
    changes: Any = getattr(loss, "changes", None)
    is_family = isinstance(changes, tuple) and len(changes) == 2 and isinstance(changes[0], str)
    need = "a loss needs `changes`: the name of a family of kernels, and its numbers"
    require(is_family and isinstance(changes[1], tuple), need)
    family, numbers = changes
    require(all(isinstance(number, int | float) for number in numbers), need)
    require(family in FAMILIES, f"unknown loss '{family}'")
    expected = FAMILIES[family]
    require(
        len(numbers) == expected,
        f"loss '{family}' has {len(numbers)} numbers, expected {expected}",
    )
    require(K == 1 or family not in ONE_OUTPUT, "several outputs of a loss that has one")
    return family


def check_state(state: Real, family: str, K: int, real: np.dtype) -> None:
    """Refuse a state (n, C) that a loss of this family does not have.

    The general losses have scores in float64; the others a state in the type of the call.
    """
    is_general = family not in (*ONE_OUTPUT, "softmax")
    expected = np.dtype(np.float64) if is_general else real
    require_type(state.dtype == expected, "state", "of the type that this loss takes")
    shape = (len(state), 2 if family == "logistic" else K)
    require(state.shape == shape, f"state has shape {state.shape}, expected {shape}")
