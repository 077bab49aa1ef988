"""Settings of a report, and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._data.arrays import Ints
from ..._data.errors import InvalidInput
from ..._engine.methods import Method

# A page is for people; `Tracer.top` gives any number.
MAX_TOP = 50
MAX_CASES = 200
MAX_SUSPECTS = 500
SUSPECTS = 30  # surprising labels that are shown by default


@dataclass(frozen=True)
class ReportSettings:
    """The arguments of `report` that say what it shows."""

    rows: Any = None
    worst: int = 20
    top: int = 10
    noise: bool | int = True
    groups: Any = None
    test_groups: Any = None
    redact: Any = ()
    retrain: bool = False
    title: str | None = None

    @property
    def redacted(self) -> set[str]:
        """Names of the columns that must not appear."""
        if isinstance(self.redact, str):
            return {self.redact}
        return {str(name) for name in self.redact}

    @property
    def suspects(self) -> int:
        """How many surprising labels to show."""
        return SUSPECTS if self.noise is True else int(self.noise)

    def describe(self) -> dict[str, Any]:
        """The settings in words, without the names of redacted columns."""
        return {
            "test rows shown": "asked for" if self.rows is not None else f"worst {self.worst}",
            "training rows a side": self.top,
            "trained again": "yes" if self.retrain else "no",
            "redacted": len(self.redacted),
        }

    def check(self) -> None:
        """Raise an error if a number is outside its limits."""
        for name, value, most in (("worst", self.worst, MAX_CASES), ("top", self.top, MAX_TOP)):
            if not 1 <= value <= most:
                raise InvalidInput(
                    f"{name} is {value}; a report shows 1 to {most}. Tracer.top() gives any number."
                )
        if not 0 <= int(self.noise) <= MAX_SUSPECTS:
            raise InvalidInput(
                f"noise is {self.noise}; it is True, False or how many suspects, "
                f"up to {MAX_SUSPECTS}."
            )


def check_rows(rows: Ints | None, m: int) -> None:
    """Raise an error if there are no test rows to show, or too many. ``m``: number of all rows."""
    if m == 0 or (rows is not None and not len(rows)):
        raise InvalidInput("there are no test rows to show; pass at least one.")
    if rows is not None and len(rows) > MAX_CASES:
        raise InvalidInput(f"rows has {len(rows)} test rows; a report shows up to {MAX_CASES}.")


def check_method(method: Any) -> None:
    """Raise an error for what is no method, or one whose values are no changes."""
    if method is None or (isinstance(method, Method) and method.gives != "scores"):
        return
    raise InvalidInput(
        f"method is {method!r}; a report shows changes, so it takes LeafInfluence(), StructureInfluence(), LeafRefit() "
        "or Retrain()."
    )
