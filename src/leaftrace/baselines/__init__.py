"""Baselines: other people's ways to score training rows, asked for as ``method=``.

>>> tracer.influence(X_test, y_test, method=lt.baselines.BoostIn()).top(5)          # doctest: +SKIP

`BoostIn`, `TreeSim`, `TREX` and `Random` are those of Brophy, Hammoudeh and Lowd (JMLR 2023), `Detector` is that of the
LeafInfluence paper; `RowLoss` and `SelfInfluence` look, like it, at the training row alone. Leave-one-out is
`lt.Retrain()`. All have the sign of LeafInfluence: positive means that the row hurts. BoostIn gives derivatives.
Everything else gives scores: their order is what counts, and tables say `score` where others say what would change.
"""

from ._boostin import BoostIn, SelfInfluence
from ._rows import Detector, Random, RowLoss
from ._treesim import TreeSim
from ._trex import TREX

__all__ = ["TREX", "BoostIn", "Detector", "Random", "RowLoss", "SelfInfluence", "TreeSim"]
