"""The paper, reproduced: every table and figure of Sharchilev et al. (ICML 2018), and what it has not.

python experiments/paper.py                 # everything at small sizes, about ten minutes on two cores -> build/paper
python experiments/paper.py --full          # the paper's sizes, some hours -> docs/paper and docs/paper.md
python experiments/paper.py noise --full    # one of them; the other sections of the page stay as they are

A run that is interrupted goes on where it stopped: see store.py."""

from __future__ import annotations

import argparse
import importlib
import re
import sys

from results import DIFFERS, MARKS, ROOT, folder_of

NAMES = ("proxies", "times", "noise", "fixing", "mismatch", "attribution")
HEAD = """# The paper, reproduced

B. Sharchilev, Y. Ustinovsky, P. Serdyukov, M. de Rijke: *Finding Influential Training Samples for Gradient Boosted
Decision Trees*, ICML 2018. Every table and figure of it, the paper's numbers beside ours; at the end a comparison of
methods which it does not have. Written by `make paper-full` (`experiments/paper.py --full`); `make paper` does the same
at small sizes in about ten minutes and checks the same conclusions. CatBoost trains 100 trees of depth 6 with plain
boosting and one Newton step a leaf; learning rates are those of the paper's supplement. The data sets are not part of
this repository: `LEAFTRACE_DATA` names the folder that holds them; the public ones are otherwise downloaded from OpenML
(adult, Amazon_employee_access, KDDCup09_upselling, Diabetes130US, california_housing, wine_quality).

Conclusions are worded by what the full run shows, and every run checks them. Where the paper concludes something else,
the last column of this table says so."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, the default")
    size.add_argument("--full", action="store_true", help="the paper's sizes")
    given = parser.parse_args()
    if strangers := set(given.names) - set(NAMES):
        parser.error(
            f"there is no experiment {', '.join(sorted(strangers))}; there are {', '.join(NAMES)}"
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
    """The page of all sections there are; its path."""
    folder = folder_of(full)
    done = [name for name in NAMES if (folder / f"{name}.md").exists()]
    parts = [(folder / f"{name}.md").read_text().strip() for name in done]
    parts.insert(0, summary(parts))
    if len(done) < len(NAMES):
        parts.insert(
            0, f"Not run yet at this size: {', '.join(name for name in NAMES if name not in done)}."
        )
    page = ROOT / "docs" / "paper.md" if full else folder / "paper.md"
    page.write_text("\n\n".join([HEAD, *parts]) + "\n")
    return str(page)


def summary(parts: list[str]) -> str:
    """What holds in each section, what does not, and what differs from the paper."""
    lines = [
        f"| section | conclusions that hold | that do not | {DIFFERS[0].lower() + DIFFERS[1:]} |"
    ]
    lines.append("| --- | ---: | --- | --- |")
    for part in parts:
        title = part.partition("\n")[0].removeprefix("## ")
        marks = MARKS[True], MARKS[False], DIFFERS
        holds, fails, differs = (
            re.findall(f"^- {re.escape(m)}: (.*)$", part, re.MULTILINE) for m in marks
        )
        lines.append(
            f"| {title} | {len(holds)} of {len(holds) + len(fails)} | {'; '.join(fails)} | {''.join(differs)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
