"""Check the text of a model file before LightGBM reads it, which crashes on damaged ones.

The head of the file says how long each tree is in bytes. A tree lists its splits and leaves; a child
is the number of a split, or ~leaf. Below the trees are parameters, as lines [name: value].
"""

from __future__ import annotations

import re

import numpy as np

Fields = dict[str, str]
_PER_SPLIT = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
_PARAMETER = re.compile(r"\[[^:]+: ?.*\]")


def check_text(text: str) -> None:
    """Raise ValueError unless this is the text of a whole model."""
    if "\0" in text:  # LightGBM takes it for the end, and looks for the rest for ever
        raise ValueError("there are bytes of zero in it")
    sizes_hold = "\r\n" not in text  # of a file with other ends of lines they do not
    text = text.replace("\r\n", "\n")
    head, has_trees, rest = text.partition("\nTree=0\n")
    if "\nend of trees" not in text:
        raise ValueError("the trees do not end")
    fields = text_fields(head)
    columns = int(fields["max_feature_idx"]) + 1
    if (
        not columns
        == len(fields["feature_names"].split(" "))
        == len(fields["feature_infos"].split(" "))
    ):
        raise ValueError(f"there are not {columns} names and ranges of columns")
    body, _, tail = rest.partition("\nend of trees")
    _check_parameters(tail if has_trees else head)
    if not has_trees:
        return
    blocks = re.split(r"\nTree=\d+\n", body)
    if "tree_sizes" in fields and sizes_hold:
        _check_sizes(text, [int(size) for size in fields["tree_sizes"].split()])
    if len(blocks) % int(fields["num_tree_per_iteration"]):
        raise ValueError("the last iteration lacks trees")
    for i, block in enumerate(blocks):
        _check_tree(i, text_fields(block), columns)


def text_fields(text: str) -> Fields:
    """The lines "name=value" of a text."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _check_sizes(text: str, sizes: list[int]) -> None:
    """Raise ValueError unless all trees begin and end where the head says."""
    content = text.encode()
    place = content.index(b"\nTree=0\n") + 1
    for i, size in enumerate(sizes):
        if not content.startswith(b"Tree=%d\n" % i, place):
            raise ValueError(f"tree {i} does not begin where the head says")
        place += size
    if not content.startswith(b"end of trees", place):
        raise ValueError("the trees do not end where the head says")


def _check_parameters(tail: str) -> None:
    """Raise ValueError unless the parameters are lines [name: value]."""
    _, has_parameters, rest = tail.partition("\nparameters:")
    lines, has_end, _ = rest.partition("\nend of parameters")
    if has_parameters and not has_end:
        raise ValueError("the parameters do not end")
    for line in lines.splitlines():
        if line.strip() and not _PARAMETER.fullmatch(line.strip()):
            raise ValueError(f"the parameter '{line[:60]}' is not [name: value]")


def _check_tree(i: int, fields: Fields, columns: int) -> None:
    """Raise ValueError unless the lists of a tree are complete and its splits form a tree."""
    L = int(fields["num_leaves"])
    if L < 1 or len(fields["leaf_value"].split()) != L:
        raise ValueError(f"tree {i} does not have {L} leaf values")
    if L == 1:
        return
    lists = {name: fields[name].split() for name in _PER_SPLIT}
    if wrong := [name for name, values in lists.items() if len(values) != L - 1]:
        raise ValueError(f"tree {i} does not have {L - 1} values of {wrong[0]}")
    features = np.array(lists["split_feature"], dtype=np.int64)
    if not ((features >= 0) & (features < columns)).all():
        raise ValueError(f"tree {i} splits by a column that does not exist")
    children = np.array(lists["left_child"] + lists["right_child"], dtype=np.int64)
    if not np.array_equal(np.sort(children), np.r_[-L:0, 1 : L - 1]):  # each once, but the root
        raise ValueError(f"the splits of tree {i} do not form a tree")
    _check_categories(i, fields, lists)


def _check_categories(i: int, fields: Fields, lists: dict[str, list[str]]) -> None:
    """Raise ValueError unless the splits by categories have their sets of categories."""
    count = int(fields["num_cat"])
    edges = np.array(fields.get("cat_boundaries", "0").split(), dtype=np.int64)
    words = fields.get("cat_threshold", "").split()
    if len(edges) != count + 1 or edges[-1] != len(words) or (np.diff(edges) < 0).any():
        raise ValueError(f"tree {i} does not have {count} sets of categories")
    by_category = np.array(lists["decision_type"], dtype=np.int64) & 1 == 1
    sets = np.array(lists["threshold"], dtype=float)[by_category]
    if not ((sets >= 0) & (sets < count)).all():
        raise ValueError(f"tree {i} splits by a set of categories that does not exist")
