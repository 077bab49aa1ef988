"""Names of classes, for a model file that has only numbers for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._data.errors import InvalidInput
from .columns import listed


def find_class_names(y: np.ndarray, classes: int, given: Sequence[str]) -> list[Any] | None:
    """Names of the classes in the order of their numbers; None if the model needs none.

    Without --classes they are the labels of the training rows in order, as LGBMClassifier and
    scikit-learn's LabelEncoder number them. If the model was trained with another order, the replay
    is not exact.

    ``y``        labels of the training rows
    ``classes``  number of classes that the model has only numbers for
    ``given``    names from --classes
    """
    if given and not classes:
        raise InvalidInput(
            "--classes is for models that know their classes by number; this one needs none."
        )
    if not classes:
        return None
    found = sorted(set(y.tolist()), key=lambda label: (str(type(label)), label))
    if not given and y.dtype.kind in "iuf":
        are_numbers_of_classes = set(found) <= set(range(classes))
        if are_numbers_of_classes or len(found) != classes:
            return None
    names = list(given) if given else found
    if len(names) != classes:
        raise InvalidInput(
            f"the target has {len(names)} classes ({listed(names)}), but the model has {classes}; "
            "give the target it was trained on, or all classes in their order with --classes."
        )
    return names


def spelled_labels(y: np.ndarray, names: Sequence[Any] | None, path: str) -> np.ndarray:
    """(n,) labels spelled as these names; an error if one is not among them.

    ``names``  None: labels stay as they are
    ``path``   that of the table, for messages
    """
    if names is None:
        return y
    name_of = {str(name): name for name in names}
    given = [str(label) for label in y.tolist()]
    unknown = sorted(set(given) - set(name_of))
    if unknown:
        raise InvalidInput(
            f"the target of '{path}' has {listed(unknown)}, which the model does not know; "
            f"its classes are {listed(names)}."
        )
    return np.array([name_of[label] for label in given], dtype=object)
