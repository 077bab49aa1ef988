"""What an audit file says of a model and its data: fingerprints, settings, versions, in plain JSON values."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..._adapters import LIBRARIES
from ..._data import inputs
from ..._data.errors import InvalidInput
from ..._tracer.tracer import Tracer
from ..hashes import hash_json, hash_model, hash_table, hash_values


def model_record(tracer: Tracer) -> dict[str, Any]:
    """The model by its trees as the training rows see them, and by the settings that decide its leaves."""
    settings = _settings(tracer)
    return {
        "name": tracer.engine.source.name,
        "sha256": hash_model(tracer.engine.ensemble),
        "fidelity": tracer.fidelity.verdict,
        "settings": settings,
        "settings_sha256": hash_json(settings),
    }


def _settings(tracer: Tracer) -> dict[str, Any]:
    e = tracer.engine.ensemble
    rate = np.unique(e.learning_rate)
    rule = {f.name: getattr(e.rule, f.name) for f in fields(e.rule)}
    rule["statistic"] = None if e.rule.statistic is None else e.rule.statistic.name
    loss: Any = e.loss
    parameters = {f.name: getattr(loss, f.name) for f in fields(loss) if f.name != "kernel"}
    return plain(
        {
            "loss": parameters,
            "leaf_rule": rule,
            "learning_rate": rate[0] if len(rate) == 1 else [rate.min(), rate.max()],
            "steps": e.n_steps,
            "trees": len(e.first_output),
            "leaves": len(e.values),
            "outputs": e.n_outputs,
            "starting_score": list(e.base),
        }
    )


def data_record(X: Any, y: Any, **more: Any) -> dict[str, Any]:
    """A table and its labels; `more` are further columns, such as weights."""
    values = {"labels": y, **more}
    hashes = {name: None if x is None else hash_values(x) for name, x in values.items()}
    return {"rows": inputs.row_count(X), "sha256": {"table": hash_table(X), **hashes}}


def versions() -> dict[str, str]:
    """Of what is loaded and could change the numbers."""
    from ... import __version__

    libraries = {
        name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules
    }
    return {
        "leaftrace": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **libraries,
    }


def time_of(when: datetime | None) -> str:
    """In UTC, as ISO 8601."""
    if when is None:
        when = datetime.now(UTC)
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidInput(f"when is {when!r}; pass a datetime with a time zone, or None for now.")
    return when.astimezone(UTC).isoformat()


def plain(value: Any) -> Any:
    """As JSON can hold it: numbers that are not finite become null, other objects their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):  # whose item() may be a number
        return str(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
