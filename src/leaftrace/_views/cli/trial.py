"""Read a model file in another process first: libraries abort, crash or hang on damaged files.

The other process loads the model, writes it out and predicts a few made-up rows. Errors do not
matter to it, as they come up again in this process; what matters is whether it survives.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ..._adapters import import_adapter, load_file, load_pickle
from ..._data.errors import UnsupportedModel

# Seconds that it may compute, and that may pass while it waits; one more of each for a megabyte. A
# busy machine takes its time, which is no sign of damage.
_CPU_SECONDS = 60
_WALL_SECONDS = 600
_ROWS = 64
_MAX_CELLS = 10_000_000
# Libraries import these where they are installed, which is most of their own start. No model file
# needs them; pickles may, and CatBoost cannot do without pandas.
_NOT_NEEDED = ("pandas", "sklearn", "matplotlib", "pyarrow", "dask", "distributed", "polars")


def check_survival(path: str, library: str | None) -> None:
    """Raise an error if a process that reads this file dies or does not end.

    ``library``  that wrote it; None: a pickle
    """
    with open(path, "rb") as file:
        content = hashlib.file_digest(file, "blake2b").hexdigest()
    if reason := _reason_of_death(os.path.abspath(path), library, content):
        raise UnsupportedModel(
            f"the model file '{path}' cannot be read: a process that tried {reason}. "
            "The file is probably damaged; save the model again."
        )


@lru_cache(maxsize=64)
def _reason_of_death(path: str, library: str | None, content: str) -> str | None:
    """The end of a process that reads this file, in words; None: it survived.

    ``content``  a hash of the file: the same content is tried once
    """
    if not sys.executable:
        return None
    more = os.path.getsize(path) // 1_000_000
    seconds = _WALL_SECONDS + more
    cpu_seconds = _CPU_SECONDS + more
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-W",
            "ignore",
            "-m",
            __name__,
            path,
            library or "",
            str(cpu_seconds),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
    )
    try:
        if library is not None:
            import_adapter(library)  # while the other process works
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"was not done after {seconds} seconds"
    finally:
        process.kill()
        process.wait()
    if 0 <= code <= 2:  # it survived, or Python itself could not start
        return None
    if hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU:
        return f"was not done after {cpu_seconds} seconds of computing"
    with suppress(ValueError):
        return f"died of {signal.Signals(-code).name}"
    return f"died with exit code {code}"


def _limit_computing(seconds: int) -> None:
    """End this process when it has computed for so long, on systems that can do that."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _try_model(path: str, library: str) -> None:
    """Load a model and use it as leaftrace would."""
    if library in ("lightgbm", "xgboost"):
        for name in _NOT_NEEDED:
            sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    model = load_file(path).model if library else load_pickle(path)
    if library == "lightgbm":
        model.model_to_string()
        model.predict(_made_up_rows(model.num_feature()), pred_leaf=True, validate_features=False)
    elif library == "xgboost":
        booster = model.booster
        booster.save_raw("json")
        rows = _made_up_rows(booster.num_features())
        import_adapter(library).predict_leaves(booster, rows)
    elif library == "catboost":
        import_adapter(library).model_to_json(model)
        rows = _made_up_rows(len(model.feature_names_)).astype(object)
        for column in (*model.get_cat_feature_indices(), *model.get_text_feature_indices()):
            rows[:, column] = [f"{row} words" for row in range(len(rows))]
        model.calc_leaf_indexes(rows)
    else:
        model.predict(_made_up_rows(model.n_features_in_))


def _made_up_rows(columns: int) -> Any:
    """Numbers of all sizes, small whole ones such as codes of categories, zeros and gaps."""
    import numpy as np

    if not 0 < columns * _ROWS <= _MAX_CELLS:
        raise ValueError(f"{columns} columns")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_ROWS, columns)) * 10.0 ** rng.uniform(-3, 4, size=(_ROWS, columns))
    rows[: _ROWS // 2] = rng.integers(0, 12, size=(_ROWS // 2, columns))
    rows[0] = 0.0
    rows[1] = np.nan
    return rows


if __name__ == "__main__":
    with suppress(Exception):
        _limit_computing(int(sys.argv[3]))
        _try_model(*sys.argv[1:3])
