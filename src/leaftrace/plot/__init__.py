"""Pictures of results, with matplotlib (`pip install leaftrace[plot]`).

>>> import leaftrace as lt
>>> lt.plot.top(tracer.influence(X_test, y_test), test_row=7)           # doctest: +SKIP

Each function takes a result, draws it on the Axes given as ``ax`` or on a new figure, and returns
the Axes. Colour-blind readers can distinguish the colours. Signs, words, hatches or markers carry
the same information, so pictures can also be read when printed in grey.
"""

from ._beside_shap import beside_shap
from ._curves import distribution, fidelity, noise, removal_curve
from ._effects import effects
from ._features import features
from ._groups import groups
from ._rows import top
from ._side_by_side import side_by_side

__all__ = [
    "beside_shap",
    "distribution",
    "effects",
    "features",
    "fidelity",
    "groups",
    "noise",
    "removal_curve",
    "side_by_side",
    "top",
]
