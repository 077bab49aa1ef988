"""Tables in files, recognised by their ending.

The names of the columns are read first, so that they can be checked before anything large is read.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from ..._data.errors import InvalidInput
from ..._data.files import whole_file
from ..._data.progress import Bar, bar, progress
from .text_table import printable

_TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst", ".csv.bz2")
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_BEYOND = "\x1fmore"  # a column for values that a row has beyond the last one
_HEAD = 1 << 20  # bytes in which the line of column names must end
_READ_ERRORS = (
    pa.ArrowException,
    pd.errors.ParserError,
    pd.errors.EmptyDataError,
    UnicodeDecodeError,
    EOFError,
)


@dataclass(frozen=True)
class TableFile:
    """A table in a file, which is not read yet.

    ``names``      names of its columns
    ``separator``  between the columns of a text file
    """

    path: str
    names: list[str]
    separator: str = ","

    @property
    def at_once(self) -> bool:
        """Whether it is read in one go, so that there is no progress to show."""
        in_parts = self.path.endswith(_PARQUET) and _row_groups(self.path) > 1
        return not (self.path.endswith(_TEXT) or in_parts)

    def read(self, columns: Sequence[str]) -> Any:
        """A DataFrame of these columns. Rows have the names stored in the file, or positions."""
        with _errors_of_reading(self.path):
            frame = self._read(list(columns))
        if not len(frame):
            raise InvalidInput(f"the table '{self.path}' has no rows; give one with at least one.")
        return frame

    def _read(self, columns: list[str]) -> Any:
        if self.path.endswith(_PARQUET):
            return _read_parquet(self.path, columns)
        if self.path.endswith(_ARROW):
            with _open_arrow(self.path) as reader:
                return _with_index(reader.read_all(), columns).to_pandas()
        return self._read_text(usecols=[*columns, _BEYOND], low_memory=False)

    def _read_text(self, **settings: Any) -> Any:
        """A DataFrame of a text file, in which no row has more values than there are columns.

        pandas would drop them, or move all values by a column. So that they can be seen, the line of
        names gets one more column."""
        line = io.StringIO()
        csv.writer(line, delimiter=self.separator, lineterminator="\n").writerow(
            [*self.names, _BEYOND]
        )
        with _open_text(self.path) as file:
            rows = io.BufferedReader(file)
            rows.readline()
            stream = io.BufferedReader(_Joined(line.getvalue().encode(), rows), 1 << 20)
            frame = pd.read_csv(stream, sep=self.separator, index_col=False, **settings)
        beyond = frame.pop(_BEYOND)
        longer = (beyond.notna() & (beyond.astype(str) != "")).to_numpy().nonzero()[0]
        if len(longer):
            raise InvalidInput(
                f"{len(longer)} row(s) of '{self.path}' have more values than the {len(self.names)} columns, the first "
                f"is row {longer[0]}; a value that has the separator {self.separator!r} in it needs quotes."
            )
        return frame

    def read_all_columns(self, path: str) -> Any:
        """An Arrow table of all columns, to be written to this path.

        From a text file to another, all values stay text, so that none is written differently."""
        with _errors_of_reading(self.path):
            if self.path.endswith(_PARQUET):
                return pyarrow.parquet.read_table(self.path)
            if self.path.endswith(_ARROW):
                with _open_arrow(self.path) as reader:
                    return reader.read_all()
            settings: dict[str, Any] = {"low_memory": False}
            if path.endswith(_TEXT):
                settings = {"dtype": str, "keep_default_na": False}
            frame = self._read_text(**settings)
            return pa.Table.from_pandas(frame, preserve_index=False)


def check_ending(path: str) -> None:
    """Raise an error if the ending is not that of a table."""
    if not path.endswith((*_TEXT, *_PARQUET, *_ARROW)):
        endings = f"{', '.join(_TEXT[:5])}, {', '.join((*_PARQUET, *_ARROW))}"
        raise InvalidInput(f"'{path}' is not known as a table; its name should end in {endings}.")


def open_table(path: str) -> TableFile:
    """Find out which columns a table has."""
    if not os.path.exists(path):
        raise InvalidInput(f"there is no table '{path}'.")
    check_ending(path)
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise InvalidInput(f"the table '{path}' is empty; give one with column names and rows.")
    with _errors_of_reading(path):
        file = _open(path)
    repeated = sorted({name for name in file.names if file.names.count(name) > 1})
    if repeated:
        raise InvalidInput(
            f"'{path}' has more than one column '{repeated[0]}'; give each column its own name."
        )
    return file


def _open(path: str) -> TableFile:
    """Read the names of the columns."""
    if path.endswith(_PARQUET):
        return TableFile(path, list(pyarrow.parquet.read_schema(path).names))
    if path.endswith(_ARROW):
        with _open_arrow(path) as reader:
            return TableFile(path, list(reader.schema.names))
    with pa.input_stream(path) as stream:
        head = stream.read(_HEAD)
    first, end, _ = head.partition(b"\n")
    if len(head) == _HEAD and not end:
        raise InvalidInput(
            f"the first line of '{path}' is longer than a megabyte; a table begins with a line of column names."
        )
    line = first.decode("utf-8-sig")
    separator = max(",;\t", key=line.count)
    text = io.StringIO(line)
    head = pd.read_csv(text, sep=separator, header=None, dtype=str, keep_default_na=False)
    # pandas writes an index as a column without a name, and reads that as "Unnamed".
    names = [str(name) or f"Unnamed: {i}" for i, name in enumerate(head.iloc[0])]
    return TableFile(path, names, separator)


class _CountingFile(io.RawIOBase):
    """A file that reports to a progress bar how many bytes of it were read."""

    def __init__(self, path: str, shown: Bar) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115, closed below
        self._shown = shown

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._shown.update(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _Joined(io.RawIOBase):
    """A line of text, and the rest of a file after it."""

    def __init__(self, line: bytes, rest: io.BufferedReader) -> None:
        self._line = line
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._line[: len(buffer)] or self._rest.read(len(buffer))
        self._line = self._line[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@contextmanager
def _open_text(path: str) -> Iterator[Any]:
    """The bytes of a text file, decompressed."""
    compression = _COMPRESSED.get(os.path.splitext(path)[1])
    reading = bar(os.path.getsize(path), _reading(path), "B")
    with reading as shown, io.BufferedReader(_CountingFile(path, shown), 1 << 20) as file:
        yield file if compression is None else pa.CompressedInputStream(file, compression)


def _reading(path: str) -> str:
    """The words that are shown while this file is read."""
    return f"reading {printable(os.path.basename(path))}"


def _row_groups(path: str) -> int:
    """Number of parts in which a Parquet file can be read; 1 for a folder of files."""
    return 1 if os.path.isdir(path) else pyarrow.parquet.read_metadata(path).num_row_groups


def _read_parquet(path: str, columns: list[str]) -> Any:
    """The frame that pandas would read; part by part, where the file has parts."""
    count = _row_groups(path)
    if count == 1:
        return pd.read_parquet(path, columns=columns)
    with pyarrow.parquet.ParquetFile(path) as file:
        groups = progress(range(count), count, _reading(path), "part")
        parts = [file.read_row_group(i, columns, use_pandas_metadata=True) for i in groups]
    return pa.concat_tables(parts).to_pandas()


@contextmanager
def _open_arrow(path: str) -> Iterator[Any]:
    """A reader for both forms of Arrow files: with an index of batches at the end, or a stream."""
    with pa.memory_map(path) as file:
        try:
            reader = pyarrow.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pyarrow.ipc.open_stream(file)
        yield reader


def _with_index(table: Any, columns: Sequence[str]) -> Any:
    """These columns, and those in which pandas stores the names of the rows."""
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    stored = [name for name in index if isinstance(name, str) and name not in columns]
    return table.select([*columns, *stored])


def write_table(table: Any, path: str) -> None:
    """Write an Arrow table to a file, by its ending. It appears whole or not at all."""
    with whole_file(path, "the table") as file:
        if path.endswith(_PARQUET):
            pyarrow.parquet.write_table(table, file)
        elif path.endswith(_ARROW):
            with pyarrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            _write_text(table, path, file)


def _write_text(table: Any, path: str, file: Any) -> None:
    """Write an Arrow table to an open file as text. ``path``: decides the separator."""
    frame = table.to_pandas()
    compression = _COMPRESSED.get(os.path.splitext(path)[1])
    stream = file if compression is None else pa.CompressedOutputStream(file, compression)
    separator = "\t" if ".tsv" in path else ","
    has_index = not isinstance(frame.index, pd.RangeIndex)
    with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        frame.to_csv(text, sep=separator, index=has_index, lineterminator="\n")


@contextmanager
def _errors_of_reading(path: str) -> Iterator[None]:
    """Re-raise errors about the content of a file as InvalidInput."""
    try:
        yield
    except _READ_ERRORS as error:
        raise _unreadable(path, error) from None
    except OSError as error:
        if error.errno:  # of the disk; the others come from a reader
            raise
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> InvalidInput:
    reason = " ".join(str(error).split())[:200]
    return InvalidInput(f"'{path}' cannot be read; is it whole, and what its ending says? {reason}")
