"""Tables: pandas DataFrames when pandas is installed, otherwise a dict of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def table(columns: Mapping[str, Any]) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return dict(columns)
    return pd.DataFrame(dict(columns))


def wide(values: np.ndarray, index: np.ndarray, columns: np.ndarray) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return {"train_row": index, **{str(c): values[:, j] for j, c in enumerate(columns)}}
    return pd.DataFrame(values, index=pd.Index(index, name="train_row"), columns=pd.Index(columns, name="test_row"))
