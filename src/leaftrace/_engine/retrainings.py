"""Retrainings of a model: the rows that stop them early, and the rounds that they had."""

from __future__ import annotations

import time
from statistics import median

from .._adapters import Retrained, Source
from .._data.errors import UnsupportedModel
from .._model.coupled.loss import UNKNOWN_QUERY, CoupledLoss
from .._model.early_stopping import EvalSet, Rounds, different_stop, rounds_in_words
from .._model.training_set import TrainingSet
from .settings import Settings


class Retrainings:
    """The retrainings of a model that were done.

    ``rounds``  the rounds of each model that was trained again, in the order in which they finished
    """

    def __init__(self, source: Source, settings: Settings) -> None:
        self.rounds: list[Rounds] = []
        self._source = source
        self._settings = settings
        self._confirmed: list[EvalSet] = []
        self._seconds: list[float] = []

    def train(self, training: TrainingSet, threads: int) -> Retrained:
        """The model trained again on this set, by the tracer's eval_set unless it has its own."""
        _check_values(self._source, training)
        training = training.stopped_by(self._settings.eval_set)
        self._confirm(training.eval_set, training.n)
        start = time.perf_counter()
        retrained = self._source.retrain(training, threads)
        if threads == 1:
            self._seconds.append(time.perf_counter() - start)
        self.rounds.append(retrained.rounds)
        return retrained

    def seconds_of_one(self) -> float:
        """Seconds of a retraining on one thread: the median of those so far, or of one that is done now."""
        if not self._seconds:
            self.train(TrainingSet.unchanged(self._source.ensemble.n_rows), 1)
            self.rounds.pop()  # nobody asked for it
        return median(self._seconds)

    def confirm_eval_set(self) -> None:
        """Try the tracer's eval_set, before several retrainings at once use it."""
        self._confirm(self._settings.eval_set, self._source.ensemble.n_rows)

    def _confirm(self, eval_set: EvalSet | None, n: int) -> None:
        """Raise an error unless early stopping with all n rows ends where it did in training."""
        if eval_set is None or any(eval_set is known for known in self._confirmed):
            return
        all_rows = TrainingSet.unchanged(n).stopped_by(eval_set)
        rounds = self._source.retrain(all_rows, self._settings.n_jobs).rounds
        if rounds.count != rounds.before:
            raise different_stop(rounds, self._source.name)
        self._confirmed.append(eval_set)

    @property
    def kind(self) -> str:
        """Words for tables: what the last retraining was."""
        return self.rounds[-1].kind if self.rounds else "retrained"

    def in_words(self, since: int = 0) -> str:
        """A sentence about early stopping in these retrainings; empty without early stopping.

        ``since``: how many of the first retrainings not to count.
        """
        return rounds_in_words(self.rounds[since:])


def _check_values(source: Source, training: TrainingSet) -> None:
    """Raise an error for labels that do not fit the model, before its library does."""
    if training.y is not None:
        source.labels(training.y, training.n, "y")
    if training.added is not None:
        loss = source.ensemble.loss
        if isinstance(loss, CoupledLoss) and not loss.whole:
            raise UnsupportedModel(
                f"retrain() cannot add rows to a model with the {loss.name} loss, as {UNKNOWN_QUERY}"
            )
        y = training.added[1]
        source.labels(y, len(y), "y_new")
