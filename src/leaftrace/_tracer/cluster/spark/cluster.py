"""Functions of partitions on the executors of Spark, and sums of their results.

The state of the partitions is a persisted DataFrame; if an executor is lost, Spark makes its part of
it again. Nothing waits for all tasks at once, so executors may come and go.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ...._data.errors import InvalidInput, LeaftraceError
from ..part import Facts
from .stages import RESULT, STATE, AddStage, EachStage, Failure, PartStage, with_facts_of

SPLIT = 8  # sums that are brought to the driver at most; more are added on the executors


class SparkCluster:
    """Partitions in a persisted DataFrame.

    ``state``  lines of `stages.STATE`
    """

    def __init__(self, state: Any) -> None:
        self.session = state.sparkSession
        self.context = spark_context(self.session)
        self.numbers: list[int] = []
        self.sizes: list[int] = []
        self.starts: Any = {}
        self._keep(state)

    def _keep(self, state: Any) -> None:
        """Compute with this state from now on."""
        from pyspark import StorageLevel

        self.state = state.persist(StorageLevel.MEMORY_AND_DISK)
        lines = sorted(self.state.select("number", "rows").collect())
        self.numbers = [int(line[0]) for line in lines]
        self.sizes = [int(line[1]) for line in lines]
        starts = np.cumsum([0, *self.sizes])[:-1].tolist()
        self.starts = self.send(dict(zip(self.numbers, starts, strict=True)))

    @property
    def threads(self) -> int:
        return max(1, int(self.context.defaultParallelism))

    @property
    def n_parts(self) -> int:
        return len(self.numbers)

    def check(self) -> None:
        check_running(self.context)

    def send(self, data: Any) -> Any:
        return self.context.broadcast(data)

    def total(self, fn: Callable[..., Any], **common: Any) -> Any:
        stage = PartStage(fn, common, self.starts)
        return add_up(self._by_thread().mapInArrow(stage, RESULT), self.threads)

    def go_on(self, key: str, fn: Callable[..., Any], **common: Any) -> None:
        """None: Spark does not say which process computes with a partition."""

    def forget(self, key: str) -> None:
        """Nothing: processes forget the states of older passes by themselves."""

    def _by_thread(self) -> Any:
        """The state in as many tasks as there are threads: each sends one sum."""
        return self.state.coalesce(self.threads)

    def give(self, facts: Sequence[Facts]) -> None:
        by_number = self.send(dict(zip(self.numbers, facts, strict=True)))
        before = self.state
        stage = EachStage(with_facts_of, {"facts": by_number}, self.starts)
        self._keep(before.mapInArrow(stage, STATE))
        before.unpersist()

    def close(self) -> None:
        """Let go of the state; a session that is stopped has done that."""
        if is_running(self.context):
            self.state.unpersist()


def add_up(lines: Any, count: int) -> Any:
    """The sum of the results in a DataFrame of about `count` partitions."""
    while count > SPLIT:
        count = -(-count // SPLIT)
        lines = lines.repartition(count).mapInArrow(AddStage(), RESULT)
    with spark_errors():
        found = [pickle.loads(line[0]) for line in lines.collect()]
    if not found:
        raise InvalidInput("the DataFrame has no training rows.")
    total = reduce(add, found)
    if isinstance(total, Failure):
        raise total.error
    return total


def spark_context(session: Any) -> Any:
    """The context of a session; an error for sessions without one (Spark Connect)."""
    try:
        return session.sparkContext
    except Exception as error:  # of several kinds in the versions of Spark
        raise InvalidInput(
            "this DataFrame belongs to a session of Spark Connect, which cannot broadcast; use a classic session."
        ) from error


def is_running(context: Any) -> bool:
    """Whether a context of Spark is not stopped."""
    return context._jsc is not None and not context._jsc.sc().isStopped()


def check_running(context: Any) -> None:
    """Raise an error if a context of Spark is stopped."""
    if not is_running(context):
        raise LeaftraceError(
            "the Spark session is stopped; start a new one, and make the tracer again with a DataFrame of it."
        )


@contextmanager
def spark_errors() -> Iterator[None]:
    """Re-raise errors of Spark as LeaftraceError, and those about a request as InvalidInput."""
    from py4j.protocol import Py4JError
    from pyspark.errors import (
        AnalysisException,
        PySparkException,
        PySparkTypeError,
        PySparkValueError,
    )

    try:
        yield
    except (AnalysisException, PySparkTypeError, PySparkValueError) as error:
        raise InvalidInput(f"Spark does not take this: {_cause(str(error))}") from error
    except (PySparkException, Py4JError) as error:
        raise LeaftraceError(
            f"Spark could not compute with a partition of the training rows: {_cause(str(error))}"
        ) from error


def _cause(text: str) -> str:
    """The lines of a message of Spark that say what happened, without the stacks around them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"\[[A-Z][A-Z0-9_.]+\]", line)]
    if named:
        return named[0][:600]
    told = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "..."))]
    errors = [line for line in told if "Error" in line or "Exception" in line]
    return " / ".join(dict.fromkeys((errors or told)[-3:]))[:600]
