"""Models that are wrapped: in a search, around transformed labels, or made of several models."""
