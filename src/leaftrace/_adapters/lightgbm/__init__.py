"""LightGBM: estimators, Boosters, `.txt` files."""

from .source import open_model as open_model
