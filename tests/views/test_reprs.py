"""A tracer in a notebook: facts and the verdict, with every value from the data escaped."""

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor

import leaftrace as lt

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
NAMES = np.array(["<i>no", "yes & so", *(f"class {i}" for i in range(5))], dtype=object)


def test_tracer_and_fidelity():
    y = NAMES[RNG.integers(0, 2, 200)]
    model = LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(X, y)
    tracer = lt.Tracer(model, X, y)
    shown = tracer._repr_html_()
    for words in (
        "Tracer: LGBMClassifier",
        "<td>logistic</td>",
        "<td>200</td>",
        "&lt;i&gt;no, yes &amp; so",
    ):
        assert words in shown
    assert tracer.fidelity.verdict in shown
    assert "<i>" not in shown
    assert len(shown) < 1000
    assert "The replay is exact" in tracer.fidelity._repr_html_()
    wrong = lt.Tracer(model, X, y, np.linspace(1, 2, 200), fidelity="ignore")
    assert "The replay is not exact" in wrong.fidelity._repr_html_()
    assert wrong.fidelity.verdict in wrong._repr_html_()


def test_many_classes_and_none():
    y = NAMES[np.arange(200) % 7]
    tracer = lt.Tracer(LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X, y), X, y)
    assert "and 2 more</td>" in tracer._repr_html_()
    numbers = lt.Tracer(
        LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(X, X[:, 0]), X, X[:, 0]
    )
    assert "classes" not in numbers._repr_html_()
