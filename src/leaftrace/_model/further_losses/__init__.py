"""Losses that NumPy alone computes: by users' functions, of several targets, of survival times."""
