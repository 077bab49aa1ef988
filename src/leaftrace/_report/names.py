"""Names of classes in the data of a report, for a model that knows its classes by number alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._data.cells import CellValue, short
from .._data.errors import InvalidInput
from .._tracer.tracer import Tracer


def check_names(tracer: Tracer, names: Sequence[Any] | None) -> None:
    if names is None:
        return
    if tracer.classes is None:
        raise InvalidInput(
            "classes names the classes of a classifier, but this model predicts numbers; leave it out."
        )
    if len(names) != len(tracer.classes):
        raise InvalidInput(
            f"classes has {len(names)} names, but the model has {len(tracer.classes)} classes; name each, in its order."
        )
    if tracer.classes.tolist() != list(range(len(names))):
        raise InvalidInput(
            "classes is for a model that knows its classes by number; this one has their names."
        )


def with_names(data: dict[str, Any], names: Sequence[Any]) -> dict[str, Any]:
    """The data of a report with names in place of numbers, wherever a class stands."""

    def name(number: CellValue) -> CellValue:
        return None if number is None else short(names[int(number)])

    def named(one: dict[str, Any], *keys: str) -> dict[str, Any]:
        return one | {key: name(one[key]) for key in keys if key in one}

    def lines(part: dict[str, Any] | None, *keys: str) -> dict[str, Any] | None:
        return part and part | {
            "training_rows": [named(line, *keys) for line in part["training_rows"]]
        }

    def outcome(one: dict[str, Any]) -> dict[str, Any]:
        one = named(one, "label", "predicted")
        if "probabilities" in one:
            one["probabilities"] = [named(p, "label") for p in one["probabilities"]]
        return one

    def case(one: dict[str, Any]) -> dict[str, Any]:
        removal = one["removal"] and {
            k: outcome(v) if isinstance(v, dict) else v for k, v in one["removal"].items()
        }
        return outcome(one) | {
            "removal": removal,
            "training_rows": [named(r, "label") for r in one["training_rows"]],
        }

    return data | {
        "model": data["model"]
        | {"classes": [short(n) for n in names[: len(data["model"]["classes"])]]},
        "cases": [case(one) for one in data["cases"]],
        "overall": lines(data["overall"], "label"),
        "noise": lines(data["noise"], "given_label", "predicted_label"),
    }
