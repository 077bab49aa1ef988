"""`lt.ensemble_influence`: influence averaged over seeds and bags."""

from .action import ensemble_influence as ensemble_influence
from .result import EnsembleInfluence as EnsembleInfluence
