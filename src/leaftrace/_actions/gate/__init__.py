"""`lt.gate`: whether a batch of new training rows may be merged."""

from .action import gate as gate
from .result import Gate as Gate
