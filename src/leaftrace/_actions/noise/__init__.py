"""`lt.label_noise`: training rows whose labels surprise the model."""

from .action import label_noise as label_noise
from .result import LabelNoise as LabelNoise
