"""A pytest plugin that runs the tests on the kernels of `make asan` instead of the installed ones.

``LEAFTRACE_SANITIZED`` is the folder where they were built. They are loaded under the name of the
installed ones before leaftrace is imported, in each worker of pytest.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

NAME = "leaftrace._native"


def load(folder: Path) -> None:
    """Load the kernels of a folder; there must be one file of them."""
    (path,) = [p for p in folder.glob("_native*") if p.suffix in (".so", ".dylib")]
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


def pytest_report_header() -> str:
    """Name the file whose kernels run, which must be the one that was loaded."""
    from leaftrace._model.kernels import kernels

    assert kernels is sys.modules[NAME], "other kernels are in use"
    return f"kernels: {kernels.__file__}"


load(Path(os.environ["LEAFTRACE_SANITIZED"]))
