"""Words for the things a user can change, where a message or an advice names them.

In Python these are arguments and attributes, on the command line options. The command line sets
words of its own, so that each sentence is written once, where its facts are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """Phrases that messages contain, by default for Python.

    ``test_suspects``     how to find out what relabelling suspects does
    ``give_test_rows``    how to see the effect on other rows
    ``accept_inexact``    how to go on although the replay is not exact
    ``use_controls``      how to compare with random groups
    ``look_first``        how to look at a cleaned training set
    ``validation_rows``   the table of validation rows
    ``holdout_rows``      the table of hold-out rows
    ``max_rows``          the limit on rows that may be changed
    ``do_retrain``        how to have the model trained again
    ``do_refit``          how to have the leaves refitted
    ``no_refit``          how to do without refits
    ``give_parameters``   how to give the parameters of training
    ``takes_options``     parameters are given as options of a command
    ``give_eval_set``     how to have early stopping repeated
    ``leaf_method``       the method that holds splits fixed, and
    ``refit_method``      the one that refits leaves
    ``until_stable``      how to have bags trained until values are stable
    ``order_judged``      what shows the effect of leaving out rows in the order of their values
    ``unique_labels``     how to give each training row a name of its own
    """

    test_suspects: str = "confirm(X_holdout, y_holdout)"
    give_test_rows: str = "Pass X_test and y_test"
    accept_inexact: str = 'fidelity="warn"'
    use_controls: str = "controls=5"
    look_first: str = "Look at some of `rows` before you do; the retrained model is in `model`"
    validation_rows: str = "X_val"
    holdout_rows: str = "X_holdout"
    max_rows: str = "max_rows="
    do_retrain: str = "retrain=True"
    do_refit: str = "ask for refit=True"
    no_refit: str = "refit=False"
    give_parameters: str = "Pass params={'max_depth': ..., 'learning_rate': ..., ...}"
    takes_options: bool = False
    give_eval_set: str = "Tracer(..., eval_set=)"
    leaf_method: str = "LeafInfluence()"
    refit_method: str = "LeafRefit()"
    until_stable: str = "members=None"
    order_judged: str = "curve(X_hold, y_hold)"
    unique_labels: str = "give X_train an index without duplicates"

    def parameters(self, **values: object) -> str:
        """Words for giving these parameters of training; a value of ... is left to the user."""
        shown = {name: "..." if value is ... else repr(value) for name, value in values.items()}
        if self.takes_options:
            return " ".join(f"--param {name}={value}" for name, value in shown.items())
        return f"params={{{', '.join(f'{name!r}: {value}' for name, value in shown.items())}}}"


PYTHON_WORDS = Wording()
_current: ContextVar[Wording] = ContextVar("wording")


def words() -> Wording:
    """The words for the present user."""
    return _current.get(PYTHON_WORDS)


@contextmanager
def use_words(wording: Wording) -> Iterator[None]:
    """Use these words in all messages that are made inside."""
    token = _current.set(wording)
    try:
        yield
    finally:
        _current.reset(token)
