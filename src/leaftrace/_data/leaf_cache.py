"""Leaves of training rows on disk: computed once, mapped into memory, and used again for the same model and data.

A cache folder has one folder for each model and data, named by a hash of both. It is written under another name and
gets its own when all is there, so that a name means whole contents; what it holds is told again in `manifest.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import F64, Ids
from .errors import LeaftraceError

_FORMAT = "leaftrace-leaves-1"
Parts = Callable[
    [], Iterator[tuple[slice, Ids, F64 | None]]
]  # rows, leaves (trees, rows), scores (rows, K)


def temporary(n: int, parts: Parts) -> tuple[Ids, F64 | None]:
    """(trees, n) leaves and (n, K) scores or None, in a folder that goes with the array."""
    with _told("a temporary folder"):
        place = Path(tempfile.mkdtemp(prefix="leaftrace-"))
    try:
        _write(place, "", n, parts)
        leaves, scores = _read(place, "", n)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(leaves.base, shutil.rmtree, place, True)
    return leaves, scores


@dataclass(frozen=True)
class LeafCache:
    """Where the leaves of one model and its rows are."""

    folder: str
    key: str  # a hash of model and data

    def get(self, n: int, parts: Parts) -> tuple[Ids, F64 | None]:
        """(trees, n) leaves, mapped, and (n, K) scores or None."""
        place = Path(self.folder) / self.key[:32]
        if not place.exists():
            self._build(place, n, parts)
        return _read(place, self.key, n)

    def _build(self, place: Path, n: int, parts: Parts) -> None:
        with _told(place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(
                tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
            )
        try:
            _write(unfinished, self.key, n, parts)
            with _told(place):
                try:
                    os.rename(unfinished, place)
                except OSError:
                    if (
                        not place.exists()
                    ):  # otherwise another process was faster, with the same contents
                        raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _write(place: Path, key: str, n: int, parts: Parts) -> None:
    done = 0
    scores = []
    with _told(place), open(place / "leaves.npy", "wb") as file:
        start = 0
        shape = (0, n)
        dtype = np.dtype(np.uint8)
        for rows, leaves, given in parts():
            if not start:
                shape = (len(leaves), n)
                dtype = leaves.dtype
                header = {
                    "descr": np.lib.format.dtype_to_descr(dtype),
                    "fortran_order": False,
                    "shape": shape,
                }
                np.lib.format.write_array_header_1_0(file, header)
                start = file.tell()
            for r, ids in enumerate(
                leaves
            ):  # writes fail where the disk is full; a map would end the process
                file.seek(start + (r * n + rows.start) * dtype.itemsize)
                file.write(np.ascontiguousarray(ids).data)
            done = rows.stop
            scores.append(given)
        file.flush()
        os.fsync(file.fileno())
    if done != n:
        raise LeaftraceError(
            f"{done} rows were read where {n} were expected; did a file change meanwhile?"
        )
    with _told(place):
        if scores[0] is not None:
            np.save(place / "scores.npy", np.concatenate(scores))
        (place / "manifest.json").write_text(json.dumps({"format": _FORMAT, "key": key, "rows": n}))


def _read(place: Path, key: str, n: int) -> tuple[Ids, F64 | None]:
    wrong = f"the cache '{place}'"
    try:
        manifest = json.loads((place / "manifest.json").read_text())
        if manifest != {"format": _FORMAT, "key": key, "rows": n}:
            raise LeaftraceError(
                f"{wrong} is of another model or other data than its name says; delete it."
            )
        # Private pages: nobody writes to them, but kernels may ask for arrays that they could write to.
        leaves = np.load(place / "leaves.npy", mmap_mode="c", allow_pickle=False)
        scores = np.load(place / "scores.npy") if (place / "scores.npy").exists() else None
    except (OSError, ValueError) as error:
        raise LeaftraceError(f"{wrong} is damaged ({error}); delete it.") from None
    if leaves.ndim != 2 or leaves.shape[1] != n:
        raise LeaftraceError(f"{wrong} has leaves of {leaves.shape[-1]} rows, not {n}; delete it.")
    return leaves, scores


@contextmanager
def _told(place: Any) -> Iterator[None]:
    """Errors of the disk as one of ours."""
    try:
        yield
    except OSError as error:
        raise LeaftraceError(
            f"the leaves of all rows cannot be written to '{place}': {error.strerror or error}; they need a byte or "
            "two for each row and tree. Pass cache='a folder on a disk with room'."
        ) from None


def key_of(*contents: bytes) -> str:
    """A hash of these, one after the other."""
    found = hashlib.blake2b(_FORMAT.encode(), digest_size=32)
    for content in contents:
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()
