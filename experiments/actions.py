"""Measure what the actions do on real data and write docs/actions.md.

Each experiment, `action_<name>.py`, writes one section of the page.

python experiments/actions.py            # all of them, about 40 minutes on two cores
python experiments/actions.py noise fix  # some: the other sections of the page stay as they are
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "actions.md"
NAMES = (
    *("noise", "clean", "fix", "impact", "mismatch", "groups", "sets", "acquire", "methods"),
    "stability",
)
HEAD = """# Actions, measured

This page measures what the actions do on real data, judged on rows that were not used to choose
anything. It is written by `make actions` (`experiments/actions.py`); every number was measured by
the script of its section. The data sets are not part of this repository; `LEAFTRACE_DATA` names the
folder that holds them.

Effects are given in up to three ways. *Predicted* adds up the derivatives of the rows concerned
(first order). *Refitted* recomputes the leaf values and keeps the splits of the trees. *Retrained*
trains the model again. *The paper* is Sharchilev et al., ICML 2018, which
[another page](paper.md) reproduces."""


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of a page that was written here."""
    parts = re.split(r"<!-- (\w+) -->\n", page)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def main(names: list[str]) -> None:
    """Run the experiments of these names, or all, and write the page after each."""
    if unknown := set(names) - set(NAMES):
        sys.exit(
            f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}."
        )
    done = sections(PAGE.read_text()) if PAGE.exists() else {}
    for name in names or NAMES:
        done[name] = importlib.import_module(f"action_{name}").run().strip()
        parts = [HEAD, *(f"<!-- {name} -->\n{done[name]}" for name in NAMES if name in done)]
        # Written after each experiment, so that an interrupted run keeps what it has.
        PAGE.write_text("\n\n".join(parts) + "\n")
        print(done[name], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
