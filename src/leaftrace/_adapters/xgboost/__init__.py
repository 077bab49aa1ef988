"""XGBoost: estimators, Boosters, DMatrices, `.ubj` and `.json` files."""

from .opening import load_model as load_model
from .prediction import leaves_of_numbers as leaves_of_numbers
from .source import open_model as open_model
