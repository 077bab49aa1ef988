"""`lt.data_values`: what each training row is worth, averaged over small bags."""

from .action import data_values as data_values
from .result import DataValues as DataValues
from .source_result import SourceValues as SourceValues
from .sources import source_values as source_values
