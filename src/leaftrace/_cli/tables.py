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

from .._errors import InvalidInput

_TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst", ".csv.bz2")
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_HEAD = 1 << 20  # bytes in which the line of column names must end


@dataclass(frozen=True)
class File:
    """A table that is not read yet."""

    path: str
    names: list[str]
    separator: str = ","

    def read(self, columns: Sequence[str]) -> Any:
        """These columns alone; rows are named as the file names them, or by position."""
        with _reading(self.path):
            if self.path.endswith(_PARQUET):
                frame = pd.read_parquet(self.path, columns=list(columns))
            elif self.path.endswith(_ARROW):
                with _arrow(self.path) as reader:
                    frame = _with_index(reader.read_all(), columns).to_pandas()
            else:
                with pa.input_stream(self.path) as stream:
                    frame = pd.read_csv(stream, sep=self.separator, usecols=list(columns), low_memory=False)
        if not len(frame):
            raise InvalidInput(f"the table '{self.path}' has no rows; give one with at least one.")
        return frame


def open_table(path: str) -> File:
    """Find out what columns there are."""
    if not os.path.exists(path):
        raise InvalidInput(f"there is no table '{path}'.")
    if not path.endswith((*_TEXT, *_PARQUET, *_ARROW)):
        raise InvalidInput(f"'{path}' is not known as a table; its name should end in {', '.join(_TEXT[:5])}, "
                           f"{', '.join((*_PARQUET, *_ARROW))}.")  # fmt: skip
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise InvalidInput(f"the table '{path}' is empty; give one with column names and rows.")
    with _reading(path):
        file = _open(path)
    twice = sorted({name for name in file.names if file.names.count(name) > 1})
    if twice:
        raise InvalidInput(f"'{path}' has more than one column '{twice[0]}'; give each column its own name.")
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
    head = pd.read_csv(io.StringIO(line), sep=separator, header=None, dtype=str, keep_default_na=False)
    # A column without a name is what pandas writes an index as, and reads as "Unnamed".
    return File(path, [str(n) or f"Unnamed: {i}" for i, n in enumerate(head.iloc[0])], separator)


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


@contextmanager
def _reading(path: str) -> Any:
    try:
        yield
    except (pa.ArrowException, pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, EOFError) as error:
        first = " ".join(str(error).split())[:200]
        raise InvalidInput(f"'{path}' cannot be read; is it whole, and what its ending says? {first}") from None
    except OSError as error:
        if error.errno:
            raise
        first = " ".join(str(error).split())[:200]
        raise InvalidInput(f"'{path}' cannot be read; is it whole, and what its ending says? {first}") from None
