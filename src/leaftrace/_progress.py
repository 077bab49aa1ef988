"""Progress bars through tqdm when it is installed; silence otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], total: int | None, what: str, unit: str, per_item: int = 1) -> Iterator[T]:
    """Pass the items on; each stands for `per_item` units. The bar shows only what lasts longer than a second.

    A total of None is not known: the bar counts."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield from items
        return
    with tqdm(total=total, desc=what, unit=unit, delay=1.0, leave=False) as bar:
        for item in items:
            yield item
            bar.update(per_item if total is None else min(per_item, total - bar.n))
