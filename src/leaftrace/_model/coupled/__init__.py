"""Losses in which the gradient of a row depends on the scores of other rows."""
