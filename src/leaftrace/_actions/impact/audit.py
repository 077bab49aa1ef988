"""Parts of an audit file: hashes, settings and versions of a model and its data, as JSON values."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.errors import InvalidInput
from ..._data.json_values import json_value
from ..._model.hashes import hash_json, hash_model, hash_table, hash_values
from ..._tracer.tracer import Tracer


def model_record(tracer: Tracer) -> dict[str, Any]:
    """Record of a model: the hash of its trees, and the settings that decide its leaf values."""
    settings = _settings(tracer)
    return {
        "name": tracer.engine.source.name,
        "sha256": hash_model(tracer.engine.ensemble),
        "fidelity": tracer.fidelity.verdict,
        "settings": settings,
        "settings_sha256": hash_json(settings),
    }


def _settings(tracer: Tracer) -> dict[str, Any]:
    """The loss, the rule for leaf values and the size of the model."""
    e = tracer.engine.ensemble
    rate = np.unique(e.learning_rate)
    rule = {f.name: getattr(e.rule, f.name) for f in fields(e.rule)}
    rule["statistic"] = None if e.rule.statistic is None else e.rule.statistic.name
    loss: Any = e.loss
    parameters = {f.name: getattr(loss, f.name) for f in fields(loss) if f.name != "kernel"}
    return json_value(
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


def data_record(X: Any, y: Any, **columns: Any) -> dict[str, Any]:
    """Record of a table and its labels. ``columns``: further ones, such as weights."""
    columns = {"labels": y, **columns}
    hashes = {name: None if x is None else hash_values(x) for name, x in columns.items()}
    return {"rows": inputs.row_count(X), "sha256": {"table": hash_table(X), **hashes}}


def utc_time(when: datetime | None) -> str:
    """A time in UTC, in the format of ISO 8601; None: now."""
    if when is None:
        when = datetime.now(UTC)
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidInput(f"when is {when!r}; pass a datetime with a time zone, or None for now.")
    return when.astimezone(UTC).isoformat()
