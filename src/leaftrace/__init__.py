"""leaftrace: which training rows made a gradient-boosted tree model predict this, and what would change without them.

>>> import leaftrace as lt
>>> tracer = lt.Tracer(model, X_train, y_train)               # doctest: +SKIP
>>> tracer.influence(X_test, y_test).top(5)                   # doctest: +SKIP
"""

from ._adapters import record_catboost
from ._altered import RefittedModel, RetrainedModel
from ._costs import Estimate
from ._errors import FidelityError, FidelityWarning, InvalidInput, LeaftraceError, UnsupportedModel
from ._fidelity import Fidelity
from ._influence import Influence
from ._methods import (
    AllPoints,
    FastLeafInfluence,
    FastLeafRefit,
    LeafInfluence,
    LeafRefit,
    Retrain,
    SinglePoint,
    TopKLeaves,
)
from ._tracer import Tracer

__version__ = "0.1.0"

__all__ = [
    "AllPoints",
    "Estimate",
    "FastLeafInfluence",
    "FastLeafRefit",
    "Fidelity",
    "FidelityError",
    "FidelityWarning",
    "Influence",
    "InvalidInput",
    "LeafInfluence",
    "LeafRefit",
    "LeaftraceError",
    "RefittedModel",
    "Retrain",
    "RetrainedModel",
    "SinglePoint",
    "TopKLeaves",
    "Tracer",
    "UnsupportedModel",
    "__version__",
    "record_catboost",
]
