"""`DaskInfluence`: values of training rows that stay with their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Future

from ...._data.arrays import F64, Real
from ...._data.errors import InvalidInput
from ...._data.grouping import groups_of_values, is_missing
from ...._data.tables import table
from ...influence import FIRST_ORDER, Influence, rank
from ..answers import QueryWords, TopRows
from ..part import Part

if TYPE_CHECKING:
    from .tracer import Tracer


@dataclass(frozen=True)
class ValueWords:
    """The kind of the values of a result: see `Influence`.

    ``weight_is``  the size of the action: "sample weight", "flip" (1 - 2 y) or "one"
    """

    query: QueryWords
    action: str = "removed"
    weight_is: str = "sample weight"

    def influence(self, part: Part, values: Real, sample_weight: F64) -> Influence:
        """Values of the rows of a partition as a result of its own."""
        weight = {
            "sample weight": lambda: sample_weight,
            "flip": lambda: 1 - 2 * part.facts.y,
            "one": lambda: np.ones(len(part)),
        }[self.weight_is]()
        return Influence(
            values,
            part.names,
            np.arange(values.shape[1]),
            self.query.of,
            self.query.method,
            self.action,
            weight,
            lower_is_better=self.query.lower_is_better,
        )


class DaskInfluence:
    """Influence of training rows (lines) on queries (columns), in the partitions of the rows.

    ``values``      (rows, queries) a Dask array; as in `leaftrace.Influence`
    ``test_index``  (queries,) names of the test rows, or "mean" / "sum"
    ``compute()``   gives a `leaftrace.Influence`, with all values at the client
    """

    def __init__(
        self, tracer: Tracer, chunks: list[Future], test_index: np.ndarray, words: ValueWords
    ) -> None:
        self._tracer = tracer
        self._chunks = chunks
        self._words = words
        self.test_index = test_index

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, queries)."""
        return self._tracer.n_rows, len(self.test_index)

    @property
    def values(self) -> da.Array:
        """(rows, queries) as a Dask array, whose chunks are the partitions."""
        engine = self._tracer.engine
        assert engine is not None
        arrays = [
            da.from_delayed(delayed(chunk), (n, len(self.test_index)), engine.work.dtype)
            for chunk, n in zip(self._chunks, self._tracer.cluster.sizes, strict=True)
        ]
        return da.concatenate(arrays)

    def compute(self) -> Influence:
        """All values at the client."""
        parts = self._map(_result_of_part)
        found: list[Influence] = self._tracer.cluster.gather(parts)
        return replace(
            found[0],
            values=np.concatenate([x.values for x in found]),
            train_index=np.concatenate([x.train_index for x in found]),
            weight=np.concatenate([x.weight for x in found]),
            test_index=self.test_index,
        )

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to each query, as `leaftrace.Influence.top`."""
        if k < 1:
            raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
        tops = self._map(_top_of_part, k=k, effect=effect)
        found: TopRows = self._tracer.cluster.add_up(tops)
        of = self._words.query.of
        return self._tracer._top_table(list(found.queries), self.test_index, of, self._words.action)

    def mean(self) -> DaskInfluence:
        """The mean over the queries, in one column."""
        chunks = self._tracer.client.map(_row_means, self._chunks, pure=False)
        return DaskInfluence(self._tracer, chunks, np.array(["mean"]), self._words)

    def by(self, groups: Any) -> Any:
        """Totals over groups of training rows: a line for each query and group.

        ``groups``: a label for each training row, in a Dask Series or Array with the partitions of
        the rows.
        """
        sums = self._map(_sums_by_group, self._tracer._spread(groups, "groups"))
        return group_table(self._tracer.cluster.add_up(sums), self.test_index, self._words)

    def _map(self, fn: Any, *items: Sequence[Any], **common: Any) -> list[Future]:
        """fn of each partition's result, and of these items of it."""
        cluster = self._tracer.cluster
        engine = self._tracer.engine
        assert engine is not None
        given = {"trace": engine.sent, "words": self._words, **common}
        return cluster.map_with(_with_values, [self._chunks, *items], make=fn, given=given)


def _with_values(part: Part, values: Real, *items: Any, make: Any, given: dict[str, Any]) -> Any:
    words: ValueWords = given["words"]
    sample_weight = part.ensemble(given["trace"].ensemble).sample_weight
    result = words.influence(part, np.asarray(values), sample_weight)
    more = {name: value for name, value in given.items() if name not in ("words", "trace")}
    return make(part, result, *items, **more)


def _result_of_part(part: Part, result: Influence) -> Influence:
    return result


def _row_means(values: Real) -> Real:
    return values.mean(axis=1, keepdims=True)


def _top_of_part(part: Part, result: Influence, k: int, effect: str | None) -> TopRows:
    queries = [
        (rows + part.start, part.names[rows], np.array(effects, dtype=object), change)
        for rows, effects, change in rank(result, k, effect)
    ]
    return TopRows(k, tuple(queries))


@dataclass(frozen=True)
class GroupSums:
    """Sums over groups: by group the number of rows, and (3, queries) of values, burdens, changes.

    The rows without a label are the group None.
    """

    by_group: dict[Any, tuple[int, F64]]

    def __add__(self, other: GroupSums) -> GroupSums:
        both = dict(self.by_group)
        for name, (count, sums) in other.by_group.items():
            before = both.get(name, (0, np.zeros_like(sums)))
            both[name] = (before[0] + count, before[1] + sums)
        return GroupSums(both)


def _sums_by_group(part: Part, result: Influence, labels: np.ndarray) -> GroupSums:
    groups = groups_of_values(labels)
    absent = is_missing(labels)
    stacked = np.stack([result.values, result.burden, result.change]).astype(np.float64)
    found = {}
    for g, name in enumerate(groups.names.tolist()):
        here = groups.rows(g)
        key = None if absent[here[0]] else name
        found[key] = (len(here), stacked[:, here].sum(axis=1))
    return GroupSums(found)


def group_table(sums: GroupSums, test_index: np.ndarray, words: ValueWords) -> Any:
    """The table of `Influence.by`."""
    labels = np.empty(len(sums.by_group), dtype=object)
    labels[:] = list(sums.by_group)
    groups = groups_of_values(labels)
    in_order = [sums.by_group[labels[i]] for i in np.argsort(groups.code)]
    names = groups.names if None in sums.by_group else np.array(groups.names.tolist())
    count = np.array([rows for rows, _ in in_order])
    parts = np.stack([found for _, found in in_order])  # (G, 3, queries)
    total, burden, change = (parts[:, i].T.ravel() for i in range(3))
    times = len(test_index)
    empty = Influence(
        np.zeros((0, times)),
        np.zeros(0),
        test_index,
        words.query.of,
        action=words.action,
        lower_is_better=words.query.lower_is_better,
    )
    return table(
        {
            "test_row": np.repeat(test_index, len(names)),
            "test_position": np.repeat(np.arange(times), len(names)),
            "group": np.tile(names, times),
            "rows": np.tile(count, times),
            "effect": np.array([empty.effect_word(b) for b in burden], dtype=object),
            "total": total,
            "mean": total / np.tile(count, times),
            f"{words.query.of}_change_if_{words.action}": change,
            "change_is": np.full(len(change), FIRST_ORDER, dtype=object),
        },
        "",
    )
