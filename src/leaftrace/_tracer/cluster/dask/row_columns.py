"""Columns for the training rows that a user gives later: groups, and masks of rows to leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Future

from ...._data.errors import InvalidInput
from ...._data.frames import to_numpy
from ...._data.row_labels import aligned as in_order_of
from ..part import Part
from ..table import joined
from .cluster import DaskCluster, cluster_errors
from .rows import delayed_partitions, reading_errors


def spread_column(cluster: DaskCluster, column: Any, name: str, labelled: bool) -> list[Future]:
    """An array for each partition of the training rows, in the order of its rows.

    ``name``      of the column, for messages
    ``labelled``  whether the rows have an index, by which the column is put in their order
    """
    parts, sizes = _computed(cluster, column, name)
    if [n for n in sizes if n] != cluster.sizes:
        raise InvalidInput(
            f"the partitions of {name} have {_listed(sizes)} rows, those of training {_listed(cluster.sizes)}; pass "
            "one value for each row, in the same partitions."
        )
    full = [part for part, n in zip(parts, sizes, strict=True) if n]
    return cluster.map_with(column_of_part, [full], name=name, labelled=labelled)


def column_of_part(part: Part, values: Any, name: str, labelled: bool) -> np.ndarray:
    """(n,) the column of a partition in the order of its rows."""
    return to_numpy(in_order_of(values, part.names if labelled else None, name))


def brought_column(
    cluster: DaskCluster, column: Any, name: str, n: int, labels: np.ndarray | None
) -> np.ndarray:
    """(n,) the column of all training rows at the client, in the order of these labels."""
    parts, sizes = _computed(cluster, column, name)
    if sum(sizes) != n:
        raise InvalidInput(f"{name} has {sum(sizes)} rows for {n} of training; pass one for each.")
    return to_numpy(in_order_of(joined(cluster.gather(parts)), labels, name))


def _computed(cluster: DaskCluster, column: Any, name: str) -> tuple[list[Future], list[int]]:
    """The partitions of a column on the cluster, and their numbers of rows."""
    cluster.check()
    with cluster_errors(), reading_errors(name):
        parts = cluster.client.compute(delayed_partitions(column, name), retries=2)
        return parts, cluster.gather(cluster.client.map(len, parts, pure=False))


def _listed(sizes: list[int]) -> str:
    shown = ", ".join(map(str, sizes[:8]))
    return f"{shown}, ..." if len(sizes) > 8 else shown
