"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from .errors import LeaftraceError


@contextmanager
def whole_file(
    path: str | os.PathLike[str], what: str = "", hint: str = "choose another folder"
) -> Iterator[BinaryIO]:
    """Open a new file for writing that gets its name when it is finished.

    A device or a pipe is written to directly. If writing fails, the error names the file as
    ``what`` and ends with ``hint``.
    """
    target = os.path.realpath(path)
    is_device = os.path.exists(target) and not os.path.isfile(target)
    try:
        with open(target, "wb") if is_device else _renamed_when_finished(target) as file:
            yield file
    except OSError as error:
        name = f"{what} '{os.fspath(path)}'".strip()
        raise LeaftraceError(f"cannot write {name}: {error.strerror or error}; {hint}.") from None


@contextmanager
def _renamed_when_finished(target: str) -> Iterator[BinaryIO]:
    """Write to a temporary name beside the target; rename on success, delete on failure."""
    unfinished = f"{target}.{os.getpid()}.part"
    try:
        with open(unfinished, "xb") as file:
            yield file
        os.replace(unfinished, target)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
