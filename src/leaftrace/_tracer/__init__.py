"""`Tracer`, which explains a model by its training rows, and `Influence`, its result."""

from .influence import Influence as Influence
from .tracer import Tracer as Tracer
