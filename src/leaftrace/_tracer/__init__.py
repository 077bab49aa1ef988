"""`Tracer` takes the questions, `Influence` is the answer."""

from .influence import Influence as Influence
from .tracer import Tracer as Tracer
