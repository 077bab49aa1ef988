"""Memory that this process can still use: free on the machine, and within the limits set for it.

A container has a limit of its own (a control group), and so may a process (`ulimit -v`). Both can be
far below what the machine has free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_UNKNOWN = 4 << 30  # bytes to assume where the system reports nothing


def available_memory(root: Path = Path("/")) -> int:
    """Bytes of memory that can be used; 4 GB where the system reports nothing.

    ``root``: where /proc and /sys are.
    """
    found = [_machine_free(root), _address_space_free(root), *_groups_free(root)]
    known = [free for free in found if free is not None]
    return max(min(known, default=_UNKNOWN), 0)


def size_in_words(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _machine_free(root: Path) -> int | None:
    """Bytes free on the machine."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _address_space_free(root: Path) -> int | None:
    """Bytes below the limit on the address space of this process; None without a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    for line in _lines(root / "proc/self/statm"):
        pages = int(line.split()[0])
        return limit - pages * os.sysconf("SC_PAGE_SIZE")
    return limit


def _groups_free(root: Path) -> Iterator[int]:
    """Bytes below the limit of each control group that this process is in."""
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            yield from _group_free(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _group_free(mount / "memory", path, *names)


def _group_free(mount: Path, path: str, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Bytes below the limit of a group and of those around it, whose limits hold, too.

    ``limit, usage``: names of files; ``cache``: the entry of memory.stat for file contents that the
    system can drop. Inside a container the path may be that of the machine; then the mounted group
    is the container's own.
    """
    group = mount / path.lstrip("/")
    for folder in [group, *group.parents]:
        if not folder.is_relative_to(mount):
            return
        most = _number(folder / limit)
        used = _number(folder / usage)
        if most is not None and used is not None:
            yield most - used + _statistic(folder / "memory.stat", cache)


def _statistic(file: Path, name: str) -> int:
    """An entry of a file with a name and a number on each line; zero if it has none."""
    entries = (line.split() for line in _lines(file))
    return next((int(entry[1]) for entry in entries if entry and entry[0] == name), 0)


def _number(file: Path) -> int | None:
    """The number in a file; None if there is none ("max" means no limit)."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdecimal() else None


def _lines(file: Path) -> list[str]:
    """The lines of a file; none if it cannot be read."""
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
