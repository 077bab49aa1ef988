"""A `Tracer` as text, and as HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._data.tables import notebook
from .._model.kernels import is_native

if TYPE_CHECKING:
    from .tracer import Tracer


def tracer_text(tracer: Tracer) -> str:
    """The model, its size and the fidelity of the replay."""
    engine = tracer.engine
    e = engine.ensemble
    kernels = "native" if is_native() else "NumPy"
    return (
        f"Tracer({engine.source.name}, {e.loss.name} loss, {e.n_steps} steps, {len(e.values)} leaves, "
        f"{e.n_rows:,} training rows; {engine.work.dtype.name}, {kernels} kernels)\n"
        f"  fidelity: {tracer.fidelity.verdict}"
    )


def tracer_html(tracer: Tracer) -> str:
    """The same for a notebook, with the classes."""
    e = tracer.engine.ensemble
    facts = {
        "loss": e.loss.name,
        "steps": e.n_steps,
        "leaves": len(e.values),
        "training rows": f"{e.n_rows:,}",
    }
    if tracer.classes is not None:
        names = ", ".join(map(str, tracer.classes[:5]))
        others = len(tracer.classes) - 5
        facts["classes"] = f"{names} and {others} more" if others > 0 else names
    columns = {name: np.array([value], dtype=object) for name, value in facts.items()}
    title = f"Tracer: {tracer.engine.source.name}"
    return notebook(title, columns, f"Fidelity: {tracer.fidelity.verdict}")
