"""What an experiment gives: a table, a figure and conclusions; and the files and the page that are made of them.

    NAME.csv   all numbers               NAME.md    the section of the page, with the conclusions
    NAME.png, NAME.svg   the figure

A full run writes to docs/paper, a quick one to build/paper: quick numbers are for conclusions, not for citing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure, FigureBase

ROOT = Path(__file__).parents[1]
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)  # Okabe and Ito
MARKS = {True: "Holds", False: "**Does not hold**"}
DIFFERS = "Differs from the paper"


@dataclass(frozen=True)
class Section:
    """One experiment. `text` is Markdown and has the place of the figure as `FIGURE`."""

    title: str
    text: str
    numbers: pd.DataFrame
    figure: Figure
    claims: dict[str, bool] = field(
        default_factory=dict
    )  # conclusion: does it hold in these numbers?
    differs: str = ""  # what the paper found and we do not

    def write(self, name: str, full: bool) -> Path:
        folder = folder_of(full)
        folder.mkdir(parents=True, exist_ok=True)
        self.numbers.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        self.figure.savefig(folder / f"{name}.png", dpi=120)
        with rc_context({"svg.hashsalt": name}):  # the same picture is the same file
            self.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        held = [f"- {MARKS[holds]}: {claim}" for claim, holds in self.claims.items()]
        held += [f"- {DIFFERS}: {self.differs}"] if self.differs else []
        picture = f"![{self.title}]({'paper/' if full else ''}{name}.png)"
        files = f"Numbers: [{name}.csv]({'paper/' if full else ''}{name}.csv)."
        parts = [
            f"## {self.title}",
            self.text.strip().replace("FIGURE", picture),
            "\n".join(held),
            files,
        ]
        path = folder / f"{name}.md"
        path.write_text("\n\n".join(part for part in parts if part) + "\n")
        return path


def folder_of(full: bool) -> Path:
    return ROOT / "docs" / "paper" if full else ROOT / "build" / "paper"


def markdown(table: pd.DataFrame) -> str:
    """A table of texts; numbers are written as they are given, so round before."""
    rows = [
        list(map(str, table.columns)),
        *(["" if v is None else str(v) for v in row] for row in table.to_numpy()),
    ]
    right = ["---:" if i else "---" for i in range(len(table.columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], right, *rows[1:]))


def sign(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def axes(
    columns: int = 1,
    height: float = 3.2,
    width: float = 8.0,
    figure: FigureBase | None = None,
    **more: object,
) -> tuple[FigureBase, Sequence]:
    """A figure of its own, not one of pyplot's (or a given one, or a part of one), and its axes in one list."""
    figure = figure or Figure(figsize=(width, height), layout="constrained")
    found = figure.subplots(1, columns, squeeze=False, **more).ravel().tolist()
    for ax in found:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, found


def legend(figure: FigureBase, ax: Any, place: str = "lower center", columns: int = 5) -> None:
    """Outside of all axes, so that it hides nothing."""
    figure.legend(
        *ax.get_legend_handles_labels(),
        frameon=False,
        fontsize=8,
        ncols=columns,
        loc=f"outside {place}",
    )
