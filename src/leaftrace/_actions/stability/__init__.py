"""`lt.ensemble_influence`: influence averaged over seeds and bags."""

from .action import EnsembleInfluence as EnsembleInfluence
from .action import ensemble_influence as ensemble_influence
