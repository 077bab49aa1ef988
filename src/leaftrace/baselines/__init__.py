"""Baselines: published ways to score training rows, to pass as ``method=``.

>>> tracer.influence(X_test, y_test, method=lt.baselines.BoostIn()).top(5)          # doctest: +SKIP

`BoostIn`, `TreeSim`, `TREX` and `Random` are those of Brophy, Hammoudeh and Lowd (JMLR 2023).
`Detector` is that of the LeafInfluence paper; like it, `RowLoss` and `SelfInfluence` use the
training row alone. Leave-one-out is `lt.Retrain()`.

All have the sign of LeafInfluence: positive means that the row hurts. BoostIn gives derivatives.
The others give scores, of which only the order counts; their tables have a column `score` in place
of the change.
"""

from ._boostin import BoostIn, SelfInfluence
from ._rows import Detector, Random, RowLoss
from ._treesim import TreeSim
from ._trex import TREX

__all__ = ["TREX", "BoostIn", "Detector", "Random", "RowLoss", "SelfInfluence", "TreeSim"]
