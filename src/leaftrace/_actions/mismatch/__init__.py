"""`lt.mismatch`: weights of groups of training rows that serve the test set better."""

from .action import Mismatch as Mismatch
from .action import mismatch as mismatch
