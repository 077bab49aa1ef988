"""Run the code of a page of the documentation with the installed leaftrace.

    python tools/try_page.py docs/quickstart.md

`make dist` runs the quick start like this, in an environment that has the wheel and its extras and
nothing else. Run it outside the repository, so that the installed package is the one imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "site"))
from blocks import BLOCK, with_output

import leaftrace as lt


def main() -> None:
    page = Path(sys.argv[1])
    here = Path(lt.__file__).parent
    source = Path(__file__).parents[1] / "src"
    assert source not in here.parents, f"this is the source tree, not an installation: {here}"
    text = page.read_text(encoding="utf-8")
    blocks = len(BLOCK.findall(text))
    assert len(with_output(text)) > len(text), "the page has no code, or its code prints nothing"
    print(f"{page.name}: {blocks} blocks of code run with leaftrace {lt.__version__} from {here}")


if __name__ == "__main__":
    main()
