"""`python -m leaftrace` is the command line."""

import sys

from ._views.cli import main

sys.exit(main())
