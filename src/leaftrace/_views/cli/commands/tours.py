"""`leaftrace demo` and `leaftrace paper`: commands that need no model of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer

from ...._data.errors import InvalidInput


def demo(
    folder: Annotated[
        str, typer.Argument(help="Where to put the tables, the model and the report.")
    ] = "leaftrace-demo",
) -> int:
    """Try leaftrace on two small tables and a model that it makes.

    It finds the wrong labels and writes a report."""
    from ..demo import run

    return run(folder)


def paper(
    names: Annotated[
        list[str] | None, typer.Argument(help="Some of the experiments; all if none is named.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's sizes (hours), or small ones.")
    ] = False,
    experiments: Annotated[
        str, typer.Option(help="Folder of the experiments, in a copy of the repository.")
    ] = "experiments",
) -> int:
    """Reproduce the paper's tables and figures, with its numbers beside ours.

    A run that was interrupted continues where it stopped."""
    script = os.path.join(experiments, "paper.py")
    if not os.path.exists(script):
        raise InvalidInput(
            f"there is no {script}: the experiments are in the repository, not in the package. "
            "Clone it and run this in its folder, or name its experiments folder with --experiments."
        )
    size = ["--full"] if full else []
    return subprocess.run([sys.executable, script, *(names or []), *size]).returncode
