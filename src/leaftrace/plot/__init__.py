"""Pictures of results, with matplotlib (`pip install leaftrace[plot]`).

>>> import leaftrace as lt
>>> lt.plot.top(tracer.influence(X_test, y_test), test_row=7)           # doctest: +SKIP

Each function takes a result, draws on the Axes given as ``ax`` or on a new figure, and returns the Axes. Colours are
those that colour-blind readers tell apart, and signs, words, hatches or markers say the same in grey print.
"""

from ._curves import distribution, fidelity, noise, removal_curve
from ._effects import effects, groups
from ._rows import side_by_side, top

__all__ = [
    "distribution",
    "effects",
    "fidelity",
    "groups",
    "noise",
    "removal_curve",
    "side_by_side",
    "top",
]
