"""The result of `gate`: checks, a verdict, and the rows to look at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.files import whole_file
from ..._data.tables import table
from ..common import Finding
from .documents import as_junit, as_markdown


@dataclass(frozen=True)
class Check:
    """One check of a batch: a share, its interval and its limit.

    ``value, low, high``  NaN if it is not known
    """

    name: str
    value: float
    low: float
    high: float
    limit: float
    text: str

    @property
    def known(self) -> bool:
        """Whether there is a number to judge."""
        return bool(np.isfinite(self.value))

    @property
    def passed(self) -> bool:
        """Whether the interval is not beyond the limit; what is not known does not stop a batch."""
        return not self.low > self.limit

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.known:
            return "not known"
        return "pass" if self.passed else "stop"

    @property
    def sentence(self) -> str:
        """The check in words, with its numbers."""
        if not self.known:
            return f"{self.name}: {self.text}"
        interval = f"{self.low:+.1%} to {self.high:+.1%}"
        return f"{self.name}: {self.value:+.1%} ({interval}; limit {self.limit:.1%}); {self.text}"


@dataclass(frozen=True, repr=False)
class Gate(Finding):
    """Whether a batch of new rows may be merged.

    ``checks``    each with a name, a value, its interval, its limit, and whether it passed
    ``suspects``  a table of the new rows to look at: suspicious labels, the most surprising first,
                  then rows with values that no training row has
    ``surprise``  (m,) how much the label of each new row surprises the model, from 0 to 1
    """

    title: str
    advice: str
    checks: tuple[Check, ...]
    suspects: Any
    surprise: F64
    _kind: str

    @property
    def passed(self) -> bool:
        """Whether no check stops the batch."""
        return all(check.passed for check in self.checks)

    @property
    def table(self) -> Any:
        """The checks: shares with their intervals and limits, and a verdict for each."""
        fields = ("name", "value", "low", "high", "limit", "verdict", "text")
        columns = {
            "check" if name == "name" else name: [getattr(check, name) for check in self.checks]
            for name in fields
        }
        return table(columns, self._kind)

    def check(self) -> Gate:
        """Return this result, or raise an AssertionError with the failed checks: for tests.

        >>> def test_batch():                                                   # doctest: +SKIP
        ...     lt.gate(tracer, X_new, y_new, X_test, y_test).check()
        """
        if not self.passed:
            failed = [check.sentence for check in self.checks if not check.passed]
            raise AssertionError("\n".join([self.title, *failed]))
        return self

    def junit(self) -> str:
        """The checks as JUnit XML, which CI servers show as tests."""
        return as_junit(self)

    def markdown(self) -> str:
        """The verdict, the checks and the first suspects as Markdown, for a summary of a job."""
        return as_markdown(self)

    def save_junit(self, path: str | os.PathLike[str]) -> None:
        """Write `junit()` to a file."""
        with whole_file(path) as file:
            file.write(self.junit().encode())

    def save_markdown(self, path: str | os.PathLike[str]) -> None:
        """Write `markdown()` to a file."""
        with whole_file(path) as file:
            file.write(self.markdown().encode())
