"""Numbers as people read them."""

from __future__ import annotations

import math

_DIGITS = 4  # significant digits of a number below a thousand
_LARGEST = 1e15  # from here on, and below the smallest, powers of ten are shorter
_SMALLEST = 1e-4


def number_text(x: float, digits: int = _DIGITS) -> str:
    """A number with about so many digits: ``1,234,568``, ``12.35``, ``0.00012``, ``1.2e-07``."""
    if math.isnan(x):
        return "-"
    size = abs(x)
    if size >= _LARGEST or (0 < size < _SMALLEST):
        return f"{x:.{digits}g}"
    if size >= min(1000, 10**digits):
        return f"{x:,.0f}"
    return f"{x:.{digits}g}"


def change_text(x: float, digits: int = _DIGITS) -> str:
    """A change, with its sign: ``+12.35``."""
    text = number_text(x, digits)
    return text if math.isnan(x) or x < 0 else f"+{text}"
