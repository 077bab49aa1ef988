"""`lt.influential_set`: the rows whose removal moves a prediction or a loss most."""

from .action import influential_set as influential_set
from .result import InfluentialSet as InfluentialSet
