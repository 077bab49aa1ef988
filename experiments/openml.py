"""Download of the public data sets from OpenML, for users without a folder of data."""

from __future__ import annotations

import sys
from typing import NoReturn

import pandas as pd

NAMES = {  # file of the data folder: OpenML's name and version
    "adult/train": ("adult", 2),
    "adult/test": ("adult", 2),
    "amazon/train": ("Amazon_employee_access", 1),
    "upselling/upselling_50000rows_45of230cols": ("KDDCup09_upselling", 1),
    "hospital/diabetic_data": ("Diabetes130US", 1),
    "california_housing/california_housing": ("california_housing", 1),
    "wine_quality/wine_quality": ("wine_quality", 1),
}
TARGETS = {
    "adult": "income",
    "Amazon_employee_access": "ACTION",
    "KDDCup09_upselling": "upselling",
    "Diabetes130US": "readmitted",
    "california_housing": "median_house_value",
    "wine_quality": "quality",
}
ADULT_TRAIN = 32_561  # OpenML has both parts in one table, the training rows first


def stop(message: str) -> NoReturn:
    """Print one line that says what to do, and exit with code 2."""
    print(message, file=sys.stderr)
    sys.exit(2)


def download(name: str) -> pd.DataFrame:
    """Download a table of the data folder, with the target last and named as in the folder."""
    from sklearn.datasets import fetch_openml

    if name not in NAMES:
        stop(f"{name} is not known on OpenML; set LEAFTRACE_DATA to the folder that has it.")
    title, version = NAMES[name]
    try:
        found = fetch_openml(title, version=version, as_frame=True, parser="auto")
    except OSError as error:
        stop(
            f"cannot download {title} from OpenML ({error}). Without a network, set LEAFTRACE_DATA to a folder that "
            f"has {name}.parquet; the public data sets are listed in docs/paper.md."
        )
    table = found.data.assign(**{TARGETS[title]: pd.Series(found.target).reset_index(drop=True)})
    if title == "adult":
        table["income"] = table["income"].astype(str).str.rstrip(".")
        if name.endswith("train"):
            return table[:ADULT_TRAIN]
        return table[ADULT_TRAIN:].reset_index(drop=True)
    return table
