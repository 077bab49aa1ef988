"""Names for classes that a model has only numbers for, given to a tracer that exists."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from .._adapters.class_names import with_names
from .tracer import Tracer


def with_class_names(tracer: Tracer, names: Sequence[Any], argument: str) -> Tracer:
    """The same tracer with names for classes that the model has only numbers for.

    ``argument``: name of the argument that has them, for messages.
    """
    source = with_names(tracer.engine.source, names, argument)
    named = copy(tracer)
    named.engine = tracer.engine.with_source(source)
    named.y_train = source.named(tracer.y_train)
    return named
