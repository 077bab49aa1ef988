"""A fuzzer: random models of every library, and damaged files, checked against the oracle.

``python -m tests.fuzz --seed N`` repeats one configuration; CONTRIBUTING.md has more.
"""

import sys
from pathlib import Path

SUPPORT = str(Path(__file__).parents[1] / "support")
if SUPPORT not in sys.path:  # pytest has it there already
    sys.path.insert(0, SUPPORT)
