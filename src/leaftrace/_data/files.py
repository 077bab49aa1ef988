"""Files that appear whole or not at all."""

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
    """A new file to write to, which gets its name when it is finished. A device or a pipe is written to as it is."""
    target = os.path.realpath(path)
    special = os.path.exists(target) and not os.path.isfile(target)
    unfinished = target if special else f"{target}.{os.getpid()}.part"
    try:
        try:
            with open(unfinished, "wb" if special else "xb") as file:
                yield file
            if not special:
                os.replace(unfinished, target)
        except BaseException:
            if not special and os.path.exists(unfinished):
                os.unlink(unfinished)
            raise
    except OSError as error:
        name = f"{what} '{os.fspath(path)}'".strip()
        raise LeaftraceError(f"cannot write {name}: {error.strerror or error}; {hint}.") from None
