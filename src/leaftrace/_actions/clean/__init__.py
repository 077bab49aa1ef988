"""`lt.clean`: a cleaner training set."""

from .action import Clean as Clean
from .action import clean as clean
