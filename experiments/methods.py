"""The paper's methods: two families, each with six update sets."""

from __future__ import annotations

from typing import Any

import leaftrace as lt

SIZES = (1, 2, 8, 22, 64)  # of TopKLeaves; trees of depth 6 have 64 leaves
LEAVES = 64


def update_sets(accumulate: str = "updated") -> dict[str, Any]:
    """Return the update sets by name.

    TopKLeaves is read as the authors' code does ("updated") or as the text of their paper does ("all").
    All leaves of a tree together are all points."""
    found: dict[str, Any] = {"SinglePoint": lt.SinglePoint()}
    for k in SIZES:
        all_points = k == LEAVES
        found[f"Top{k}Leaves"] = (
            lt.AllPoints() if all_points else lt.TopKLeaves(k, accumulate=accumulate)
        )
    return found


FAMILIES = {"LeafRefit": lt.LeafRefit, "LeafInfluence": lt.LeafInfluence}


def methods() -> dict[tuple[str, str], Any]:
    """Return the methods by (family, update set)."""
    return {
        (family, name): method(update_set)
        for family, method in FAMILIES.items()
        for name, update_set in update_sets().items()
    }
