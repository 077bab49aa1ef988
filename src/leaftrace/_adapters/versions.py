"""Versions of leaftrace and of the libraries in use, for reports and audit files."""

from __future__ import annotations

import platform
import sys

import numpy as np

from . import LIBRARIES


def versions() -> dict[str, str]:
    """Versions of everything that is loaded and could change the numbers."""
    from .. import __version__

    libraries = {
        name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules
    }
    return {
        "leaftrace": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **libraries,
    }
