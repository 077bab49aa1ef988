"""From influence to action: functions on top of `Tracer` that check their results by retraining."""
