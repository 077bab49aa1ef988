"""leaftrace: which training rows made a gradient-boosted tree model predict something.

It also computes what the model would predict without them.

>>> import leaftrace as lt
>>> tracer = lt.Tracer(model, X_train, y_train)               # doctest: +SKIP
>>> tracer.influence(X_test, y_test).top(5)                   # doctest: +SKIP
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; the module `typing` would have to be loaded
if TYPE_CHECKING:
    from typing import Any

    from . import baselines, goals, plot
    from ._actions.acquire import Acquisition, acquire
    from ._actions.clean.action import Clean, clean
    from ._actions.curve import RemovalCurve, removal_curve
    from ._actions.estimates import estimate
    from ._actions.fix.action import Fix, fix
    from ._actions.gate import Gate, gate
    from ._actions.groups import GroupEffects, group_effects
    from ._actions.impact.action import RemovalImpact, removal_impact
    from ._actions.influential import InfluentialSet, influential_set
    from ._actions.mismatch.action import Mismatch, mismatch
    from ._actions.noise.action import LabelNoise, label_noise
    from ._actions.stability.action import EnsembleInfluence, ensemble_influence
    from ._actions.values.action import DataValues, data_values
    from ._actions.values.source_result import SourceValues
    from ._actions.values.sources import source_values
    from ._adapters import record_catboost
    from ._data.errors import (
        FidelityError,
        FidelityWarning,
        IndexWarning,
        InvalidInput,
        LeaftraceError,
        UnsupportedModel,
    )
    from ._engine.costs import Estimate
    from ._engine.fidelity import Fidelity
    from ._engine.methods import (
        AllPoints,
        FastLeafInfluence,
        FastLeafRefit,
        LeafInfluence,
        LeafRefit,
        Retrain,
        SinglePoint,
        StructureInfluence,
        TopKLeaves,
    )
    from ._engine.refit import RefittedModel, RetrainedModel
    from ._tracer.influence import Influence
    from ._tracer.members import MembersTracer
    from ._tracer.noise_floor import NoiseFloor
    from ._tracer.tracer import Tracer
    from ._views.explore import Explorer, explore
    from ._views.make_report import report
    from ._views.report import Report

__version__ = "0.1.0"

__all__ = [
    "Acquisition",
    "AllPoints",
    "Clean",
    "DataValues",
    "EnsembleInfluence",
    "Estimate",
    "Explorer",
    "FastLeafInfluence",
    "FastLeafRefit",
    "Fidelity",
    "FidelityError",
    "FidelityWarning",
    "Fix",
    "Gate",
    "GroupEffects",
    "IndexWarning",
    "Influence",
    "InfluentialSet",
    "InvalidInput",
    "LabelNoise",
    "LeafInfluence",
    "LeafRefit",
    "LeaftraceError",
    "MembersTracer",
    "Mismatch",
    "NoiseFloor",
    "RefittedModel",
    "RemovalCurve",
    "RemovalImpact",
    "Report",
    "Retrain",
    "RetrainedModel",
    "SinglePoint",
    "SourceValues",
    "StructureInfluence",
    "TopKLeaves",
    "Tracer",
    "UnsupportedModel",
    "__version__",
    "acquire",
    "baselines",
    "clean",
    "data_values",
    "ensemble_influence",
    "estimate",
    "explore",
    "fix",
    "gate",
    "goals",
    "group_effects",
    "influential_set",
    "label_noise",
    "mismatch",
    "plot",
    "record_catboost",
    "removal_curve",
    "removal_impact",
    "report",
    "source_values",
]

# A module is imported when one of its names is first used: importing leaftrace takes no time, and
# the command can answer Ctrl-C before NumPy is loaded. `cleanlab`, `dask`, `mlflow` and `spark` are
# not in __all__: `import *` would import them, and they need not be installed.
_MODULES = {
    "baselines": "baselines",
    "cleanlab": "cleanlab",
    "dask": "dask",
    "goals": "goals",
    "mlflow": "mlflow",
    "plot": "plot",
    "spark": "spark",
    "_actions.acquire": "Acquisition acquire",
    "_actions.clean": "Clean clean",
    "_actions.curve": "RemovalCurve removal_curve",
    "_actions.estimates": "estimate",
    "_actions.fix": "Fix fix",
    "_actions.gate": "Gate gate",
    "_actions.groups": "GroupEffects group_effects",
    "_actions.impact": "RemovalImpact removal_impact",
    "_actions.influential": "InfluentialSet influential_set",
    "_actions.mismatch": "Mismatch mismatch",
    "_actions.noise": "LabelNoise label_noise",
    "_actions.stability": "EnsembleInfluence ensemble_influence",
    "_actions.values": "DataValues SourceValues data_values source_values",
    "_adapters": "record_catboost",
    "_data.errors": (
        "FidelityError FidelityWarning IndexWarning InvalidInput LeaftraceError UnsupportedModel"
    ),
    "_engine.costs": "Estimate",
    "_engine.fidelity": "Fidelity",
    "_engine.methods": (
        "AllPoints FastLeafInfluence FastLeafRefit LeafInfluence LeafRefit Retrain SinglePoint "
        "StructureInfluence TopKLeaves"
    ),
    "_engine.refit": "RefittedModel RetrainedModel",
    "_views.explore": "Explorer explore",
    "_views.make_report": "report",
    "_views.report": "Report",
    "_tracer.influence": "Influence",
    "_tracer.members": "MembersTracer",
    "_tracer.noise_floor": "NoiseFloor",
    "_tracer.tracer": "Tracer",
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _LATER:
        raise AttributeError(f"module 'leaftrace' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f".{_LATER[name]}", __name__)
    return module if name == _LATER[name] else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
