"""Run the code of a page and add what it prints.

The code is python blocks, in one namespace, and ``$ leaftrace`` lines of console blocks, in one folder.
`mkdocs build` runs it, so that pages show what this version really prints; `tests/test_docs.py` runs
the same. A block inside an HTML comment is run and not shown. Pictures that a block draws with
matplotlib are put under it, inside the page. A block that begins with the line ``# needs: java`` is run
only where there is such a command; the line is not shown.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

NEEDS = re.compile(r"# needs: (\w+)\n")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
os.environ.setdefault("MPLBACKEND", "agg")  # draw without a window
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
WIDTH = 120  # characters in which pandas prints a table: by default it leaves out columns beyond 80


@functools.cache  # `mkdocs serve` runs a page again when it has changed
def with_output(page: str) -> str:
    """Return the page with what its blocks print. A block that fails raises an error with its line."""
    names: dict[str, object] = {"__name__": "__page__"}
    hidden = [range(*comment.span()) for comment in COMMENT.finditer(page)]

    def run(block: re.Match[str]) -> str:
        line = page[: block.start()].count("\n") + 1
        if block[1] == "console":
            return f"```console\n{_commands(block[2], line)}```\n"
        needs = NEEDS.match(block[2])
        shown = block[0] if needs is None else block[0].replace(needs[0], "", 1)
        if needs is not None and shutil.which(needs[1]) is None:
            return shown
        output = _python(block[2], line, names).rstrip()
        pictures = _pictures()
        if any(block.start() in part for part in hidden):
            return block[0]
        text = f"\n```{{.text .output}}\n{output}\n```\n" if output else ""
        return shown + text + "".join(f"\n{picture}\n" for picture in pictures)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _whole_tables():
        return BLOCK.sub(run, page)


def _whole_tables() -> contextlib.AbstractContextManager[object]:
    """Have pandas, if it is installed, print all columns of a table."""
    try:
        import pandas as pd
    except ImportError:
        return contextlib.nullcontext()
    return pd.option_context("display.max_columns", None, "display.width", WIDTH)


def _python(code: str, line: int, names: dict[str, object]) -> str:
    """Run a block and return what it prints. Errors have the line of the page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, "page", "exec"), names)
    return printed.getvalue()


def _pictures() -> list[str]:
    """Return the open figures as HTML, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    shown = []
    for number in [] if pyplot is None else pyplot.get_fignums():
        figure = pyplot.figure(number)
        file = io.BytesIO()
        titles = (
            ax.get_title() or ax.get_title("left") or ax.get_xlabel() or ax.get_ylabel()
            for ax in figure.axes
        )
        title = "; ".join(filter(None, titles)) or "picture"
        figure.savefig(file, format="png", dpi=110)
        content = base64.b64encode(file.getvalue()).decode()
        width = round(96 * figure.get_figwidth())
        shown.append(
            f'<img alt="{html.escape(title)}" width="{width}" src="data:image/png;base64,{content}">'
        )
        pyplot.close(figure)
    return shown


def _commands(text: str, line: int) -> str:
    """Return the commands, each followed by what it prints. Only leaftrace commands are run."""
    shown = ""
    for command in re.findall(r"\$ (?:.*\\\n)*.*\n", text):
        shown += command
        if command.startswith("$ leaftrace"):
            words = shlex.split(command.removeprefix("$ leaftrace").replace("\\\n", " "))
            done = subprocess.run(
                [sys.executable, "-m", "leaftrace", *words],
                capture_output=True,
                text=True,
                env=os.environ | TERMINAL,
            )
            if done.returncode:
                raise RuntimeError(
                    f"line {line}: {command.strip()}\nexit code {done.returncode}: {done.stderr}"
                )
            output = done.stdout.replace(os.getcwd() + os.sep, "").strip("\n")
            shown += "\n".join(map(str.rstrip, output.splitlines())) + "\n\n"
    return shown.rstrip("\n") + "\n"
