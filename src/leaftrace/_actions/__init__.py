"""From influence to action: each a small function on top of `Tracer`, checked by refitting and retraining."""
