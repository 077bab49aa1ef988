"""CatBoost: models, Pools, `.cbm` and `.json` files."""

from .model_json import model_to_json as model_to_json
from .opening import load_model as load_model
from .opening import open_model as open_model
from .recorder import record_catboost as record_catboost
