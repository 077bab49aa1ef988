"""XGBoost: estimators, Boosters, DMatrices, `.ubj` and `.json` files."""

from .opening import load_model as load_model
from .prediction import predict_leaves as predict_leaves
from .source import open_model as open_model
