"""Tables that are read part by part: the rows of Parquet files, which need not fit in memory.

The engine keeps a few numbers for each row; the columns themselves are read when they are needed,
some rows or one column at a time. Rows are counted over all files, in the order of the files and of
the rows in them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .arrays import F64, Ids, Ints
from .errors import InvalidInput
from .leaf_cache import LeafCache, Part, cache_key, temporary_leaves
from .parquet_files import (
    Paths,
    check_same_schema,
    fingerprints,
    list_files,
    open_parquet,
    read_batches,
    read_row_group,
)
from .progress import progress

ROWS_AT_ONCE = 1 << 17
_COPIES = 16  # copies of a part's values that a library may need for itself and its results


@dataclass(frozen=True)
class PartedTable:
    """Some columns of Parquet files as one table.

    ``memory`` bytes that a part, or the result of `take`, may have
    ``cache``  the folder for leaves of the rows, or None
    ``steps``  functions that are applied to each part, one after the other (the steps of a
               Pipeline), each with bytes that identify it
    """

    files: tuple[str, ...]
    column_names: tuple[str, ...]
    memory: int
    cache: str | None = None
    steps: tuple[tuple[Callable[[Any], Any], bytes], ...] = ()

    @cached_property
    def groups(self) -> list[tuple[int, int, int]]:
        """(file, row group, rows before it); a last entry has the number of all rows."""
        out = []
        rows = 0
        for f, path in enumerate(self.files):
            with open_parquet(path) as file:
                for g in range(file.num_row_groups):
                    out.append((f, g, rows))
                    rows += file.metadata.row_group(g).num_rows
        return [*out, (len(self.files), 0, rows)]

    def __len__(self) -> int:
        return self.groups[-1][2]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.column_names)

    def with_step(self, step: Callable[[Any], Any], contents: bytes) -> PartedTable:
        """The same rows after one more step, which these bytes identify."""
        return replace(self, steps=(*self.steps, (step, contents)))

    # ---- reading ----

    @cached_property
    def _row_bytes(self) -> int:
        """Bytes of a row in memory, from the first rows."""
        with open_parquet(self.files[0]) as file:
            first = next(file.iter_batches(1000, columns=list(self.column_names)), None)
            return 8 * len(self.column_names) if not first else max(first.nbytes // len(first), 1)

    def size(self, rows: int) -> int:
        """Approximate bytes of this many rows in memory."""
        return rows * self._row_bytes

    def fits_in_memory(self, rows: int) -> bool:
        """Whether this many rows may be in memory at once."""
        return self.size(rows) <= self.memory

    def parts(self) -> Iterator[tuple[slice, Any]]:
        """(rows, DataFrame or the steps' result), for all rows in turn."""
        at_once = max(256, min(ROWS_AT_ONCE, self.memory // (_COPIES * self._row_bytes)))
        start = 0
        for path in self.files:
            for batch in read_batches(path, at_once, self.column_names):
                rows = slice(start, start + len(batch))
                start = rows.stop
                yield rows, self._apply_steps(self._to_frame(batch))

    def take(self, rows: Ints) -> Any:
        """These rows, in this order, as a DataFrame or the steps' result."""
        rows = np.asarray(rows)
        if not self.fits_in_memory(len(rows)):
            raise InvalidInput(
                f"{len(rows):,} rows of the training files take about {self.size(len(rows)) / 1e9:.1f} GB in "
                f"memory, and memory_limit allows {self.memory / 1e9:.1f} GB; ask for fewer rows, or give "
                "Tracer.from_files a larger memory_limit."
            )
        order = np.argsort(rows, kind="stable")
        table = self._take_ascending(rows[order])
        back = np.empty(len(rows), np.intp)
        back[order] = np.arange(len(rows))
        return self._apply_steps(table.iloc[back].set_axis(rows, axis=0))

    def _take_ascending(self, rows: Ints) -> Any:
        """A DataFrame of rows in ascending order; only row groups that have some are read."""
        import pandas as pd

        found = []
        for (f, g, start), (_, _, stop) in pairwise(self.groups):
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(here):
                group = read_row_group(self.files[f], g, self.column_names)
                found.append(self._to_frame(group.take(here)))
        return pd.concat(found, ignore_index=True) if found else next(self.parts())[1].iloc[:0]

    def __getitem__(self, name: str) -> Any:
        """One column of all rows, as a pandas Series."""
        return replace(self, column_names=(name,), steps=()).read_all()[name]

    def read_all(self) -> Any:
        """A DataFrame of all rows, without the steps."""
        import pandas as pd

        return pd.concat([part for _, part in replace(self, steps=()).parts()], ignore_index=True)

    def _apply_steps(self, part: Any) -> Any:
        for step, _ in self.steps:
            part = step(part)
        return part

    def _to_frame(self, batch: Any) -> Any:
        """A batch as a DataFrame whose categories are those of all files."""
        import pandas as pd
        import pyarrow as pa

        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        frame = table.select(self.column_names).to_pandas(ignore_metadata=True)
        same = {name: pd.CategoricalDtype(values) for name, values in self._categories.items()}
        return frame.astype(same) if same else frame

    @cached_property
    def _categories(self) -> dict[str, Any]:
        """Categories of each dictionary column, in the order of their first appearance."""
        import pandas as pd
        import pyarrow as pa

        with open_parquet(self.files[0]) as file:
            schema = file.schema_arrow
        names = [
            name for name in self.column_names if pa.types.is_dictionary(schema.field(name).type)
        ]
        found: dict[str, Any] = {}
        for path in self.files if names else ():
            for batch in read_batches(path, ROWS_AT_ONCE, names):
                for name in names:
                    here = pd.Index(batch.column(name).dictionary.to_pandas())
                    if name in found:
                        found[name] = found[name].append(here.difference(found[name], False))
                    else:
                        found[name] = here
        return found

    # ---- leaves ----

    def leaves(
        self,
        leaves_of: Callable[[Any, Any], tuple[Ids, F64 | None]],
        model: bytes,
        baseline: F64 | None,
    ) -> tuple[Ids, F64 | None]:
        """(trees, n) leaves on disk, and the scores (n, K) given for the rows, or None.

        ``leaves_of`` computes both for a part and its baseline. It is not called if the cache has
        the leaves of the same model and the same files.
        """

        def computed() -> Iterator[Part]:
            for part, table in progress(self.parts(), None, "leaves", "part"):
                yield part, *leaves_of(table, None if baseline is None else baseline[part])

        if self.cache is None:
            return temporary_leaves(len(self), computed)
        data = json.dumps([fingerprints(self.files), self.column_names]).encode()
        given = b"" if baseline is None else baseline.tobytes()
        key = cache_key(model, data, given, *(contents for _, contents in self.steps))
        return LeafCache(self.cache, key).get(len(self), computed)


def open_table(
    paths: Paths,
    not_columns: Sequence[str],
    columns: Sequence[str] | None,
    cache: str | os.PathLike[str] | None,
    memory: int,
) -> PartedTable:
    """The table of these files: a pattern, a folder, or files in the order of the rows.

    ``columns``  those that the model was trained on; None: all but ``not_columns``
    """
    _check_libraries()
    files = list_files(paths)
    names = _shared_columns(files)
    wanted = list(columns) if columns is not None else [n for n in names if n not in not_columns]
    if absent := [name for name in [*not_columns, *wanted] if name not in names]:
        raise InvalidInput(
            f"the files have no column '{absent[0]}'; they have {', '.join(map(repr, names))}."
        )
    table = PartedTable(files, tuple(wanted), memory, None if cache is None else os.fspath(cache))
    if not len(table):
        raise InvalidInput(
            f"the {len(files)} file(s) have no rows; pass those that the model was trained on."
        )
    return table


def _check_libraries() -> None:
    """Raise an error if pandas or pyarrow is not installed."""
    try:
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            f"reading files needs {error.name}; pip install 'leaftrace[frames]'."
        ) from None


def _shared_columns(files: Sequence[str]) -> list[str]:
    """Names of the columns, which must be the same in all files."""
    with open_parquet(files[0]) as file:
        first = file.schema_arrow
    for path in files[1:]:
        with open_parquet(path) as file:
            check_same_schema(first, files[0], file.schema_arrow, path)
    return first.names
