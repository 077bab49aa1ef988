"""The result of an experiment: numbers, a figure and conclusions, and the files made of them.

    NAME.csv             all numbers
    NAME.md              the section of the page, with the conclusions
    NAME.png, NAME.svg   the figure

A full run writes to docs/paper, a quick one to build/paper. Quick numbers are for checking the
conclusions, not for citing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure, FigureBase

ROOT = Path(__file__).parents[1]
# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
MARKS = {True: "Holds", False: "**Does not hold**"}
AIM_MARKS = {True: "Aim reached", False: "**Aim not reached**"}
DIFFERS = "Differs from the paper"


@dataclass(frozen=True)
class Section:
    """The result of one experiment.

    `text` is Markdown, with the word `FIGURE` where the figure goes. `claims` says of each conclusion
    whether it holds in these numbers; a run fails if one does not. `aims` says what was to be reached,
    and whether it is: the page tells, and a run does not fail. `differs` is what the paper found and we
    did not."""

    title: str
    text: str
    numbers: pd.DataFrame
    figure: Figure
    claims: dict[str, bool] = field(default_factory=dict)
    differs: str = ""
    aims: dict[str, bool] = field(default_factory=dict)

    def write(self, name: str, full: bool) -> Path:
        """Write all files and return the path of the Markdown file."""
        folder = folder_of(full)
        folder.mkdir(parents=True, exist_ok=True)
        self.numbers.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        self.figure.savefig(folder / f"{name}.png", dpi=120)
        with rc_context({"svg.hashsalt": name}):  # the same picture is the same file
            self.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        conclusions = [f"- {MARKS[holds]}: {claim}" for claim, holds in self.claims.items()]
        conclusions += [f"- {AIM_MARKS[reached]}: {aim}" for aim, reached in self.aims.items()]
        if self.differs:
            conclusions.append(f"- {DIFFERS}: {self.differs}")
        prefix = "paper/" if full else ""
        picture = f"![{self.title}]({prefix}{name}.png)"
        parts = [
            f"## {self.title}",
            self.text.strip().replace("FIGURE", picture),
            "\n".join(conclusions),
            f"Numbers: [{name}.csv]({prefix}{name}.csv).",
        ]
        path = folder / f"{name}.md"
        path.write_text("\n\n".join(part for part in parts if part) + "\n")
        return path


def folder_of(full: bool) -> Path:
    return ROOT / "docs" / "paper" if full else ROOT / "build" / "paper"


def markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown. Cells are written as they are, so round numbers before."""
    rows = [
        list(map(str, table.columns)),
        *(["" if v is None else str(v) for v in row] for row in table.to_numpy()),
    ]
    right = ["---:" if i else "---" for i in range(len(table.columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], right, *rows[1:]))


def sign(value: float, digits: int) -> str:
    """Return a number with its sign, the minus as a typographic one."""
    return f"{value:+.{digits}f}".replace("-", "−")


def axes(
    columns: int = 1,
    height: float = 3.2,
    width: float = 8.0,
    figure: FigureBase | None = None,
    **more: object,
) -> tuple[FigureBase, Sequence]:
    """Return a figure and a list of its axes.

    The figure is new, and not one of pyplot's, unless one (or a part of one) is given."""
    figure = figure or Figure(figsize=(width, height), layout="constrained")
    found = figure.subplots(1, columns, squeeze=False, **more).ravel().tolist()
    for ax in found:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, found


def legend(figure: FigureBase, ax: Any, place: str = "lower center", columns: int = 5) -> None:
    """Draw a legend outside of all axes, so that it hides nothing."""
    figure.legend(
        *ax.get_legend_handles_labels(),
        frameon=False,
        fontsize=8,
        ncols=columns,
        loc=f"outside {place}",
    )
