"""The protocol of a cluster, and of the rows on it before a model is opened.

A function of a partition is pure: it depends on the `Part` and on what the client sends. So
if a partition is lost with its machine, the cluster computes it again, and all that came from it.
What a process keeps between the steps of a pass (`scratch`) is never more than a saving of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..._adapters import Source
from ..._data.arrays import F64, Ids
from .labels import LabelSummary

if TYPE_CHECKING:
    from .part import Facts


class Vectors(NamedTuple):
    """Columns of all rows beside their table, brought to the client; None for those that are not given."""

    y: np.ndarray
    w: F64 | None
    baseline: F64 | None
    qid: np.ndarray | None
    names: np.ndarray | None


LeavesOfRows = tuple[Ids, F64 | None]  # leaves (trees, rows), scores (rows, K) given to the rows


class Cluster(Protocol):
    """Partitions of training rows with their leaves, each kept where it was opened.

    ``sizes``  numbers of rows of the partitions, in the order of their rows
    """

    sizes: list[int]

    @property
    def threads(self) -> int:
        """Number of partitions that are computed with at the same time."""
        ...

    @property
    def n_parts(self) -> int:
        """Number of partitions."""
        ...

    def check(self) -> None:
        """Raise an error if work that is sent to the cluster would wait for ever."""
        ...

    def send(self, data: Any) -> Any:
        """Send data to all machines: functions of partitions get the data for what this returns."""
        ...

    def total(self, fn: Callable[..., Any], **common: Any) -> Any:
        """The sum of fn(part, **common) over all partitions."""
        ...

    def go_on(self, key: str, fn: Callable[..., Any], **common: Any) -> Any | None:
        """The sum of fn(state, **common) over the states that processes have kept in this pass.

        None if a partition has no state, or fn returns None for it: then `total` has to be asked.
        Far less is sent than by `total`, so this is for steps that take little time.
        """
        ...

    def forget(self, key: str) -> None:
        """Let go of the states of a pass."""
        ...

    def give(self, facts: Sequence[Facts]) -> None:
        """Keep the partitions with these facts about their rows from now on."""
        ...


class Rows(Protocol):
    """Training rows on a cluster, before the model is opened.

    ``ordered``  whether they are counted in the order of training
    """

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of the table; numbers as text if they have none."""
        ...

    def in_order(self) -> Rows:
        """The same rows, counted in the order of training."""
        ...

    def labels(self) -> LabelSummary:
        """A summary of all labels and weights."""
        ...

    def first(self, count: int) -> tuple[Any, Any]:
        """A table of this many rows, which repeat if there are fewer, and their baseline or None."""
        ...

    def open(self, source: Source, labels: LabelSummary) -> Cluster:
        """Find the leaves of all rows and keep them on the cluster, without the table."""
        ...

    def vectors(self) -> Vectors:
        """Labels, weights, scores given to rows, queries and names of all rows."""
        ...

    def tables(self) -> Iterator[Any]:
        """The table in parts, one after the other, brought to the client."""
        ...

    def leaves(self, source: Source) -> Iterator[LeavesOfRows]:
        """Leaves of the rows in parts, one after the other, found on the cluster."""
        ...
