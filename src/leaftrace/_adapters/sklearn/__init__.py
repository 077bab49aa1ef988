"""scikit-learn: gradient boosting and forests."""

from .estimators import open_model as open_model
