"""Parquet files on disk: finding, opening and reading them, with errors that name the file."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def list_files(paths: Paths) -> tuple[str, ...]:
    """The files meant by a list of files, a file, a folder or a pattern."""
    if not isinstance(paths, (str, os.PathLike)):
        files = [os.fspath(path) for path in paths]
        if not files:
            raise InvalidInput(
                "the list of files is empty; pass the Parquet files that the model was trained on."
            )
        return tuple(files)
    path = os.fspath(paths)
    pattern = os.path.join(path, "*.parquet") if os.path.isdir(path) else path
    files = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not files:
        raise InvalidInput(
            f"no file matches '{pattern}'; pass Parquet files, a pattern or a folder of them."
        )
    return tuple(files)


def open_parquet(path: str) -> pq.ParquetFile:
    """A Parquet file, of which only the footer has been read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InvalidInput(
            f"there is no file '{path}'; pass all files that the model was trained on."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"'{path}' is not a whole Parquet file: {_first_line(error)}") from None


def read_batches(path: str, rows_at_once: int, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a file in turn, in batches that are not empty."""
    with open_parquet(path) as file, _read_errors(path):
        for batch in file.iter_batches(rows_at_once, columns=list(columns)):
            if len(batch):
                yield batch


def read_row_group(path: str, group: int, columns: Sequence[str]) -> Any:
    """One row group of a file as an Arrow table."""
    with open_parquet(path) as file, _read_errors(path):
        return file.read_row_group(group, columns=list(columns))


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Re-raise errors in reading a file as InvalidInput."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(
            f"'{path}' cannot be read to its end; is it whole? {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_same_schema(first: Any, first_path: str, other: Any, other_path: str) -> None:
    """Raise an error if two files differ in a column."""
    first_types = _type_names(first)
    other_types = _type_names(other)
    for column in dict.fromkeys([*first_types, *other_types]):
        here = first_types.get(column)
        there = other_types.get(column)
        if here != there:
            raise InvalidInput(
                f"the files differ in the column '{column}': '{first_path}' {_has_type(here)}, "
                f"'{other_path}' {_has_type(there)}; pass files of one table."
            )


def _type_names(schema: Any) -> dict[str, str]:
    """Type of each column in words. The numbering of categories does not count."""
    import pyarrow as pa

    types = {field.name: field.type for field in schema}
    return {
        name: f"categories of {t.value_type}" if pa.types.is_dictionary(t) else str(t)
        for name, t in types.items()
    }


def _has_type(name: str | None) -> str:
    return f"has it as {name}" if name else "lacks it"


def fingerprints(files: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """Name, size, time of change and a hash of the footer of each file.

    The footer has the schema, and place and statistics of every column of every row group. All this
    changes with the rows; reading the rows themselves would take as long as computing their leaves.
    """
    out = []
    for path in files:
        try:
            status = os.stat(path)
            with open(path, "rb") as file:
                file.seek(-8, os.SEEK_END)
                length = int.from_bytes(file.read(4), "little")
                file.seek(-min(length + 8, status.st_size), os.SEEK_END)
                digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        except OSError as error:
            raise InvalidInput(f"'{path}' cannot be read: {error.strerror or error}.") from None
        out.append((os.path.basename(path), status.st_size, status.st_mtime_ns, digest))
    return out
