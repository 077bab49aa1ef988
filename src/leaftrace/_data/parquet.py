"""Tables that are read part by part: the rows of Parquet files, which need not fit in memory.

What depends on all rows at once is a few numbers a row; the columns themselves are read when somebody asks, a part of
the rows or one column at a time. Rows are counted over all files, in the order of the files and of the rows in them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import F64, Ids, Ints
from .errors import InvalidInput
from .leaf_cache import LeafCache, key_of, temporary
from .progress import progress

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ROWS_AT_ONCE = 1 << 17
_COPIES = 16  # of a part's values that the library and its answer may need beside it


@dataclass(frozen=True)
class PartedTable:
    """The columns of these names of Parquet files, as one table.

    ``memory`` bytes that a part, or what `take` returns, may have
    ``cache``  the folder where leaves of the rows are kept, or None
    ``steps``  functions that each part goes through, one after the other (the steps of a Pipeline), and what tells them
               from others
    """

    files: tuple[str, ...]
    column_names: tuple[str, ...]
    memory: int
    cache: str | None = None
    steps: tuple[tuple[Callable[[Any], Any], bytes], ...] = ()

    @cached_property
    def groups(self) -> list[tuple[int, int, int]]:
        """(file, row group, rows before it), and a last one that has only the number of all rows."""
        out = []
        rows = 0
        for f, path in enumerate(self.files):
            with opened(path) as file:
                for g in range(file.num_row_groups):
                    out.append((f, g, rows))
                    rows += file.metadata.row_group(g).num_rows
        return [*out, (len(self.files), 0, rows)]

    def __len__(self) -> int:
        return self.groups[-1][2]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.column_names)

    def then(self, step: Callable[[Any], Any], contents: bytes) -> PartedTable:
        """The same rows after one more step."""
        return replace(self, steps=(*self.steps, (step, contents)))

    # ---- reading ----

    @cached_property
    def _row_bytes(self) -> int:
        with opened(self.files[0]) as file:
            first = next(file.iter_batches(1000, columns=list(self.column_names)), None)
            return 8 * len(self.column_names) if not first else max(first.nbytes // len(first), 1)

    def size(self, rows: int) -> int:
        """Bytes of so many rows in memory, about."""
        return rows * self._row_bytes

    def fits(self, rows: int) -> bool:
        return self.size(rows) <= self.memory

    def parts(self) -> Iterator[tuple[slice, Any]]:
        """(rows, DataFrame or what the steps make of it), all rows in turn."""
        at_once = max(256, min(ROWS_AT_ONCE, self.memory // (_COPIES * self._row_bytes)))
        start = 0
        for path in self.files:
            for batch in _batches(path, at_once, self.column_names):
                rows = slice(start, start + len(batch))
                start = rows.stop
                yield rows, self._through(self._frame(batch))

    def take(self, rows: Ints) -> Any:
        """These rows, in this order, as a DataFrame (or what the steps make of it)."""
        rows = np.asarray(rows)
        if not self.fits(len(rows)):
            raise InvalidInput(
                f"{len(rows):,} rows of the training files take about {self.size(len(rows)) / 1e9:.1f} GB in "
                f"memory, and memory_limit allows {self.memory / 1e9:.1f} GB; ask for fewer rows, or give "
                "Tracer.from_files a larger memory_limit."
            )
        import pandas as pd

        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        found = []
        for (f, g, start), (_, _, stop) in zip(self.groups[:-1], self.groups[1:], strict=True):
            here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, stop)] - start
            if len(here):
                found.append(
                    self._frame(_row_group(self.files[f], g, self.column_names).take(here))
                )
        table = pd.concat(found, ignore_index=True) if found else next(self.parts())[1].iloc[:0]
        back = np.empty(len(rows), np.intp)
        back[order] = np.arange(len(rows))
        return self._through(table.iloc[back].set_axis(rows, axis=0))

    def __getitem__(self, name: str) -> Any:
        """One column of all rows, as a pandas Series."""
        return replace(self, column_names=(name,), steps=()).whole()[name]

    def whole(self) -> Any:
        """All rows, without the steps."""
        import pandas as pd

        return pd.concat([part for _, part in replace(self, steps=()).parts()], ignore_index=True)

    def _through(self, part: Any) -> Any:
        for step, _ in self.steps:
            part = step(part)
        return part

    def _frame(self, batch: Any) -> Any:
        """A batch as a DataFrame whose categories are those of all files."""
        import pandas as pd
        import pyarrow as pa

        table = (batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])).select(
            self.column_names
        )
        frame = table.to_pandas(ignore_metadata=True)
        same = {name: pd.CategoricalDtype(values) for name, values in self._categories.items()}
        return frame.astype(same) if same else frame

    @cached_property
    def _categories(self) -> dict[str, Any]:
        """Categories of each dictionary column in the order in which the files have them."""
        import pandas as pd
        import pyarrow as pa

        with opened(self.files[0]) as file:
            schema = file.schema_arrow
        names = [
            name for name in self.column_names if pa.types.is_dictionary(schema.field(name).type)
        ]
        found: dict[str, Any] = {}
        for path in self.files if names else ():
            for batch in _batches(path, ROWS_AT_ONCE, names):
                for name in names:
                    here = pd.Index(batch.column(name).dictionary.to_pandas())
                    found[name] = (
                        here
                        if name not in found
                        else found[name].append(here.difference(found[name], False))
                    )
        return found

    # ---- leaves ----

    def leaves(
        self, rows: Callable[[Any, Any], tuple[Ids, F64 | None]], model: bytes, baseline: F64 | None
    ) -> tuple[Ids, F64 | None]:
        """(trees, n) leaves on disk and the scores (n, K) given to rows, or None, of what ``rows`` says of each part.
        They are computed unless the cache has them, of the same model and the same files."""

        def computed() -> Iterator[tuple[slice, Ids, F64 | None]]:
            for part, table in progress(self.parts(), None, "leaves", "part"):
                yield part, *rows(table, None if baseline is None else baseline[part])

        if self.cache is None:
            return temporary(len(self), computed)
        data = json.dumps([fingerprint(self.files), self.column_names]).encode()
        given = b"" if baseline is None else baseline.tobytes()
        return LeafCache(
            self.cache, key_of(model, data, given, *(contents for _, contents in self.steps))
        ).get(len(self), computed)


def open_table(
    paths: Paths,
    not_columns: Sequence[str],
    columns: Sequence[str] | None,
    cache: str | os.PathLike[str] | None,
    memory: int,
) -> PartedTable:
    """The table of these files: a pattern, a folder, or files in the order of the rows. ``columns``: those that the
    model was trained on; None: all but ``not_columns``."""
    try:
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            f"reading files needs {error.name}; pip install 'leaftrace[frames]'."
        ) from None
    files = _files(paths)
    with opened(files[0]) as file:
        first = file.schema_arrow
    for path in files[1:]:
        with opened(path) as file:
            _same_schema(first, files[0], file.schema_arrow, path)
    wanted = (
        [name for name in first.names if name not in not_columns]
        if columns is None
        else list(columns)
    )
    if absent := [name for name in [*not_columns, *wanted] if name not in first.names]:
        raise InvalidInput(
            f"the files have no column '{absent[0]}'; they have {', '.join(map(repr, first.names))}."
        )
    table = PartedTable(files, tuple(wanted), memory, None if cache is None else os.fspath(cache))
    if not len(table):
        raise InvalidInput(
            f"the {len(files)} file(s) have no rows; pass those that the model was trained on."
        )
    return table


def _files(paths: Paths) -> tuple[str, ...]:
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


def opened(path: str) -> pq.ParquetFile:
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


def _batches(path: str, at_once: int, columns: Sequence[str]) -> Iterator[Any]:
    import pyarrow as pa

    with opened(path) as file:
        try:
            yield from (
                batch for batch in file.iter_batches(at_once, columns=list(columns)) if len(batch)
            )
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"'{path}' cannot be read to its end; is it whole? {_first_line(error)}"
            ) from None


def _row_group(path: str, group: int, columns: Sequence[str]) -> Any:
    import pyarrow as pa

    with opened(path) as file:
        try:
            return file.read_row_group(group, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"'{path}' cannot be read to its end; is it whole? {_first_line(error)}"
            ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _same_schema(first: Any, name: str, other: Any, path: str) -> None:
    import pyarrow as pa

    def plain(schema: Any) -> dict[str, str]:
        """Types by name; how categories are numbered does not count."""
        types = {field.name: field.type for field in schema}
        return {
            c: f"categories of {t.value_type}" if pa.types.is_dictionary(t) else str(t)
            for c, t in types.items()
        }

    one = plain(first)
    two = plain(other)
    for column in dict.fromkeys([*one, *two]):
        if one.get(column) != two.get(column):
            there = [
                f"has it as {t}" if t else "lacks it" for t in (one.get(column), two.get(column))
            ]
            raise InvalidInput(
                f"the files differ in the column '{column}': '{name}' {there[0]}, '{path}' {there[1]}; pass files of "
                "one table."
            )


def fingerprint(files: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """Of each file its name, size, time of change and a hash of its footer, which has the schema, and place and
    statistics of every column of every row group. Together they change with the rows; reading all rows would take as
    long as the leaves themselves."""
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
