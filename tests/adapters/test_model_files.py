"""Damaged model files: one clear error from the library, before native code can crash on them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from catboost_models import QUIET
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import leaftrace as lt
from leaftrace._adapters import load_file
from leaftrace._adapters.base import pack_leaves
from leaftrace._adapters.sklearn.hist import HistTrees
from leaftrace._adapters.xgboost.model import learner, parse_trees

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
X[:, 3] = RNG.integers(0, 12, 300)
Y = (X[:, 0] + 3 * (X[:, 3] % 3 == 0) + 0.5 * RNG.normal(size=300) > 1).astype(int)


def lightgbm_text(**settings):
    model = LGBMClassifier(n_estimators=4, num_leaves=6, n_jobs=1, verbose=-1, **settings)
    return model.fit(X, Y, categorical_feature=[3]).booster_.model_to_string()


@pytest.fixture(scope="module")
def text():
    return lightgbm_text(min_data_per_group=5, max_cat_to_onehot=2, cat_smooth=1)


def list_of(name, change):
    """Return a damage to the first list of this name that has more than one value."""

    def damage(text):
        found = re.search(rf"^{name}=(\S+ .*)$", text, re.MULTILINE)
        values = change(found[1].split(" "))
        return text[: found.start(1)] + " ".join(values) + text[found.end(1) :]

    return damage


def replaced(pattern, by):
    return lambda text: re.sub(pattern, by, text, count=1, flags=re.MULTILINE)


def without_sizes(damage):
    """Return the damage to a file that does not say how long its trees are."""
    return lambda text: damage(re.sub(r"^tree_sizes=.*\n", "", text, flags=re.MULTILINE))


# fmt: off
DAMAGES = {
    "longer tree": (replaced(r"^leaf_value=", "leaf_value=0.0"), "where the head says"),
    "tree out of its place": (replaced(r"^Tree=1$", "Tree=7"), "where the head says"),
    "a leaf value fewer": (without_sizes(list_of("leaf_value", lambda v: v[1:])), "leaf values"),
    "a threshold more": (without_sizes(list_of("threshold", lambda v: [*v, "0"])), "of threshold"),
    "a split of itself": (without_sizes(list_of("left_child", lambda v: ["0", *v[1:]])), "form a tree"),
    "a leaf twice": (without_sizes(list_of("right_child", lambda v: [*v[:-1], "-1"])), "form a tree"),
    "child far away": (without_sizes(list_of("left_child", lambda v: ["99999", *v[1:]])), "form a tree"),
    "column far away": (without_sizes(list_of("split_feature", lambda v: ["4", *v[1:]])), "column"),
    "column below zero": (without_sizes(list_of("split_feature", lambda v: ["-1", *v[1:]])), "column"),
    "a set fewer": (without_sizes(replaced(r"^cat_threshold=\S+ ?", "cat_threshold=")), "sets"),
    "more sets": (without_sizes(replaced(r"^num_cat=\d+", "num_cat=9")), "sets"),
    "more columns": (replaced(r"^max_feature_idx=3", "max_feature_idx=999999999"), "names"),
    "no objective's head": (replaced(r"^max_feature_idx=3\n", ""), "lacks 'max_feature_idx'"),
    "no leaf values": (without_sizes(replaced(r"^leaf_value=.*\n", "")), "lacks 'leaf_value'"),
    "endless parameters": (replaced(r"^end of parameters", ""), "parameters do not end"),
    "half a parameter": (replaced(r"^\[learning_rate: .*\]$", "[learning_rate"), "name: value"),
    "three classes": (replaced(r"^num_tree_per_iteration=1", "num_tree_per_iteration=3"), "lacks trees"),
    "no end of trees": (replaced(r"^end of trees", ""), "do not end"),
    "letters": (without_sizes(list_of("left_child", lambda v: ["x", *v[1:]])), "'x'"),
}
# fmt: on


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_lightgbm_text_is_refused_before_lightgbm_reads_it(name, text, tmp_path):
    damage, words = DAMAGES[name]
    path = tmp_path / "model.txt"
    assert damage(text) not in (text, without_sizes(str)(text))
    path.write_text(damage(text))
    with pytest.raises(lt.UnsupportedModel, match=words) as refusal:
        load_file(str(path))
    assert "is the file whole?" in str(refusal.value)


def test_whole_lightgbm_text_is_read(text, tmp_path):
    assert "\ncat_threshold=" in text
    for variant in (text, without_sizes(str)(text)):
        path = tmp_path / "model.txt"
        path.write_text(variant)
        assert load_file(str(path)).model.num_trees() == 4


def other_byte(content, before):
    """Return the content with a byte after this text that is no UTF-8."""
    place = content.index(before) + len(before)
    return content[:place] + b"\xca" + content[place + 1 :]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    model = XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, Y)
    path = str(tmp_path / "model.ubj")
    model.save_model(path)
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(other_byte(content, b"learner"))
    with pytest.raises(lt.UnsupportedModel, match=r"is the file whole\?"):
        lt.Tracer(path, X, Y)


def test_parameters_that_catboost_cannot_understand_are_refused(tmp_path):
    path = str(tmp_path / "model.json")
    CatBoostClassifier(**QUIET, iterations=2, depth=2).fit(X, Y).save_model(path, format="json")
    with open(path) as file:
        content = json.load(file)
    params = content["model_info"]["params"]
    params["boosting_oppions"] = params.pop("boosting_options")
    with open(path, "w") as file:
        json.dump(content, file)
    with pytest.raises(lt.UnsupportedModel, match=r"is the file whole\?"):
        lt.Tracer(path, X, Y)


@pytest.mark.parametrize("categories", [False, True], ids=["numbers", "target statistics"])
def test_rows_in_leaves_that_a_tree_does_not_have_are_refused(categories, tmp_path):
    # CatBoost reads [null] as a tree without splits and moves the leaves of the others by seven.
    path = str(tmp_path / "model.json")
    table = pd.DataFrame(X).astype({3: int})
    more = {"cat_features": [3], "one_hot_max_size": 2} if categories else {}
    model = CatBoostClassifier(**QUIET, iterations=5, depth=3, **more).fit(table, Y)
    model.save_model(path, format="json")
    with open(path) as file:
        content = json.load(file)
    content["oblivious_trees"][2] = [None]
    with open(path, "w") as file:
        json.dump(content, file)
    with pytest.raises(lt.UnsupportedModel, match=r"tree 5 .* leaf 7, but its leaves are 0 to 6"):
        lt.Tracer(path, table, Y)


@pytest.mark.parametrize(
    ("tree", "leaf", "words"), [(1, 3, "tree 2 .* leaf 3"), (0, -1, "tree 1 .* leaf -1")]
)
def test_leaf_numbers_of_any_library_are_compared_with_the_leaves_of_their_tree(tree, leaf, words):
    ids = np.array([[0, 1, 1], [2, 0, 1]])
    edges = np.array([0, 2, 5])
    assert pack_leaves(ids, edges, np.array([0, 2]), 3).tolist() == [[0, 1, 1], [4, 2, 3]]
    ids[tree, 2] = leaf
    with pytest.raises(lt.UnsupportedModel, match=words):
        pack_leaves(ids, edges, np.array([0, 2]), 3)


def test_rounds_without_trees_are_refused(tmp_path):
    path = str(tmp_path / "model.json")
    XGBClassifier(n_estimators=3, max_depth=2, n_jobs=1).fit(X, Y).save_model(path)
    with open(path) as file:
        content = json.load(file)
    content["learner"]["gradient_booster"]["model"]["iteration_indptr"] = [0, 1, 1, 3]
    with open(path, "w") as file:
        json.dump(content, file)
    with pytest.raises(lt.UnsupportedModel, match="do not fit its rounds"):
        lt.Tracer(path, X, Y)


@pytest.mark.parametrize(
    ("part", "node", "value"),
    [("split_indices", 0, 99), ("left_children", 1, 0), ("right_children", 0, 99)],
    ids=["a column that is not there", "a circle", "a node that is not there"],
)
def test_trees_that_xgboost_would_crash_on_are_refused(part, node, value):
    booster = XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, Y).get_booster()
    content = learner(booster)
    assert len(parse_trees(content)) == 2
    content["gradient_booster"]["model"]["trees"][1][part][node] = value
    with pytest.raises(lt.UnsupportedModel, match=r"tree 1 .* that are not there"):
        parse_trees(content)


@pytest.mark.parametrize(("part", "value"), [("feature_idx", 99), ("left", 0), ("right", 99)])
def test_trees_that_scikit_learn_would_crash_on_are_refused(part, value):
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, Y)
    lt.Tracer(model, X, Y, n_jobs=1)
    model._predictors[1][0].nodes[part][0] = value
    with pytest.raises(lt.UnsupportedModel, match="that are not there"):
        HistTrees(model)
