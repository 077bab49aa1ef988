"""Baselines: published ways to score training rows, to pass as ``method=``.

>>> tracer.influence(X_test, y_test, method=lt.baselines.BoostIn()).top(5)          # doctest: +SKIP

`BoostIn`, `TreeSim`, `TREX` and `Random` are those of Brophy, Hammoudeh and Lowd (JMLR 2023).
`Detector` is that of the LeafInfluence paper; like it, `RowLoss` and `SelfInfluence` use the
training row alone. `BoostInLCA` is by Choubey (2025). `AXIL` is for squared errors, `RFGAP` (and
the function `rf_gap`) for forests.
Leave-one-out is `lt.Retrain()`; `SubSample`, `DataBanzhaf`, `BetaShapley` and `DataOOB` train many
models on subsets of the rows.

All have the sign of LeafInfluence: positive means that the row hurts. BoostIn gives derivatives.
The others give scores, of which only the order counts; their tables have a column `score` in place
of the change.
"""

from ._axil import AXIL
from ._boostin import BoostIn, SelfInfluence
from ._boostin_lca import BoostInLCA
from ._data_oob import DataOOB
from ._rf_gap import RFGAP, rf_gap
from ._rows import Detector, Random, RowLoss
from ._subsets import BetaShapley, DataBanzhaf, SubSample
from ._treesim import TreeSim
from ._trex import TREX

__all__ = [
    "AXIL",
    "RFGAP",
    "TREX",
    "BetaShapley",
    "BoostIn",
    "BoostInLCA",
    "DataBanzhaf",
    "DataOOB",
    "Detector",
    "Random",
    "RowLoss",
    "SelfInfluence",
    "SubSample",
    "TreeSim",
    "rf_gap",
]
