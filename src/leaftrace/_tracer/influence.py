"""`Influence`: which training rows moved which test rows, by how much."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._data.arrays import F64, Real
from .._data.errors import InvalidInput, LeaftraceError
from .._data.files import whole_file
from .._data.grouping import SourceTables
from .._data.tables import notebook, table, wide_table

_FORMAT = "leaftrace-influence-1"
# Phrases for the actions whose effect `Influence.change` is, to put in a sentence.
ACTION_PHRASES = {
    "removed": "without it",
    "added": "with it added",
    "flipped": "with its label flipped",
    "relabelled": "with its label moved",
    "label_raised": "with its label raised by one",
}


@dataclass(frozen=True, repr=False)
class Influence:
    """Influence of training rows (lines) on queries (columns).

    ``values``       (rows, queries), the paper's sign: dQ/dw_i, or Q(with) - Q(without). With Q a loss, positive
                     means that the row hurts; tables say `harmful` and `helpful` so that nobody need remember
    ``train_index``  (rows,) labels of the training rows, from a DataFrame's index if there was one
    ``test_index``   (queries,) labels of the test rows, or "mean" / "sum"
    ``of``           "loss", "prediction", "goal" or the name of a `Goal`
    ``method``       how it was computed
    ``action``       what the tables tell the effect of: rows "removed" or "added"; labels "flipped" (two classes),
                     "relabelled" (to a given class) or "label_raised" (by one, for numbers)
    ``weight``       (rows,) how far the action goes: sample weights for "removed", 1 - 2 y for "flipped", otherwise 1
    ``derivative``   whether values are derivatives (True) or effects of removal (False)
    ``structure_changed``  (rows,) with Retrain: whether any tree's structure changed without the row
    ``per_label``    with score_candidates and no labels: the values under each possible label
    ``lower_is_better``  of the query; None: not known, and tables say `raises` and `lowers`
    ``tables``       where `by` finds columns of the rows and of the queries, which files and pickles do not keep
    ``scored``       values are scores of some of `baselines`: their order counts, and they are no change of the query
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

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def change(self) -> Real:
        """(rows, queries) how much the query changes by the action: to first order for derivatives. Of scores, what
        takes its place in comparisons: minus the score."""
        if not self.derivative:
            return -self.values
        direction = -self.weight if self.action == "removed" else self.weight
        return self.values * direction.astype(self.values.dtype)[:, None]

    @property
    def burden(self) -> Real:
        """(rows, queries) positive where the row, or its label as it is, raises the query."""
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

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to each query, as a tidy table.

        ``effect`` keeps only one side: "harmful" or "helpful" for a loss, "raises" or "lowers" otherwise."""
        tops = rank(self, k, effect)
        name = f"{self.of}_change_if_{self.action}"
        if self.scored:
            tops = [(rows, effects, -change) for rows, effects, change in tops]
            name = "score"
        return top_table(tops, self.train_index, self.test_index, name, self.tables.kind)

    def mean(self) -> Influence:
        """One column: the mean over the queries."""
        values = self.values.mean(axis=1, keepdims=True)
        tables = replace(self.tables, test=None, reduced=True)
        return replace(
            self, values=values, test_index=np.array(["mean"]), per_label=None, tables=tables
        )

    def by(self, groups: Any, test_groups: Any = None, *, bins: int = 5) -> Any:
        """Totals over groups of training rows: a line for each query and group, or for each slice and group.

        >>> tracer.influence(X_test, y_test).by("age", test_groups="sex")         # doctest: +SKIP

        ``groups``       one label for each row of this result, or the name of a column of their table
        ``test_groups``  the same for the queries: a slice is the mean over its test rows
        ``bins``         into how many groups of about equal size a column of many numbers is cut

        For derivatives, the total is the first-order effect of removing the whole group; `group_effects` has the exact
        one beside it."""
        rows = self.tables.train_groups(groups, len(self.train_index), bins)
        parts = [rows.sums(x) for x in (self.values, self.burden, self.change)]  # (G, queries) each
        if test_groups is None:
            head = {"test_row": np.repeat(self.test_index, len(rows))}
        else:
            if self.tables.reduced:
                raise InvalidInput(
                    "this result is one column for all test rows; ask for influence() without reduce=."
                )
            slices = self.tables.test_groups(test_groups, len(self.test_index), bins)
            parts = [slices.means(part.T).T for part in parts]  # (G, slices) each
            head = {
                name: np.repeat(x, len(rows))
                for name, x in (("slice", slices.names), ("test_rows", slices.count))
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
            columns[f"{self.of}_change_if_{self.action}"] = change
        return table(columns, self.tables.kind)

    def to_frame(self) -> Any:
        """The values as a wide table: training rows down, queries across."""
        return wide_table(self.values, self.train_index, self.test_index, self.tables.kind)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a .npz file (no pickle). The file appears whole or not at all."""
        arrays: dict[str, Any] = {"values": self.values, "weight": self.weight}
        meta: dict[str, Any] = {
            "format": _FORMAT,
            "of": self.of,
            "method": self.method,
            "action": self.action,
            "derivative": self.derivative,
            "lower_is_better": self.lower_is_better,
            "scored": self.scored,
        }
        for name in ("train_index", "test_index"):
            _pack(name, getattr(self, name), arrays, meta)
        if self.structure_changed is not None:
            arrays["structure_changed"] = self.structure_changed
        if self.per_label is not None:
            _pack("labels", np.array(list(self.per_label), dtype=object), arrays, meta)
            arrays["per_label"] = np.stack(list(self.per_label.values()))
        with whole_file(path) as file:
            np.savez(file, meta=np.array(json.dumps(meta)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Influence:
        """Read what `save` wrote."""
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays["meta"]))
        except FileNotFoundError:
            raise LeaftraceError(f"there is no file '{os.fspath(path)}'.") from None
        except (
            Exception
        ) as error:  # a zip, npy or json reader's complaint: all mean the same to the caller
            raise LeaftraceError(
                f"'{os.fspath(path)}' is not a saved Influence, or not whole: {error}"
            ) from None
        if meta.get("format") != _FORMAT:
            raise LeaftraceError(
                f"'{os.fspath(path)}' has the format {meta.get('format')}; expected {_FORMAT}."
            )
        per_label = None
        if "per_label" in arrays:
            per_label = dict(
                zip(_unpack("labels", arrays, meta).tolist(), arrays["per_label"], strict=True)
            )
        return cls(
            arrays["values"],
            _unpack("train_index", arrays, meta),
            _unpack("test_index", arrays, meta),
            meta["of"],
            meta["method"],
            meta["action"],
            arrays["weight"],
            meta["derivative"],
            arrays.get("structure_changed"),
            per_label,
            meta.get("lower_is_better"),
            scored=meta.get("scored", False),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tables": SourceTables(kind=self.tables.kind)}

    def __repr__(self) -> str:
        rows, queries = self.shape
        lines = [
            f"Influence of {rows:,} training rows on {queries:,} quer{'y' if queries == 1 else 'ies'} of {self.of}"
        ]
        lines.append(f"  method: {self.method}")
        if rows and queries:
            burden = self.burden.mean(axis=1)
            change = self.change.mean(axis=1)
            most = {
                self.effect_word(burden[row]): row for row in (np.argmin(burden), np.argmax(burden))
            }
            for effect, row in reversed(most.items()):
                what = f"{ACTION_PHRASES[self.action]} the {self.of} changes by {change[row]:+.3g}"
                what = f"score {burden[row]:+.3g}" if self.scored else what
                lines.append(
                    f"  most {effect}: row {self.train_index[row]}; {what}"
                    + " (mean over queries)" * (queries > 1)
                )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows, queries = self.shape
        title, *lines = repr(self).splitlines()
        if not rows or not queries:
            return notebook(title, *lines)
        first = slice(0, 3)
        some = replace(
            self, values=self.values[:, first], test_index=self.test_index[first], per_label=None
        )
        more = (
            [f"... and {queries - 3:,} more queries; .top(k) has them all"] if queries > 3 else []
        )
        return notebook(title, *lines, some.top(5), *more)


Ranked = tuple[np.ndarray, list[str], Real]  # positions, effects, changes; most important first


def rank(influence: Influence, k: int, effect: str | None) -> list[Ranked]:
    """For each query, the k rows with the largest change; ties go to the earlier row."""
    if k < 1:
        raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
    up, down = influence.effect_words
    if effect not in (None, up, down):
        raise InvalidInput(
            f"effect is {effect!r}; for {influence.of} it can be '{up}', '{down}' or None for both."
        )
    out = []
    for burden, change in zip(influence.burden.T, influence.change.T, strict=True):
        size = np.abs(change)
        if effect is not None:
            size = np.where(burden * (1 if effect == up else -1) > 0, size, -1)
        order = largest(size, min(k, len(size)))
        order = order[size[order] >= 0]
        out.append((order, [influence.effect_word(b) for b in burden[order]], change[order]))
    return out


def largest(size: Real, k: int) -> np.ndarray:
    """Positions of the k largest, in order."""
    candidates = np.arange(len(size))
    if k < len(size):  # everything that could be among the first k, then a stable order
        candidates = np.flatnonzero(size >= np.partition(size, len(size) - k)[len(size) - k])
    return candidates[np.argsort(-size[candidates], kind="stable")][:k]


def top_table(
    tops: list[Ranked], train_index: np.ndarray, test_index: np.ndarray, change_name: str, kind: str
) -> Any:
    count = [len(order) for order, _, _ in tops]
    return table(
        {
            "test_row": np.repeat(test_index, count),
            "rank": np.concatenate([np.arange(1, c + 1) for c in count]),
            "train_row": train_index[np.concatenate([order for order, _, _ in tops])],
            "effect": np.array([e for _, effects, _ in tops for e in effects], dtype=object),
            change_name: np.concatenate([change for _, _, change in tops]),
        },
        kind,
    )


def _pack(name: str, index: np.ndarray, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Plain arrays go into the file as they are, objects (strings, tuples of a MultiIndex) as JSON."""
    if index.dtype != object:
        arrays[name] = index
        return
    items = [v.item() if isinstance(v, np.generic) else v for v in index.tolist()]
    try:
        meta[name] = json.loads(json.dumps(items))
    except TypeError:
        meta[name] = [str(v) for v in items]


def _unpack(name: str, arrays: dict[str, Any], meta: dict[str, Any]) -> np.ndarray:
    if name in arrays:
        return arrays[name]
    out = np.empty(len(meta[name]), dtype=object)
    out[:] = [tuple(v) if isinstance(v, list) else v for v in meta[name]]
    return out
