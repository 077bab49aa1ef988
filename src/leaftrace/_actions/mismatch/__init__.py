"""`lt.mismatch`: weights of groups of training rows that serve the test set better."""

from .action import mismatch as mismatch
from .result import Mismatch as Mismatch
