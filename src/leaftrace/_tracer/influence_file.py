"""An `Influence` in an .npz file, without pickle."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.errors import LeaftraceError
from .._data.files import whole_file

if TYPE_CHECKING:
    from .influence import Influence

_FORMAT = "leaftrace-influence-1"
_FACTS = ("of", "method", "action", "derivative", "lower_is_better", "scored")


def write_influence(influence: Influence, path: str | os.PathLike[str]) -> None:
    """Write a result to a file, which appears complete or not at all."""
    arrays: dict[str, Any] = {"values": influence.values, "weight": influence.weight}
    meta: dict[str, Any] = {"format": _FORMAT}
    for name in _FACTS:
        meta[name] = getattr(influence, name)
    for name in ("train_index", "test_index"):
        _pack(name, getattr(influence, name), arrays, meta)
    if influence.structure_changed is not None:
        arrays["structure_changed"] = influence.structure_changed
    if influence.per_label is not None:
        _pack("labels", np.array(list(influence.per_label), dtype=object), arrays, meta)
        arrays["per_label"] = np.stack(list(influence.per_label.values()))
    with whole_file(path) as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of an `Influence` from a file that `write_influence` wrote."""
    arrays, meta = _read(os.fspath(path))
    per_label = None
    if "per_label" in arrays:
        labels = _unpack("labels", arrays, meta).tolist()
        per_label = dict(zip(labels, arrays["per_label"], strict=True))
    return {
        "values": arrays["values"],
        "train_index": _unpack("train_index", arrays, meta),
        "test_index": _unpack("test_index", arrays, meta),
        "of": meta["of"],
        "method": meta["method"],
        "action": meta["action"],
        "weight": arrays["weight"],
        "derivative": meta["derivative"],
        "structure_changed": arrays.get("structure_changed"),
        "per_label": per_label,
        "lower_is_better": meta.get("lower_is_better"),
        "scored": meta.get("scored", False),
    }


def _read(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a file, and the other facts in it."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays["meta"]))
    except FileNotFoundError:
        raise LeaftraceError(f"there is no file '{path}'.") from None
    except Exception as error:  # from the readers of zip, npy or json: all mean the same here
        raise LeaftraceError(f"'{path}' is not a saved Influence, or not whole: {error}") from None
    if meta.get("format") != _FORMAT:
        raise LeaftraceError(f"'{path}' has the format {meta.get('format')}; expected {_FORMAT}.")
    return arrays, meta


def _pack(name: str, index: np.ndarray, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Put an index into the arrays, or, if it has objects (strings, tuples), into the JSON."""
    if index.dtype != object:
        arrays[name] = index
        return
    items = [v.item() if isinstance(v, np.generic) else v for v in index.tolist()]
    try:
        meta[name] = json.loads(json.dumps(items))
    except TypeError:
        meta[name] = [str(v) for v in items]


def _unpack(name: str, arrays: dict[str, Any], meta: dict[str, Any]) -> np.ndarray:
    """Read an index that `_pack` wrote. Lists of the JSON were tuples of a MultiIndex."""
    if name in arrays:
        return arrays[name]
    out = np.empty(len(meta[name]), dtype=object)
    out[:] = [tuple(v) if isinstance(v, list) else v for v in meta[name]]
    return out
