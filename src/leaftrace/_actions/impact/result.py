"""The result of `removal_impact`, which can be saved as an audit file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ..._data.arrays import F64, Ints
from ..._data.files import whole_file
from ..._data.tables import table
from ..common import Finding
from ..effects import Effect, effects_table, shown_effects
from .dossier import checked, dossier_page, record_of, signed


@dataclass(frozen=True, repr=False)
class RemovalImpact(Finding):
    """Changes without some training rows.

    ``rows``      positions of the rows removed
    ``answers``   for "before", "predicted", "refitted" and "retrained", as far as computed: class
                  probabilities (m, classes) or predictions (m,) of the test rows
    ``controls``  mean moves when as many random rows are removed, by retraining
    ``interrupted``  whether Ctrl-C or the time limit ended it

    In `effects`, moves are absolute, "predicted" is read from scores to first order, and a row's
    move of several probabilities is the largest of them.
    """

    title: str
    advice: str
    rows: Ints
    answers: Mapping[str, F64]
    controls: F64
    interrupted: bool
    _table: Any
    _effects: tuple[Effect, ...]
    _membership: dict[str, Any]
    _kind: str
    _audit: dict[str, Any]

    @property
    def table(self) -> Any:
        """The test rows that move most: their answer before (the probability of the class first
        decided for, or the prediction) and its changes."""
        return self._table

    @property
    def shown(self) -> Any:
        return shown_effects(self._table)

    @property
    def effects(self) -> Any:
        return effects_table(self._effects, self._kind)

    @property
    def membership(self) -> Any:
        """Whether a model shows that it once saw the rows, as a table.

        An AUC of losses is the chance that a removed row has the lower one: against test rows, or
        the row itself by a model that never saw it. 0.5 tells nothing. `controls_low` to
        `controls_high` are the values of random groups, `controls_as_far` counts those as far
        from nothing. The last line is Wasserstein's distance between the scores of the refitted
        and of the retrained model.
        """
        return table(self._membership, self._kind)

    def audit(self) -> dict[str, Any]:
        """A record in values that JSON can hold; numbers that are not finite are None.

        It has the SHA-256 of the training table, labels and weights, of the test rows, of the model
        before and after, and of its settings; versions, time, removed rows and effects.

        A model's hash is that of its trees as their training rows see them: which leaf holds which
        row, and all leaf values. Tables are hashed by their values, whatever their memory layout. A
        booster's own matrix is not hashed.
        """
        return deepcopy(self._audit)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `audit()` as JSON. The file appears complete or not at all."""
        with whole_file(path) as file:
            file.write(json.dumps(self._audit, indent=2, allow_nan=False).encode() + b"\n")

    def save_dossier(self, path: str | os.PathLike[str], key: bytes | None = None) -> None:
        """Write `audit()` as one HTML page that people can read, signed in its last line.

        The line has the SHA-256 of all bytes before it and, with a secret `key`, their HMAC-SHA256.
        `read_dossier` checks both. The HMAC proves to those who hold the key that one of them wrote
        the file and that nobody changed it since. Neither proves that the numbers were computed
        honestly, that the time in it is right, or that the rows are gone from anywhere else.
        """
        with whole_file(path) as file:
            file.write(signed(dossier_page(self._audit), key))

    @staticmethod
    def read_dossier(path: str | os.PathLike[str], key: bytes | None = None) -> dict[str, Any]:
        """The record in a file of `save_dossier`; an error if the file was changed.

        ``key``  that of signing: without it only the SHA-256 is checked, which anyone could have
                 computed again
        """
        with open(path, "rb") as file:
            return record_of(checked(file.read(), key))
