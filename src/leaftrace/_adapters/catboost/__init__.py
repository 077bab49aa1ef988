"""CatBoost: models, Pools, `.cbm` and `.json` files."""

from .source import load_model as load_model
from .source import open_model as open_model
from .source import record_catboost as record_catboost
