"""`Influence`: which training rows moved which test rows, by how much."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ._arrays import F64, Real
from ._errors import InvalidInput, LeaftraceError
from ._tables import table, wide

_FORMAT = "leaftrace-influence-1"
# What `change` is the effect of, in the words of a sentence.
_ACTIONS = {
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
    ``of``           "loss", "prediction" or "goal"
    ``method``       how it was computed
    ``action``       what the tables tell the effect of: rows "removed" or "added"; labels "flipped" (two classes),
                     "relabelled" (to a given class) or "label_raised" (by one, for numbers)
    ``weight``       (rows,) how far the action goes: sample weights for "removed", 1 - 2 y for "flipped", otherwise 1
    ``derivative``   whether values are derivatives (True) or effects of removal (False)
    ``structure_changed``  (rows,) with Retrain: whether any tree's structure changed without the row
    ``per_label``    with score_candidates and no labels: the values under each possible label
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

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def change(self) -> Real:
        """(rows, queries) how much the query changes by the action: to first order for derivatives."""
        if not self.derivative:
            return -self.values
        direction = -self.weight if self.action == "removed" else self.weight
        return self.values * direction.astype(self.values.dtype)[:, None]

    @property
    def burden(self) -> Real:
        """(rows, queries) positive where the row, or its label as it is, raises the query."""
        return -self.change if self.action in ("flipped", "relabelled") else self.values

    @property
    def _words(self) -> tuple[str, str]:
        """For a positive and a negative burden."""
        return ("harmful", "helpful") if self.of == "loss" and self.action != "label_raised" else ("raises", "lowers")

    def _effect(self, burden: float) -> str:
        return self._words[0] if burden > 0 else self._words[1] if burden < 0 else "none"

    def top(self, k: int = 10, effect: str | None = None) -> Any:
        """The k rows that matter most to each query, as a tidy table.

        ``effect`` keeps only one side: "harmful" or "helpful" for a loss, "raises" or "lowers" otherwise."""
        return top_table(rank(self, k, effect), self.train_index, self.test_index, f"{self.of}_change_if_{self.action}")

    def mean(self) -> Influence:
        """One column: the mean over the queries."""
        values = self.values.mean(axis=1, keepdims=True)
        return replace(self, values=values, test_index=np.array(["mean"]), per_label=None)

    def by(self, groups: Any) -> Any:
        """Totals over groups of training rows: a line for each query and group.

        ``groups`` has one label for each row of this result. For derivatives, the total is the first-order effect of
        removing the whole group; `tracer.refit(without=...)` gives the exact one."""
        labels = np.asarray(groups)
        if labels.shape != (len(self.train_index),):
            raise InvalidInput(
                f"groups has shape {labels.shape}; expected ({len(self.train_index)},), a label for each training row "
                "of this result."
            )
        names, code = np.unique(labels, return_inverse=True)
        count = np.bincount(code)
        lines: dict[str, list[Any]] = {}
        for j, test_row in enumerate(self.test_index):
            total, burden, change = (np.bincount(code, x[:, j]) for x in (self.values, self.burden, self.change))
            columns = {
                "test_row": [test_row] * len(names),
                "group": list(names),
                "rows": list(count),
                "effect": [self._effect(b) for b in burden],
                "total": list(total),
                "mean": list(total / count),
                f"{self.of}_change_if_{self.action}": list(change),
            }
            for name, column in columns.items():
                lines.setdefault(name, []).extend(column)
        return table({name: np.asarray(column) for name, column in lines.items()})

    def to_frame(self) -> Any:
        """The values as a wide table: training rows down, queries across."""
        return wide(self.values, self.train_index, self.test_index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a .npz file (no pickle). The file appears whole or not at all."""
        path = os.fspath(path)
        arrays: dict[str, Any] = {"values": self.values, "weight": self.weight}
        meta: dict[str, Any] = {
            "format": _FORMAT,
            "of": self.of,
            "method": self.method,
            "action": self.action,
            "derivative": self.derivative,
        }
        for name in ("train_index", "test_index"):
            _pack(name, getattr(self, name), arrays, meta)
        if self.structure_changed is not None:
            arrays["structure_changed"] = self.structure_changed
        if self.per_label is not None:
            _pack("labels", np.array(list(self.per_label), dtype=object), arrays, meta)
            arrays["per_label"] = np.stack(list(self.per_label.values()))
        folder = os.path.dirname(os.path.abspath(path))
        try:
            handle, unfinished = tempfile.mkstemp(dir=folder, suffix=".part")
        except OSError as error:
            raise LeaftraceError(f"cannot write '{path}': {error.strerror}; choose another folder.") from None
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, meta=np.array(json.dumps(meta)), **arrays)
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Influence:
        """Read what `save` wrote."""
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays["meta"]))
        except FileNotFoundError:
            raise LeaftraceError(f"there is no file '{os.fspath(path)}'.") from None
        except Exception as error:  # a zip, npy or json reader's complaint: all mean the same to the caller
            raise LeaftraceError(f"'{os.fspath(path)}' is not a saved Influence, or not whole: {error}") from None
        if meta.get("format") != _FORMAT:
            raise LeaftraceError(f"'{os.fspath(path)}' has the format {meta.get('format')}; expected {_FORMAT}.")
        per_label = None
        if "per_label" in arrays:
            per_label = dict(zip(_unpack("labels", arrays, meta).tolist(), arrays["per_label"], strict=True))
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
        )

    def __repr__(self) -> str:
        rows, queries = self.shape
        lines = [
            f"Influence of {rows:,} training rows on {queries:,} quer{'y' if queries == 1 else 'ies'} of {self.of}"
        ]
        lines.append(f"  method: {self.method}")
        if rows and queries:
            burden, change = self.burden.mean(axis=1), self.change.mean(axis=1)
            most = {self._effect(burden[row]): row for row in (np.argmin(burden), np.argmax(burden))}
            for effect, row in reversed(most.items()):
                lines.append(
                    f"  most {effect}: row {self.train_index[row]}; {_ACTIONS[self.action]} the "
                    f"{self.of} changes by {change[row]:+.3g}" + (" (mean over queries)" if queries > 1 else "")
                )
        return "\n".join(lines)


Ranked = tuple[np.ndarray, list[str], Real]  # positions, effects, changes; most important first


def rank(influence: Influence, k: int, effect: str | None) -> list[Ranked]:
    """For each query, the k rows with the largest change; ties go to the earlier row."""
    if k < 1:
        raise InvalidInput(f"k is {k}; ask for 1 or more rows.")
    up, down = influence._words
    if effect not in (None, up, down):
        raise InvalidInput(f"effect is {effect!r}; for {influence.of} it can be '{up}', '{down}' or None for both.")
    out = []
    for burden, change in zip(influence.burden.T, influence.change.T, strict=True):
        size = np.abs(change)
        if effect is not None:
            size = np.where(burden * (1 if effect == up else -1) > 0, size, -1)
        order = _largest(size, min(k, len(size)))
        order = order[size[order] >= 0]
        out.append((order, [influence._effect(b) for b in burden[order]], change[order]))
    return out


def _largest(size: Real, k: int) -> np.ndarray:
    """Positions of the k largest, in order."""
    candidates = np.arange(len(size))
    if k < len(size):  # everything that could be among the first k, then a stable order
        candidates = np.flatnonzero(size >= np.partition(size, len(size) - k)[len(size) - k])
    return candidates[np.argsort(-size[candidates], kind="stable")][:k]


def top_table(tops: list[Ranked], train_index: np.ndarray, test_index: np.ndarray, change_name: str) -> Any:
    count = [len(order) for order, _, _ in tops]
    return table(
        {
            "test_row": np.repeat(test_index, count),
            "rank": np.concatenate([np.arange(1, c + 1) for c in count]),
            "train_row": train_index[np.concatenate([order for order, _, _ in tops])],
            "effect": np.array([e for _, effects, _ in tops for e in effects], dtype=object),
            change_name: np.concatenate([change for _, _, change in tops]),
        }
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
