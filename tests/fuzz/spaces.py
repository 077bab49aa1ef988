"""Configurations of each library: what practitioners search over, and the case of a configuration.

A configuration is a dict of plain values: ``library``, ``model``, ``data`` (see `data`), ``weights``,
``rounds``, ``baseline``, ``settings`` of the library. A case reads its structure from the library alone.
"""

from __future__ import annotations

from . import catboost_space, further_space, lightgbm_space, sklearn_space, xgboost_space
from .data import WEIGHTS

LIBRARIES = {
    "LightGBM": lightgbm_space,
    "XGBoost": xgboost_space,
    "CatBoost": catboost_space,
    "scikit-learn": sklearn_space,
    "further": further_space,
}


def draw_configuration(draw, library=None):
    """Draw a configuration of one library, or of any."""
    library = library or draw.pick(list(LIBRARIES))
    drawn = LIBRARIES[library].draw_configuration(draw)
    weights = draw.pick(WEIGHTS)
    return {"library": library, "weights": weights, "rounds": draw.pick([1, 3, 8, 15]), **drawn}


def case_of(configuration):
    """Return the case of a configuration. Its model is trained when it is first used."""
    return LIBRARIES[configuration["library"]].case_of(configuration)
