"""Errors and warnings. Each message gives what came, what was expected, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class LeaftraceError(Exception):
    """Base of every error that leaftrace raises on purpose."""


class UnsupportedModel(LeaftraceError):
    """The model cannot be replayed: leaftrace does not reconstruct its kind, loss or a setting."""


class FidelityError(LeaftraceError):
    """The replay does not give the model's own leaf values.

    Influences would be about another model.
    """


class InvalidInput(LeaftraceError, ValueError):
    """An argument has the wrong shape, type or range."""


class FidelityWarning(UserWarning):
    """The replay differs from the model, and ``fidelity="warn"`` lets the work go on."""


class IndexWarning(UserWarning):
    """Several training rows have the same label in the index of X_train."""


@contextmanager
def training_errors(library: str, *errors: type[Exception]) -> Iterator[None]:
    """Re-raise the errors of a library that refuses to train a model as LeaftraceError."""
    try:
        yield
    except errors as error:
        raise LeaftraceError(f"{library} cannot train the model again; it says: {error}") from None
