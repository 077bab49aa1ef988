"""Ways to damage a file: bytes of any format, tokens of text, values of JSON, arrays of NumPy archives."""

from __future__ import annotations

import io
import json

import numpy as np

ODD_NUMBERS = [
    "nan",
    "inf",
    "-1",
    "0",
    "1e308",
    "-1e308",
    "99999999999",
    "0.5",
    "",
    "abc",
    "1e-320",
]
ODD_VALUES = [None, -1, 0, 1e308, 99999999999, 0.5, "", "abc", [], {}, [None], True, float("nan")]


def damaged(content, kind, draw):
    """Return the content with one to three damages. ``kind``: "bytes", "text", "json" or "npz"."""
    for _ in range(draw.pick([1, 1, 2, 3])):
        way = kind if draw.chance(0.6) else "bytes"
        content = WAYS[way](content, draw)
    return content


def damaged_bytes(content, draw):
    """Change, remove, repeat or cut some bytes."""
    if len(content) < 2:
        return content + b"\x00"
    at = draw.whole(len(content))
    size = min(draw.pick([1, 1, 4, 64]), len(content) - at)
    way = draw.pick(["flip", "flip", "zero", "random", "remove", "repeat", "cut", "append"])
    before = content[:at]
    part = content[at : at + size]
    after = content[at + size :]
    if way == "flip":
        return before + bytes([part[0] ^ (1 << draw.whole(8))]) + part[1:] + after
    if way == "zero":
        return before + bytes(size) + after
    if way == "random":
        return before + draw.rng.bytes(size) + after
    if way == "remove":
        return before + after
    if way == "repeat":
        return before + part * draw.pick([2, 40]) + after
    return before if way == "cut" else content + draw.rng.bytes(8)


def damaged_text(content, draw):
    """Exchange a token of a line "name=tokens" for an odd one, or drop or repeat a line."""
    lines = content.decode("utf-8", "replace").split("\n")
    at = draw.whole(len(lines))
    name, is_assignment, values = lines[at].partition("=")
    way = draw.pick(["token"] * 4 + ["drop", "repeat"])
    if way == "drop":
        del lines[at]
    elif way == "repeat" or not is_assignment:
        lines.insert(at, lines[at])
    else:
        tokens = values.split(" ")
        tokens[draw.whole(len(tokens))] = draw.pick(ODD_NUMBERS)
        lines[at] = f"{name}={' '.join(tokens)}"
    return "\n".join(lines).encode()


def damaged_json(content, draw):
    """Exchange, drop or repeat a value of a JSON document."""
    try:
        document = json.loads(content)
    except ValueError:  # damaged before
        return damaged_bytes(content, draw)
    holder = {"root": document}
    key = "root"
    while isinstance(holder[key], dict | list) and holder[key] and not draw.chance(0.08):
        holder = holder[key]
        key = draw.pick(list(holder)) if isinstance(holder, dict) else draw.whole(len(holder))
    way = draw.pick(["odd", "odd", "odd number as text", "drop", "repeat"])
    if way == "odd":
        holder[key] = draw.pick(ODD_VALUES)
    elif way == "odd number as text":
        holder[key] = draw.pick(ODD_NUMBERS)
    elif way == "drop":
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[f"{key}2"] = holder.pop(key)
    return json.dumps(
        holder.get("root") if "root" in holder and len(holder) == 1 else document
    ).encode()


def damaged_archive(content, draw):
    """Exchange an array of an .npz archive for one of another shape or type, or its JSON for another."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception:  # damaged before
        return damaged_bytes(content, draw)
    name = draw.pick(sorted(arrays))
    array = arrays[name]
    if array.dtype.kind == "U" and array.ndim == 0:
        arrays[name] = np.array(damaged_json(str(array).encode(), draw).decode())
    else:
        changes = [
            lambda: array[:-1] if array.ndim else array[None],
            lambda: array.astype(str),
            lambda: array.astype(complex) if array.dtype.kind == "f" else array.astype("U3"),
            lambda: array.ravel(),
            lambda: np.zeros(0),
            lambda: array[None],
            lambda: np.full(array.shape, np.nan),
        ]
        arrays[name] = draw.pick(changes)()
    if draw.chance(0.2):
        arrays.pop(draw.pick(sorted(arrays)))
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


WAYS = {"bytes": damaged_bytes, "text": damaged_text, "json": damaged_json, "npz": damaged_archive}
