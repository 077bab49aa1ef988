"""Measure what the actions do on real data and write docs/actions.md: one section an experiment, `action_<name>.py`.

python experiments/actions.py            # all of them, about half an hour on two cores
python experiments/actions.py noise fix  # some: the other sections of the page stay as they are
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "actions.md"
NAMES = ("noise", "clean", "fix", "impact", "mismatch", "groups", "acquire", "stability")
HEAD = """# Actions, measured

What the actions do on real data, judged on rows that did not choose anything. Written by `make actions`
(`experiments/actions.py`): every number below was measured by the script of its section. The data sets are not part of
this repository; `LEAFTRACE_DATA` names the folder that holds them."""


def sections(page: str) -> dict[str, str]:
    """The sections of a page as it was written here."""
    parts = re.split(r"<!-- (\w+) -->\n", page)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def main(names: list[str]) -> None:
    if strangers := set(names) - set(NAMES):
        sys.exit(
            f"there is no experiment {', '.join(sorted(strangers))}; there are {', '.join(NAMES)}."
        )
    done = sections(PAGE.read_text()) if PAGE.exists() else {}
    for name in names or NAMES:
        done[name] = importlib.import_module(f"action_{name}").run().strip()
        parts = [HEAD, *(f"<!-- {name} -->\n{done[name]}" for name in NAMES if name in done)]
        PAGE.write_text(
            "\n\n".join(parts) + "\n"
        )  # after each: an interrupted run keeps what it has
        print(done[name], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
