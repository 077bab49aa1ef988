"""`Influence`: the result of a tracer, as values and tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from .._data import inputs
from .._data.arrays import F64, Ints, Real
from .._data.errors import InvalidInput
from .._data.grouping import SourceTables
from .._data.tables import notebook, table, wide_table
from .exports import as_opendataval, as_pydvl
from .influence_file import read_fields, write_influence
from .noise_floor import noise_marks

# Which of several numbers a change in a table is.
FIRST_ORDER = "first order, trees fixed"
SOFT_SPLITS = "first order, soft splits"
REFITTED = "refitted, trees fixed"

# Phrases for the actions whose effect `Influence.change` is, to put in a sentence.
ACTION_PHRASES = {
    "removed": "without it",
    "weight_zero": "with its weight at zero",
    "absent": "without its pairs",
    "added": "with it added",
    "flipped": "with its label flipped",
    "relabelled": "with its label moved",
    "label_raised": "with its label raised by one",
}


@dataclass(frozen=True, repr=False)
class Influence:
    """Influence of training rows (lines) on queries (columns).

    ``values``       (rows, queries), the paper's sign: dQ/dw_i, or Q(with) - Q(without). With Q a
                     loss, positive means that the row hurts; tables have the words `harmful` and
                     `helpful`
    ``train_index``  (rows,) labels of the training rows, from a DataFrame's index if there was one
    ``positions``    (rows,) positions of the training rows (of new rows, with "added"); None: all,
                     in their order
    ``test_index``   (queries,) labels of the test rows, or "mean" / "sum"
    ``of``           "loss", "prediction", "goal" or the name of a `Goal`
    ``method``       how it was computed
    ``action``       the action whose effect tables show: rows "removed" or "added"; with a loss
                     that couples rows, "weight_zero" (its pairs stay) or "absent" (they go); labels
                     "flipped" (two classes), "relabelled" (to a given class) or "label_raised" (by
                     one, for numbers)
    ``weight``       (rows,) size of the action: sample weights for "removed", 1 - 2 y for
                     "flipped", otherwise 1
    ``derivative``   whether values are derivatives (True) or effects of removal (False)
    ``structure_changed``  (rows,) with Retrain: whether any tree's structure changed without the
                           row
    ``per_label``    with score_candidates and no labels: the values under each possible label
    ``lower_is_better``  for the query; None: not known, and tables have the words `raises` and
                     `lowers`
    ``tables``       tables in which `by` finds columns of the rows and of the queries; files and
                     pickles do not keep them
    ``scored``       values are scores of some of `baselines`: only their order counts, and they are
                     no change of the query
    ``change_is``    which of these a change is, for tables: "first order, trees fixed", "first
                     order, soft splits", "refitted, trees fixed" or "retrained"
    ``noise``        (queries,) the size from which a change stands out of retraining without a
                     random row, NaN where that was not measured; None: see `Tracer.noise_floor`
    ``unit``         what a line is: a "row", or a whole "query" of a ranker's training rows
    """

    values: Real
    train_index: np.ndarray
    test_index: np.ndarray
    of: str = "loss"
    method: str = ""
    action: str = "removed"
    weight: F64 = field(default_factory=lambda: np.ones(1))
    derivative: bool = True
    structure_changed: np.ndarray | None = None
    per_label: Mapping[Any, Real] | None = None
    lower_is_better: bool | None = None
    tables: SourceTables = field(default_factory=SourceTables)
    scored: bool = False
    change_is: str = ""
    noise: F64 | None = None
    positions: Ints | None = None
    unit: str = "row"

    def __post_init__(self) -> None:
        if not self.change_is:
            object.__setattr__(self, "change_is", FIRST_ORDER if self.derivative else REFITTED)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, queries)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def change(self) -> Real:
        """(rows, queries) change of the query by the action, to first order for derivatives.

        For scores it is minus the score, which takes its place in comparisons.
        """
        if not self.derivative:
            return -self.values
        leaves = self.action in ("removed", "weight_zero", "absent")
        direction = -self.weight if leaves else self.weight
        return self.values * direction.astype(self.values.dtype)[:, None]

    @property
    def burden(self) -> Real:
        """(rows, queries) positive if the row, or its label as it is, raises the query."""
        return -self.change if self.action in ("flipped", "relabelled") else self.values

    @property
    def effect_words(self) -> tuple[str, str]:
        """Words for a row of positive and for one of negative burden."""
        if self.action == "label_raised" or (self.lower_is_better is None and self.of != "loss"):
            return "raises", "lowers"
        return ("helpful", "harmful") if self.lower_is_better is False else ("harmful", "helpful")

    def effect_word(self, burden: float) -> str:
        """The word for a row of this burden: one of `effect_words`, or "none"."""
        positive, negative = self.effect_words
        if burden > 0:
            return positive
        return negative if burden < 0 else "none"

    @property
    def _change_name(self) -> str:
        """The name of the column of changes in tables."""
        return f"{self.of}_change_if_{self.action}"

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to each query, as a tidy table.

        ``effect`` keeps only one side: "harmful" or "helpful" for a loss, otherwise "raises" or
        "lowers".
        """
        tops = rank(self, k, effect)
        name = self._change_name
        if self.scored:
            tops = [(rows, effects, -change) for rows, effects, change in tops]
            name = "score"
        rows = self.row_columns()
        unit = None if self.scored else Unit(self.change_is, self.noise)
        return top_table(tops, rows, self.test_index, name, self.tables.kind, unit)

    def row_columns(self) -> dict[str, np.ndarray]:
        """Columns (rows,) of a table that name the rows of this result."""
        if self.unit == "query":
            return {"train_query": self.train_index}
        positions = np.arange(len(self.values)) if self.positions is None else self.positions
        label = "new_row" if self.action == "added" else "train_row"
        return {label: self.train_index, "position": positions}

    def mean(self) -> Influence:
        """The mean over the queries, in one column."""
        return replace(
            self,
            values=self.values.mean(axis=1, keepdims=True),
            test_index=np.array(["mean"]),
            per_label=None,
            tables=replace(self.tables, test=None, reduced=True),
            noise=None,
        )

    def data_values(self) -> F64:
        """(rows,) what each row is worth, in the mean over the queries: positive is valuable.

        That is the convention of data valuation, opposite to the sign of `values`: how far a row,
        with the weight it has, lowers a loss, or raises a goal of which more is better. It is to
        first order for derivatives; of scores, only the order counts. `data_values` of the package
        averages it over small training sets.
        """
        if self.action not in ("removed", "added") or self.effect_words[0] == "raises":
            raise InvalidInput(
                f"this is an influence of rows '{self.action}' on {self.of}, which has no better and worse; ask "
                'for that of rows on a loss, such as tracer.influence(X_val, y_val, reduce="mean").'
            )
        change = self.change.mean(axis=1, dtype=float)
        worth = change if self.action == "removed" else -change
        return -worth if self.lower_is_better is False else worth

    def to_pydvl(self) -> Any:
        """`data_values` as a ValuationResult of pyDVL, which sorts, slices and plots them."""
        positions = np.arange(len(self.values)) if self.positions is None else self.positions
        return as_pydvl(self.data_values(), self.train_index, positions, f"leaftrace {self.method}")

    def to_opendataval(self) -> Any:
        """`data_values` as a finished DataEvaluator of OpenDataVal, for its experiments."""
        return as_opendataval(self.data_values())

    def by(self, groups: Any, test_groups: Any = None, *, bins: int = 5) -> Any:
        """Totals over groups of training rows: a line for each query and group, or slice and group.

        >>> tracer.influence(X_test, y_test).by("age", test_groups="sex")         # doctest: +SKIP

        ``groups``       one label for each row of this result, or the name of a column of their
                         table
        ``test_groups``  the same for the queries: a slice is the mean over its test rows
        ``bins``         number of groups of about equal size into which a column of many numbers is
                         cut

        For derivatives, the total is the first-order effect of removing the whole group;
        `group_effects` also has the exact effect.
        """
        rows = self.tables.train_groups(groups, len(self.train_index), bins)
        parts = [rows.sums(x) for x in (self.values, self.burden, self.change)]  # (G, queries) each
        if test_groups is None:
            head = {
                "test_row": np.repeat(self.test_index, len(rows)),
                "test_position": np.repeat(np.arange(len(self.test_index)), len(rows)),
            }
        else:
            if self.tables.reduced:
                raise InvalidInput(
                    "this result is one column for all test rows; ask for influence() without reduce=."
                )
            slices = self.tables.test_groups(test_groups, len(self.test_index), bins)
            parts = [slices.means(part.T).T for part in parts]  # (G, slices) each
            head = {
                "slice": np.repeat(slices.names, len(rows)),
                "test_rows": np.repeat(slices.count, len(rows)),
            }
        total, burden, change = (part.T.ravel() for part in parts)
        times = len(total) // len(rows)
        columns = {
            **head,
            "group": np.tile(rows.names, times),
            "rows": np.tile(rows.count, times),
            "effect": np.array([self.effect_word(b) for b in burden], dtype=object),
            "total": total,
            "mean": total / np.tile(rows.count, times),
        }
        if not self.scored:
            columns[self._change_name] = change
            columns["change_is"] = np.full(len(change), self.change_is, dtype=object)
        return table(columns, self.tables.kind)

    def to_frame(self) -> Any:
        """The values as a wide table: training rows down, queries across.

        The rows have their labels and positions: in pandas as the two levels of the index.
        """
        return wide_table(self.values, self.row_columns(), self.test_index, self.tables.kind)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a .npz file (no pickle). The file appears complete or not at all."""
        write_influence(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Influence:
        """Read a file that `save` wrote."""
        return cls(**read_fields(path))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tables": SourceTables(kind=self.tables.kind)}

    def __repr__(self) -> str:
        rows, queries = self.shape
        noun = "query" if queries == 1 else "queries"
        lines_are = "training rows" if self.unit == "row" else "training queries"
        lines = [f"Influence of {rows:,} {lines_are} on {queries:,} {noun} of {self.of}"]
        lines.append(f"  method: {self.method}")
        if rows and queries:
            lines += self._extremes()
        if self.noise is not None:
            lines.append(f"  {self._noise_in_words()}")
        return "\n".join(lines)

    def _noise_in_words(self) -> str:
        """How many of the changes stand out of retraining without a random row."""
        assert self.noise is not None
        measured = ~np.isnan(self.noise)
        if not measured.any():
            return "above noise: not measured for these test rows"
        above = int((np.abs(self.change[:, measured]) > self.noise[measured]).sum())
        count = self.shape[0] * int(measured.sum())
        return f"above noise: {above:,} of {count:,} changes stand out of retraining without a random row"

    def _extremes(self) -> list[str]:
        """Lines about the rows with the largest and the smallest mean burden."""
        burden = self.burden.mean(axis=1)
        change = self.change.mean(axis=1)
        rows = {self.effect_word(burden[row]): row for row in (burden.argmin(), burden.argmax())}
        suffix = " (mean over queries)" if self.shape[1] > 1 else ""
        phrase = ACTION_PHRASES[self.action]
        lines = []
        for effect, row in reversed(rows.items()):
            if self.scored:
                size = f"score {burden[row]:+.3g}"
            else:
                size = f"{phrase} the {self.of} changes by {change[row]:+.3g} ({self.change_is})"
            lines.append(f"  most {effect}: {self.unit} {self.train_index[row]}; {size}{suffix}")
        return lines

    def _repr_html_(self) -> str:
        """The first queries as a notebook shows them."""
        rows, queries = self.shape
        title, *lines = repr(self).splitlines()
        if not rows or not queries:
            return notebook(title, *lines)
        first = slice(0, 3)
        some = replace(
            self,
            values=self.values[:, first],
            test_index=self.test_index[first],
            per_label=None,
            noise=None if self.noise is None else self.noise[first],
        )
        more = [f"... and {queries - 3:,} more queries; .top(k) has them all"]
        others = more if queries > 3 else []
        return notebook(title, *lines, some.top(5), *others)


Ranked = tuple[np.ndarray, list[str], Real]  # positions, effects, changes; most important first


def rank(influence: Influence, k: int, effect: str | None) -> list[Ranked]:
    """For each query, the k rows with the largest change; ties go to the earlier row."""
    if not inputs.is_whole(k) or k < 1:
        raise InvalidInput(f"k is {k!r}; ask for 1 or more rows.")
    positive, negative = influence.effect_words
    if not inputs.is_name(effect, (None, positive, negative)):
        raise InvalidInput(
            f"effect is {effect!r}; for {influence.of} it can be '{positive}', '{negative}' or None for both."
        )
    sign = 1 if effect == positive else -1
    out = []
    for burden, change in zip(influence.burden.T, influence.change.T, strict=True):
        size = np.abs(change)
        if effect is not None:
            size = np.where(burden * sign > 0, size, -1)
        order = largest(size, min(int(k), len(size)))
        order = order[size[order] >= 0]
        out.append((order, [influence.effect_word(b) for b in burden[order]], change[order]))
    return out


def largest(size: Real, k: int) -> np.ndarray:
    """Positions of the k largest, in order."""
    candidates = np.arange(len(size))
    if k < len(size):  # all that could be among the first k, before they are sorted
        candidates = np.flatnonzero(size >= np.partition(size, len(size) - k)[len(size) - k])
    return candidates[np.argsort(-size[candidates], kind="stable")][:k]


class Unit(NamedTuple):
    """The kind of the changes in a table, and (queries,) from which size they stand out of noise."""

    change_is: str
    noise: F64 | None = None

    def columns(self, name: str, change: Real, query: np.ndarray) -> dict[str, np.ndarray]:
        """Columns with changes (lines,) of the queries with these numbers (lines,).

        The changes and what they are come last, where a narrow print does not cut them.
        """
        columns = {}
        if self.noise is not None:
            columns["above_noise"] = noise_marks(change, self.noise[query])
        kind = np.full(len(change), self.change_is, dtype=object)
        return {**columns, name: change, "change_is": kind}


def top_table(
    tops: list[Ranked],
    rows: Mapping[str, np.ndarray],
    test_index: np.ndarray,
    change_name: str,
    kind: str,
    unit: Unit | None = None,
) -> Any:
    """A table of the most important rows of each query.

    ``tops``         for each query, as `rank` gives them
    ``rows``         columns that name all rows
    ``change_name``  of the column of changes
    ``kind``         of the table
    ``unit``         what the changes are; None: scores
    """
    count = [len(order) for order, _, _ in tops]
    change = np.concatenate([change for _, _, change in tops])
    query = np.repeat(np.arange(len(tops)), count)
    order = np.concatenate([order for order, _, _ in tops])
    return table(
        {
            "test_row": np.repeat(test_index, count),
            "test_position": np.repeat(np.arange(len(count)), count),
            "rank": np.concatenate([np.arange(1, c + 1) for c in count]),
            **{name: column[order] for name, column in rows.items()},
            "effect": np.array([e for _, effects, _ in tops for e in effects], dtype=object),
            **({change_name: change} if unit is None else unit.columns(change_name, change, query)),
        },
        kind,
    )
