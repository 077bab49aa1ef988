"""Leaves of training rows on disk: computed once for a model and its data, then used again.

A cache folder has one folder for each pair of model and data, named by a hash of both. It is
written under another name and renamed when everything is there, so that a folder with this name is
complete. `manifest.json` repeats the hash and the number of rows, and has a hash of each file, so that
a file that was damaged or exchanged is refused. Leaves are mapped into memory.
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
from typing import Any, BinaryIO

import numpy as np

from .arrays import F64, Ids
from .errors import LeaftraceError

_FORMAT = "leaftrace-leaves-2"
_FILES = ("leaves.npy", "scores.npy")
Part = tuple[slice, Ids, F64 | None]  # rows, their leaves (trees, rows), their scores (rows, K)
Parts = Callable[[], Iterator[Part]]


def temporary_leaves(n: int, parts: Parts) -> tuple[Ids, F64 | None]:
    """(trees, n) leaves and (n, K) scores or None, in a folder that is deleted with the array."""
    with _disk_errors("a temporary folder"):
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
    """The place in a cache folder for the leaves of one model and its rows."""

    folder: str
    key: str  # a hash of model and data

    def get(self, n: int, parts: Parts) -> tuple[Ids, F64 | None]:
        """(trees, n) leaves, mapped into memory, and (n, K) scores or None."""
        place = Path(self.folder) / self.key[:32]
        if not place.exists():
            self._build(place, n, parts)
        return _read(place, self.key, n)

    def _build(self, place: Path, n: int, parts: Parts) -> None:
        """Write the folder under another name, then rename it."""
        with _disk_errors(place.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(
                tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
            )
        try:
            _write(unfinished, self.key, n, parts)
            with _disk_errors(place):
                _rename(unfinished, place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _rename(unfinished: Path, place: Path) -> None:
    """Give a finished folder its name, unless another process has made a folder of this name."""
    try:
        os.rename(unfinished, place)
    except OSError:
        if not place.exists():  # otherwise the other process has written the same contents
            raise


def _write(place: Path, key: str, n: int, parts: Parts) -> None:
    """Write leaves, scores and manifest to a folder."""
    rows_written = 0
    scores = []
    with _disk_errors(place), open(place / "leaves.npy", "wb") as file:
        start = 0
        for rows, leaves, given in parts():
            if not start:
                start = _write_header(file, leaves, n)
            _write_part(file, start, leaves, rows.start, n)
            rows_written = rows.stop
            scores.append(given)
        file.flush()
        os.fsync(file.fileno())
    if rows_written != n:
        raise LeaftraceError(
            f"{rows_written} rows were read where {n} were expected; did a file change meanwhile?"
        )
    with _disk_errors(place):
        if scores[0] is not None:
            np.save(place / "scores.npy", np.concatenate(scores))
        (place / "manifest.json").write_text(json.dumps(_manifest(place, key, n)))


def _write_header(file: BinaryIO, leaves: Ids, n: int) -> int:
    """Write the header of a NumPy file for the leaves of n rows; returns where its data starts."""
    header = {
        "descr": np.lib.format.dtype_to_descr(leaves.dtype),
        "fortran_order": False,
        "shape": (len(leaves), n),
    }
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()


def _write_part(file: BinaryIO, start: int, leaves: Ids, first_row: int, n: int) -> None:
    """Write the leaves (trees, rows) of some rows to their places in the file.

    A full disk makes these writes fail; through a memory map it would end the process.
    """
    for r, ids in enumerate(leaves):
        file.seek(start + (r * n + first_row) * leaves.dtype.itemsize)
        file.write(np.ascontiguousarray(ids).data)


def _manifest(place: Path, key: str, n: int) -> dict[str, Any]:
    """Contents of `manifest.json` for the files of a folder."""
    return {"format": _FORMAT, "key": key, "rows": n, "files": _file_hashes(place)}


def _file_hashes(place: Path) -> dict[str, str]:
    """Hashes of the files in a folder. Every byte is read, which the replay of the model does, too."""
    hashes = {}
    for path in (place / name for name in _FILES):
        if path.exists():
            with open(path, "rb") as file:
                hashes[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()
    return hashes


def _read(place: Path, key: str, n: int) -> tuple[Ids, F64 | None]:
    """Map the leaves of a folder into memory and check that they belong to this key."""
    cache = f"the cache '{place}'"
    try:
        manifest = json.loads((place / "manifest.json").read_text())
        expected = _manifest(place, key, n)
        if not isinstance(manifest, dict) or manifest.keys() != expected.keys():
            raise ValueError("manifest.json is not one of a cache")
        if manifest | {"files": {}} != expected | {"files": {}}:
            raise LeaftraceError(
                f"{cache} is of another model or other data than its name says; delete it."
            )
        if manifest != expected or "leaves.npy" not in expected["files"]:
            raise ValueError("its files are not those that were written")
        # Copy on write: nobody writes to the pages, but kernels may require writable arrays.
        leaves = np.load(place / "leaves.npy", mmap_mode="c", allow_pickle=False)
        scores = np.load(place / "scores.npy") if (place / "scores.npy").exists() else None
    except (OSError, ValueError, RecursionError) as error:
        raise LeaftraceError(f"{cache} is damaged ({error}); delete it.") from None
    return leaves, scores


@contextmanager
def _disk_errors(place: Any) -> Iterator[None]:
    """Re-raise disk errors as LeaftraceError."""
    try:
        yield
    except OSError as error:
        raise LeaftraceError(
            f"the leaves of all rows cannot be written to '{place}': {error.strerror or error}; they need a byte or "
            "two for each row and tree. Pass cache='a folder on a disk with room'."
        ) from None


def cache_key(*contents: bytes) -> str:
    """A hash of these contents in their order."""
    digest = hashlib.blake2b(_FORMAT.encode(), digest_size=32)
    for content in contents:
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
