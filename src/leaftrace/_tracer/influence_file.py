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
_FACTS = ("of", "method", "action", "derivative", "lower_is_better", "scored", "change_is", "unit")
_FACT_TYPES: dict[str, Any] = {
    "of": str,
    "method": str,
    "action": str,
    "derivative": bool,
    "lower_is_better": (bool, type(None)),
    "scored": bool,
    "change_is": str,
    "unit": str,
}
_KINDS = {"Decimal", "Timestamp", "datetime", "date"}  # of names, that JSON does not have
_ACTIONS = {"removed", "weight_zero", "absent", "added", "flipped", "relabelled", "label_raised"}


def write_influence(influence: Influence, path: str | os.PathLike[str]) -> None:
    """Write a result to a file, which appears complete or not at all."""
    arrays: dict[str, Any] = {"values": influence.values, "weight": influence.weight}
    meta: dict[str, Any] = {"format": _FORMAT}
    for name in _FACTS:
        meta[name] = getattr(influence, name)
    for name in ("train_index", "test_index"):
        _pack(name, getattr(influence, name), arrays, meta)
    for name in ("structure_changed", "positions", "noise"):
        if getattr(influence, name) is not None:
            arrays[name] = getattr(influence, name)
    if influence.per_label is not None:
        _pack("labels", np.array(list(influence.per_label), dtype=object), arrays, meta)
        arrays["per_label"] = np.stack(list(influence.per_label.values()))
    with whole_file(path) as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of an `Influence` from a file that `write_influence` wrote."""
    name = os.fspath(path)
    arrays, meta = _read(name)
    try:
        fields = _fields(arrays, meta)
    except (KeyError, TypeError, ValueError, ArithmeticError, ImportError) as error:
        raise LeaftraceError(f"'{name}' is not a saved Influence, or not whole: {error}") from None
    if problem := _problem(fields):
        raise LeaftraceError(f"'{name}' is not a saved Influence: {problem}.")
    return fields


def _fields(arrays: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """The fields of an `Influence` from the contents of a file."""
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
        "change_is": meta.get("change_is", ""),
        "unit": meta.get("unit", "row"),
        "noise": arrays.get("noise"),
        "positions": arrays.get("positions"),
    }


def _problem(fields: dict[str, Any]) -> str:
    """Say what is wrong with the fields of a file; empty if nothing is."""
    values = fields["values"]
    if values.ndim != 2 or values.dtype.kind != "f":
        return f"its values are {values.dtype} of shape {values.shape}, not a table of numbers"
    rows, queries = values.shape
    shapes = {"train_index": (rows,), "test_index": (queries,), "weight": (rows,)}
    for name in ("structure_changed", "positions"):
        if fields[name] is not None:
            shapes[name] = (rows,)
    if fields["noise"] is not None:
        shapes["noise"] = (queries,)
    if fields["weight"].shape == (1,):  # one weight for all rows
        del shapes["weight"]
    for name, shape in shapes.items():
        if fields[name].shape != shape:
            return f"{name} has shape {fields[name].shape} beside values of shape {values.shape}"
    if fields["positions"] is not None and fields["positions"].dtype.kind not in "iu":
        return f"its positions are {fields['positions'].dtype}, not whole numbers"
    if fields["weight"].dtype.kind not in "fiu":
        return f"its weights are {fields['weight'].dtype}, not numbers"
    for label, of_label in (fields["per_label"] or {}).items():
        if of_label.shape != values.shape:
            return f"the values for the label {label} have shape {of_label.shape}"
    for name, kinds in _FACT_TYPES.items():
        if not isinstance(fields[name], kinds):
            return f"{name} is {fields[name]!r}"
    if fields["action"] not in _ACTIONS:
        return f"action is {fields['action']!r}"
    return ""


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
    if not isinstance(meta, dict):
        raise LeaftraceError(f"'{path}' is not a saved Influence, or not whole.")
    if meta.get("format") != _FORMAT:
        raise LeaftraceError(f"'{path}' has the format {meta.get('format')}; expected {_FORMAT}.")
    return arrays, meta


def _pack(name: str, index: np.ndarray, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Put an index into the arrays, or, if it has objects (strings, tuples), into the JSON."""
    if index.dtype != object:
        arrays[name] = index
        return
    items = [v.item() if isinstance(v, np.generic) else v for v in index.tolist()]
    meta[name] = json.loads(json.dumps(items, default=_encode))


def _encode(value: Any) -> Any:
    """An object that JSON does not have: its type and its text where `_decode` reads that back."""
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value).__name__
    return {"type": kind, "text": str(value)} if kind in _KINDS else str(value)


def _unpack(name: str, arrays: dict[str, Any], meta: dict[str, Any]) -> np.ndarray:
    """Read an index that `_pack` wrote. Lists of the JSON were tuples of a MultiIndex."""
    if name in arrays:
        return arrays[name]
    out = np.empty(len(meta[name]), dtype=object)
    out[:] = [_decode(value) for value in meta[name]]
    return out


def _decode(value: Any) -> Any:
    """An object that `_encode` or JSON wrote."""
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if isinstance(value, dict):
        return _parse(value["type"], value["text"])
    return value


def _parse(kind: str, text: str) -> Any:
    """An object of one of the types in `_KINDS` from its text. Modules are loaded when needed."""
    if kind not in _KINDS:
        raise ValueError(f"{kind} is not a type of names")
    if kind == "Decimal":
        from decimal import Decimal

        return Decimal(text)
    if kind == "Timestamp":
        import pandas as pd

        return pd.Timestamp(text)
    import datetime

    return getattr(datetime, kind).fromisoformat(text)
