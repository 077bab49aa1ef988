"""The paper's methods: two families times six update sets."""

from __future__ import annotations

from typing import Any

import leaftrace as lt

SIZES = (1, 2, 8, 22, 64)  # of TopKLeaves; trees of depth 6 have 64 leaves
LEAVES = 64


def update_sets(accumulate: str = "updated") -> dict[str, Any]:
    """As the authors' code reads TopKLeaves, or ("all") as their text does. All leaves of a tree are all points."""
    sizes = {
        k: lt.AllPoints() if k == LEAVES else lt.TopKLeaves(k, accumulate=accumulate) for k in SIZES
    }
    return {"SinglePoint": lt.SinglePoint()} | {f"Top{k}Leaves": u for k, u in sizes.items()}


FAMILIES = {"LeafRefit": lt.LeafRefit, "LeafInfluence": lt.LeafInfluence}


def methods() -> dict[tuple[str, str], Any]:
    return {(f, name): kind(u) for f, kind in FAMILIES.items() for name, u in update_sets().items()}
