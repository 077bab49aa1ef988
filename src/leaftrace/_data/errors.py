"""Errors. Each says what came, what was expected, and what to do next."""


class LeaftraceError(Exception):
    """Base of every error that leaftrace raises on purpose."""


class UnsupportedModel(LeaftraceError):
    """The model cannot be replayed: its kind, loss or a setting is outside what leaftrace reconstructs."""


class FidelityError(LeaftraceError):
    """The replay does not give the model's own leaf values, so influences would be about another model."""


class InvalidInput(LeaftraceError, ValueError):
    """An argument has the wrong shape, type or range."""


class FidelityWarning(UserWarning):
    """With ``fidelity="warn"``: the replay differs from the model and the work goes on."""
