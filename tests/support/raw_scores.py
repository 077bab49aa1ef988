"""Raw scores of refitted and retrained models, in the shape in which libraries give them."""


def raw_scores(altered, X, **more):
    """Return (m,) for one output, otherwise (m, K)."""
    F = altered.scores(X, **more)
    return F[:, 0] if F.shape[1] == 1 else F
