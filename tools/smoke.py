"""Check that an installed leaftrace works: native kernels, an exact replay, a report.

`make dist` runs this, and cibuildwheel for every wheel. It needs scikit-learn, pandas and jinja2; with
--kernels, which looks at the native kernels alone, nothing but NumPy. Run it outside the repository, so
that the installed package is the one imported.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import leaftrace as lt
from leaftrace._model.kernels import is_native


def main() -> None:
    here = Path(lt.__file__).parent
    source = Path(__file__).parents[1] / "src"
    assert source not in here.parents, f"this is the source tree, not an installation: {here}"
    assert is_native(), "the native kernels are missing"
    if "--kernels" not in sys.argv:
        try_model()


def try_model() -> None:
    """Trace a model of scikit-learn and make a report of it."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import HistGradientBoostingClassifier

    data: Any = load_breast_cancer(as_frame=True)
    test = data.frame.index % 5 == 0
    X = data.data[~test]
    y = data.target[~test]
    X_test = data.data[test]
    y_test = data.target[test]
    tracer = lt.Tracer(HistGradientBoostingClassifier(max_iter=20).fit(X, y), X, y)
    assert tracer.fidelity.exact, tracer.fidelity.verdict
    assert tracer.influence(X_test, y_test).shape == (len(y), len(y_test))
    page = lt.report(tracer, X_test, y_test, worst=2).html
    assert page.startswith("<!doctype html>"), page[:80]
    print(
        f"leaftrace {lt.__version__} on Python {sys.version.split()[0]}: {tracer.fidelity.verdict}"
    )


if __name__ == "__main__":
    main()
