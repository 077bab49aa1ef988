"""Tables from files, by their ending. Names of columns are known before anything large is read."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from .._data.errors import InvalidInput
from .._data.files import whole_file
from .._data.progress import Bar, bar, progress

_TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst", ".csv.bz2")
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_HEAD = 1 << 20  # bytes in which the line of column names must end


@dataclass(frozen=True)
class File:
    """A table that is not read yet."""

    path: str
    names: list[str]
    separator: str = ","

    @property
    def at_once(self) -> bool:
        """Whether it is read in one go, so that no one can tell how far it is."""
        return not (
            self.path.endswith(_TEXT) or (self.path.endswith(_PARQUET) and _groups(self.path) > 1)
        )

    def read(self, columns: Sequence[str]) -> Any:
        """These columns alone; rows are named as the file names them, or by position."""
        with _reading(self.path):
            if self.path.endswith(_PARQUET):
                frame = _read_parquet(self.path, list(columns))
            elif self.path.endswith(_ARROW):
                with _arrow(self.path) as reader:
                    frame = _with_index(reader.read_all(), columns).to_pandas()
            else:
                with _text(self.path) as stream:
                    frame = pd.read_csv(
                        stream, sep=self.separator, usecols=list(columns), low_memory=False
                    )
        if not len(frame):
            raise InvalidInput(f"the table '{self.path}' has no rows; give one with at least one.")
        return frame


def check_ending(path: str) -> None:
    if not path.endswith((*_TEXT, *_PARQUET, *_ARROW)):
        raise InvalidInput(f"'{path}' is not known as a table; its name should end in {', '.join(_TEXT[:5])}, "
                           f"{', '.join((*_PARQUET, *_ARROW))}.")  # fmt: skip


def open_table(path: str) -> File:
    """Find out what columns there are."""
    if not os.path.exists(path):
        raise InvalidInput(f"there is no table '{path}'.")
    check_ending(path)
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise InvalidInput(f"the table '{path}' is empty; give one with column names and rows.")
    with _reading(path):
        file = _open(path)
    twice = sorted({name for name in file.names if file.names.count(name) > 1})
    if twice:
        raise InvalidInput(
            f"'{path}' has more than one column '{twice[0]}'; give each column its own name."
        )
    return file


def _open(path: str) -> File:
    if path.endswith(_PARQUET):
        return File(path, list(pyarrow.parquet.read_schema(path).names))
    if path.endswith(_ARROW):
        with _arrow(path) as reader:
            return File(path, list(reader.schema.names))
    with pa.input_stream(path) as stream:
        line = stream.read(_HEAD).partition(b"\n")[0].decode("utf-8-sig")
    separator = max(",;\t", key=line.count)
    head = pd.read_csv(
        io.StringIO(line), sep=separator, header=None, dtype=str, keep_default_na=False
    )
    # A column without a name is what pandas writes an index as, and reads as "Unnamed".
    return File(path, [str(n) or f"Unnamed: {i}" for i, n in enumerate(head.iloc[0])], separator)


class _Counted(io.RawIOBase):
    """A file that tells how much of it was read."""

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


@contextmanager
def _text(path: str) -> Any:
    """The bytes of a text file, unpacked."""
    packed = _PACKED.get(os.path.splitext(path)[1])
    shown = bar(os.path.getsize(path), f"reading {os.path.basename(path)}", "B")
    with shown as count, io.BufferedReader(_Counted(path, count), 1 << 20) as file:
        yield file if packed is None else pa.CompressedInputStream(file, packed)


def _groups(path: str) -> int:
    return 1 if os.path.isdir(path) else pyarrow.parquet.read_metadata(path).num_row_groups


def _read_parquet(path: str, columns: list[str]) -> Any:
    """As pandas reads it, but part by part, where there are parts."""
    if (count := _groups(path)) == 1:
        return pd.read_parquet(path, columns=columns)
    with pyarrow.parquet.ParquetFile(path) as file:
        groups = progress(range(count), count, f"reading {os.path.basename(path)}", "part")
        parts = [file.read_row_group(i, columns, use_pandas_metadata=True) for i in groups]
    return pa.concat_tables(parts).to_pandas()


@contextmanager
def _arrow(path: str) -> Any:
    """A reader of either form of Arrow's file: with an index of batches at its end, or a stream."""
    with pa.memory_map(path) as file:
        try:
            reader = pyarrow.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pyarrow.ipc.open_stream(file)
        yield reader


def _with_index(table: Any, columns: Sequence[str]) -> Any:
    """These columns, and those that pandas keeps the names of rows in."""
    own = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return table.select([*columns, *(c for c in own if isinstance(c, str) and c not in columns)])


def read_whole(file: File, path: str) -> Any:
    """All columns as an Arrow table that is to be written to this path: from text to text as it stands in the file."""
    with _reading(file.path):
        if file.path.endswith(_PARQUET):
            return pyarrow.parquet.read_table(file.path)
        if file.path.endswith(_ARROW):
            with _arrow(file.path) as reader:
                return reader.read_all()
        how: Any = (
            {"dtype": str, "keep_default_na": False}
            if path.endswith(_TEXT)
            else {"low_memory": False}
        )
        with _text(file.path) as stream:
            return pa.Table.from_pandas(
                pd.read_csv(stream, sep=file.separator, **how), preserve_index=False
            )


def write_table(table: Any, path: str) -> None:
    """An Arrow table to a file by its ending, whole or not at all."""
    with whole_file(path, "the table") as file:
        if path.endswith(_PARQUET):
            pyarrow.parquet.write_table(table, file)
        elif path.endswith(_ARROW):
            with pyarrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            frame = table.to_pandas()
            packed = _PACKED.get(os.path.splitext(path)[1])
            stream: Any = file if packed is None else pa.CompressedOutputStream(file, packed)
            with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
                own = not isinstance(frame.index, pd.RangeIndex)
                frame.to_csv(
                    text, sep="\t" if ".tsv" in path else ",", index=own, lineterminator="\n"
                )


@contextmanager
def _reading(path: str) -> Any:
    try:
        yield
    except (
        pa.ArrowException,
        pd.errors.ParserError,
        pd.errors.EmptyDataError,
        UnicodeDecodeError,
        EOFError,
    ) as error:
        first = " ".join(str(error).split())[:200]
        raise InvalidInput(
            f"'{path}' cannot be read; is it whole, and what its ending says? {first}"
        ) from None
    except OSError as error:
        if error.errno:
            raise
        first = " ".join(str(error).split())[:200]
        raise InvalidInput(
            f"'{path}' cannot be read; is it whole, and what its ending says? {first}"
        ) from None
