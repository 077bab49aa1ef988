"""XGBoost: estimators, Boosters, DMatrices, `.ubj` and `.json` files."""

from .source import open_model as open_model
