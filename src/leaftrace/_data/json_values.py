"""Results as JSON can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def json_value(value: Any) -> Any:
    """A result in the types of JSON, with everything inside it.

    Numbers that are not finite become null, objects of other types their text."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [json_value(item) for item in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):  # whose item() may be a number
        return str(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
