"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import LeaftraceError

SECONDS_TO_LEFTOVER = 24 * 3600  # an unfinished file of this age belongs to a run that was killed


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
    """Write to a name of its own beside the target; rename on success, delete on failure.

    Several threads or processes may write the same target: each has its own unfinished file, and
    the last to finish wins. An existing target keeps its permissions.
    """
    folder, name = os.path.split(target)
    _remove_leftovers(folder, name)
    handle, unfinished = tempfile.mkstemp(prefix=_prefix(name), suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            yield file
        _sync(unfinished)
        os.chmod(unfinished, _permissions(target))
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _sync(path: str) -> None:
    """Wait until the contents of a file are on the disk. Its writer may have closed it already."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prefix(name: str) -> str:
    """The start of the names of unfinished files; cut, as file names have at most 255 bytes."""
    return f".{name[:50]}."


def _permissions(target: str) -> int:
    """The permissions of the file that is replaced, or those of a new file."""
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _remove_leftovers(folder: str, name: str) -> None:
    """Delete unfinished files of this target that killed runs have left behind."""
    oldest = time.time() - SECONDS_TO_LEFTOVER
    for file in Path(folder).glob(f"{_escaped(_prefix(name))}*.part"):
        with suppress(OSError):  # another process may delete it, too
            if file.stat().st_mtime < oldest:
                file.unlink()


def _escaped(name: str) -> str:
    """A name in a form that `glob` takes literally."""
    return "".join(f"[{c}]" if c in "[]*?" else c for c in name)
