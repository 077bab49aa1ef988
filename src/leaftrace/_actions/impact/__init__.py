"""`lt.removal_impact`: the effects of removing rows, with a record for the file."""

from .action import removal_impact as removal_impact
from .result import RemovalImpact as RemovalImpact
