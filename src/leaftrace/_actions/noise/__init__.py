"""`lt.label_noise`: training rows whose labels look wrong."""

from .action import LabelNoise as LabelNoise
from .action import label_noise as label_noise
