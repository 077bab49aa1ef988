"""Goals: scalars of all test predictions, to be passed as ``of=``.

>>> gap = lt.goals.DemographicParityGap(X_test["sex"])                   # doctest: +SKIP
>>> tracer.influence(X_test, y_test, of=gap).top(5)                     # doctest: +SKIP
>>> tracer.refit(without=[17, 42]).goal(gap, X_test, y_test)            # doctest: +SKIP

A goal has a value and a gradient in the raw predictions F, (m,) or (m, K). LeafInfluence gives its
derivative in the weight of every training row; LeafRefit and Retrain give
value(F) - value(F without the row). It is one number of all test rows, so the result has one
column. Labels are the `y_test` of the question. A goal of your own is a `Goal`.
"""

from ._model.ready_goals import (
    AUC,
    NDCG,
    DemographicParityGap,
    EqualOpportunityGap,
    ExpectedProfit,
    Goal,
    MeanLoss,
    SliceLoss,
    shap,
)

ndcg = (
    NDCG  # beside `shap`: goals that are about a ranking or a feature are asked for in lower case
)

__all__ = [
    "AUC",
    "NDCG",
    "DemographicParityGap",
    "EqualOpportunityGap",
    "ExpectedProfit",
    "Goal",
    "MeanLoss",
    "SliceLoss",
    "ndcg",
    "shap",
]
