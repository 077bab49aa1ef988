"""The paper, reproduced: every table and figure of Sharchilev et al. (ICML 2018), and what it has not.

python experiments/paper.py                 # all at small sizes, a quarter of an hour on two cores -> build/paper
python experiments/paper.py --full          # the paper's sizes, some hours -> docs/paper, docs/paper.md
python experiments/paper.py noise --full    # one of them; the other sections of the page stay

A run that was interrupted continues where it stopped: see store.py."""

from __future__ import annotations

import argparse
import importlib
import re
import sys

from results import AIM_MARKS, DIFFERS, MARKS, ROOT, folder_of

NAMES = (
    "proxies",
    "times",
    "noise",
    "fixing",
    "mismatch",
    "detectors",
    "attribution",
    "curves",
    "protocols",
)
HEAD = """# The paper, reproduced

This page reproduces every table and figure of B. Sharchilev, Y. Ustinovsky, P. Serdyukov, M. de Rijke:
*Finding Influential Training Samples for Gradient Boosted Decision Trees*, ICML 2018, with the paper's
numbers beside ours. The last sections go beyond it: other detectors of wrong labels, and comparisons of
methods by retraining.

The page is written by `make paper-full` (`experiments/paper.py --full`). `make paper` does the same at
small sizes in a quarter of an hour and checks the same conclusions. CatBoost trains 100 trees of depth 6
with plain boosting and one Newton step per leaf; learning rates are those of the paper's supplement.
The data sets are not part of this repository. `LEAFTRACE_DATA` names the folder that holds them;
without it, the public ones are downloaded from OpenML (adult, Amazon_employee_access,
KDDCup09_upselling, Diabetes130US, california_housing, wine_quality).

The paper has two methods, both with the splits of the trees held fixed. *LeafRefit* removes a training
row and recomputes all leaf values. *LeafInfluence* is a derivative: how fast a loss changes with the
weight of a row. To save work, both can follow the changes of only some rows, the *update set*.
*SinglePoint* follows no other row and keeps only the direct effect. *TopKLeaves* follows the rows of
the k leaves of each tree in which scores changed most; trees of depth 6 have 64 leaves, so Top64Leaves
follows all rows and is exact.

The conclusions of each section say what the full run shows, and every run checks them. Where the paper
concludes something else, the last column of this table says so."""


def main() -> None:
    """Run the experiments given on the command line; exit with 1 if a conclusion does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, the default")
    size.add_argument("--full", action="store_true", help="the paper's sizes")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(
            f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}"
        )
    broken = []
    try:
        for name in given.names or NAMES:
            section = importlib.import_module(f"paper_{name}").run(given.full)
            print(section.write(name, given.full).read_text(), flush=True)
            broken += [claim for claim, holds in section.claims.items() if not holds]
            page = assemble(given.full)
    except KeyboardInterrupt:
        print(
            "interrupted; finished parts are kept, the same command goes on from here.",
            file=sys.stderr,
        )
        sys.exit(130)
    print(f"Page: {page}")
    if broken:
        sys.exit("does not hold: " + "; ".join(broken))  # with code 1


def assemble(full: bool) -> str:
    """Write the page of all sections that were run, and return its path."""
    folder = folder_of(full)
    done = [name for name in NAMES if (folder / f"{name}.md").exists()]
    parts = [(folder / f"{name}.md").read_text().strip() for name in done]
    parts.insert(0, summary(parts))
    if missing := [name for name in NAMES if name not in done]:
        parts.insert(0, f"Not run yet at this size: {', '.join(missing)}.")
    page = ROOT / "docs" / "paper.md" if full else folder / "paper.md"
    page.write_text("\n\n".join([HEAD, *parts]) + "\n")
    return str(page)


def summary(parts: list[str]) -> str:
    """Return a table of what holds in each section, what does not, and what differs from the paper."""
    differs = DIFFERS[0].lower() + DIFFERS[1:]
    lines = [
        f"| section | conclusions that hold | conclusions that do not | {differs} |",
        "| --- | ---: | --- | --- |",
    ]
    for part in parts:
        title = part.partition("\n")[0].removeprefix("## ")
        holds = marked(part, MARKS[True])
        fails = marked(part, MARKS[False])
        missed = [f"aim: {aim}" for aim in marked(part, AIM_MARKS[False])]
        other = marked(part, DIFFERS)
        count = f"{len(holds)} of {len(holds) + len(fails)}" if holds or fails else ""
        lines.append(f"| {title} | {count} | {'; '.join(fails + missed)} | {''.join(other)} |")
    return "\n".join(lines)


def marked(part: str, mark: str) -> list[str]:
    """Return the list items of a section that start with this mark."""
    return re.findall(f"^- {re.escape(mark)}: (.*)$", part, re.MULTILINE)


if __name__ == "__main__":
    main()
