"""From leaves to the rows of a partition: values, the most important rows, sums over groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..._data.arrays import Ints, Real
from ..._engine.backward import LeafAdjoint, expand_labels, expand_training
from ..._engine.jumps import refuse_jumping_rows
from ..._engine.replay import Trace
from ..influence import Influence, rank
from .part import Part


@dataclass(frozen=True)
class QueryWords:
    """Facts about the queries that decide the words of tables: see `Influence`."""

    of: str
    method: str
    lower_is_better: bool | None


def part_influence(part: Part, trace: Trace, blocks: Sequence[LeafAdjoint]) -> Real:
    """(n, columns) dQ/dw of the rows of this partition."""
    work = part.workspace(trace, blocks[0].fbar.dtype)
    refuse_jumping_rows(work.trace, np.arange(len(part)))
    return np.concatenate([expand_training(work, block, None) for block in blocks], axis=1)


def part_labels_influence(
    part: Part, trace: Trace, blocks: Sequence[LeafAdjoint], target: int | None
) -> Real:
    """(n, columns) dQ/dy of the rows of this partition; ``target`` as in `label_slopes`."""
    work = part.workspace(trace, blocks[0].fbar.dtype)
    found = [
        np.concatenate(
            [
                _towards(expand_labels(work, block, work.rows.take(chunk)), part, chunk, target)
                for chunk in work.row_chunks(np.arange(len(part)))
            ]
        )
        for block in blocks
    ]
    return np.concatenate(found, axis=1)


def _towards(slopes: Real, part: Part, chunk: Ints, target: int | None) -> Real:
    """(rows, columns) from slopes (rows, columns, Y): of the label, or of moving to a class."""
    y = part.facts.y
    if target is None:
        return slopes[..., 0]
    if y.ndim == 2:
        return slopes[..., target]
    own = y[chunk].astype(int)[:, None, None]
    return slopes[..., target] - np.take_along_axis(slopes, own, axis=2)[..., 0]


# Positions over all rows, names, effects and changes of the most important rows of one query.
TopOfQuery = tuple[Ints, np.ndarray, np.ndarray, Real]


@dataclass(frozen=True)
class TopRows:
    """The k rows that matter most to each query."""

    k: int
    queries: tuple[TopOfQuery, ...]

    def __add__(self, other: TopRows) -> TopRows:
        out = []
        for mine, theirs in zip(self.queries, other.queries, strict=True):
            columns = (np.concatenate(pair) for pair in zip(mine, theirs, strict=True))
            number, name, effect, change = columns
            first = np.lexsort((number, -np.abs(change)))[: self.k]  # ties go to the earlier row
            out.append((number[first], name[first], effect[first], change[first]))
        return TopRows(self.k, tuple(out))


def influence_of_part(
    part: Part, trace: Trace, values: Real, words: QueryWords, columns: int
) -> Influence:
    """Values of the rows of this partition as a result of its own."""
    return Influence(
        values,
        part.names,
        np.arange(columns),
        words.of,
        words.method,
        "removed",
        part.ensemble(trace.ensemble).sample_weight,
        lower_is_better=words.lower_is_better,
    )


def part_top(
    part: Part, trace: Trace, block: LeafAdjoint, k: int, effect: str | None, words: QueryWords
) -> TopRows:
    """The rows of this partition that matter most."""
    values = part_influence(part, trace, [block])
    influence = influence_of_part(part, trace, values, words, block.columns)
    queries = [
        (rows + part.start, part.names[rows], np.array(effects, dtype=object), change)
        for rows, effects, change in rank(influence, k, effect)
    ]
    return TopRows(k, tuple(queries))
