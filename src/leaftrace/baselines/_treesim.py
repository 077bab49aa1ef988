"""TreeSim: rows that are similar by the trees help if their labels agree, and hurt if not.

    TreeSim(i, x) = -K(i, x) if i and x agree, otherwise K(i, x)                      K: the tree kernel, _kernel.py

Classes agree if they are the same. Numbers agree if both labels are on the same side of the
prediction for x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._data.arrays import Ints, Real
from .._engine.methods import Baseline
from .._engine.queries import Queries
from .._engine.workspace import Workspace
from ._kernel import Weighting, by_training_rows, check_weighting, embedding, signed_by_labels
from ._rows import needs_loss


@dataclass(frozen=True)
class TreeSim(Baseline):
    """Similarity in the trees, with a sign from the labels (Brophy, Hammoudeh, Lowd, JMLR 2023).

    >>> tracer.influence(X_test, y_test, method=TreeSim())                      # doctest: +SKIP

    The dot product of leaf embeddings: a sum over the trees in which both rows are in one leaf. It
    is negative (helpful) if the labels agree: the same class, or numbers on the same side of the
    prediction for the test row.

    ``weighting``  weight of a shared leaf in the sum
        "count"    1 / (its training rows)^2, the authors' default
        "path"     1: the number of shared leaves
        "output"   its value squared

    Sample weights do not count. A label equal to the prediction counts as above it, for training
    and test rows (in the authors' code, test labels count as below).
    """

    weighting: Weighting = "count"

    def __post_init__(self) -> None:
        check_weighting(self.weighting, "TreeSim")

    def values(
        self, work: Workspace, queries: Queries, index: Ints | None, classes: np.ndarray | None
    ) -> Real:
        needs_loss(queries, "TreeSim")
        e = work.trace.ensemble
        signed = signed_by_labels(e, queries, classes)
        return by_training_rows(work, index, queries.leaves, embedding(e, self.weighting), signed)
