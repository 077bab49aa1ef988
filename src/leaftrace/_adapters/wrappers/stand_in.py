"""Stand-ins: members of a model whose predictions are computed from given raw scores.

A wrapper with stand-ins for its members combines their predictions by its own code, so that how it
does so need not be written again here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._data.arrays import F64

if TYPE_CHECKING:
    from .. import Source


class StandIn:
    """A fitted model that predicts from raw scores F (m, K), whatever rows it is given.

    What else a wrapper asks for (classes_, tags) is that of the model itself.
    """

    def __init__(self, model: Any, source: Source, F: F64) -> None:
        self.model = model
        self.source = source
        self.F = F

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Any:
        return self.source.own_predictions(self.F)

    def predict_proba(self, X: Any) -> Any:
        return self.source.own_response(self.F)

    @property
    def decision_function(self) -> Any:
        """The raw scores, as a function of rows, where the model has such."""
        if not hasattr(self.model, "decision_function"):
            raise AttributeError("decision_function")
        return lambda X: self.F[:, 0] if self.F.shape[1] == 1 else self.F
