"""LightGBM: estimators, Boosters, `.txt` files."""

from .opening import load_model as load_model
from .source import open_model as open_model
