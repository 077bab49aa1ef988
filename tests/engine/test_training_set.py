"""Training sets made from another one, against lists of (position, label, weight)."""

import numpy as np
import pandas as pd
import pytest

import leaftrace as lt
from leaftrace._model.training_set import TrainingSet

N = 6
X = np.arange(12.0).reshape(N, 2)
Y = np.array(["a", "b", "a", "c", "b", "c"])
W = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
KEEP = np.array([0, 2, 3, 5])
NEW = np.array([[90.0, 91.0]])


def test_a_set_as_it_was_changes_nothing():
    same = TrainingSet.unchanged(N)
    np.testing.assert_array_equal(same.table(X), X)
    np.testing.assert_array_equal(same.labels(Y), Y)
    np.testing.assert_array_equal(same.weights(W), W)
    assert same.weights(None) is None
    assert same.kept.all()
    assert not len(same.removed)
    assert not len(same.differs_from(TrainingSet.unchanged(N), Y, W))


def test_rows_labels_and_weights():
    other = np.array(list("zyxwvu"))
    changed = TrainingSet(N, KEEP, other, 10 * W)
    np.testing.assert_array_equal(changed.table(X), X[KEEP])
    np.testing.assert_array_equal(changed.labels(Y), other[KEEP])
    np.testing.assert_array_equal(changed.weights(W), 10 * W[KEEP])
    np.testing.assert_array_equal(changed.weights(None), 10 * W[KEEP])
    np.testing.assert_array_equal(changed.kept, [True, False, True, True, False, True])
    np.testing.assert_array_equal(changed.removed, [1, 4])
    np.testing.assert_array_equal(changed.all_labels(Y), other)
    np.testing.assert_array_equal(changed.all_weights(W), 10 * W)
    fewer = TrainingSet(N, KEEP)
    np.testing.assert_array_equal(fewer.labels(Y), Y[KEEP])
    np.testing.assert_array_equal(fewer.weights(W), W[KEEP])
    np.testing.assert_array_equal(fewer.all_labels(Y), Y)


def test_added_rows_come_last():
    added = TrainingSet(N, KEEP, added=(NEW, np.array(["d"]), np.ones(1)))
    np.testing.assert_array_equal(added.table(X), np.concatenate([X[KEEP], NEW]))
    np.testing.assert_array_equal(added.labels(Y), [*Y[KEEP], "d"])
    np.testing.assert_array_equal(added.weights(W), [*W[KEEP], 1.0])
    assert added.weights(None) is None
    heavy = TrainingSet(N, KEEP, added=(NEW, np.array(["d"]), np.array([3.0])))
    np.testing.assert_array_equal(heavy.weights(None), [1.0] * len(KEEP) + [3.0])
    frame = pd.DataFrame(X, columns=["p", "q"])
    table = added.table(frame)
    np.testing.assert_array_equal(table.to_numpy(), np.concatenate([X[KEEP], NEW]))
    assert list(table.columns) == ["p", "q"]


def test_given_scores_go_with_their_rows():
    scores = np.arange(6.0)[:, None]
    np.testing.assert_array_equal(TrainingSet(N, KEEP).offset(scores), scores[KEEP])
    assert TrainingSet(N, KEEP).offset(None) is None
    with pytest.raises(lt.InvalidInput, match="baseline"):
        TrainingSet(N, KEEP, added=(NEW, np.zeros(1), np.ones(1))).offset(scores)


def test_changes_of_changes_count_the_first_rows():
    rng = np.random.default_rng(8)
    n = 30
    labels = np.arange(n) % 3
    weights = np.ones(n)
    now = start = TrainingSet.unchanged(n)
    rows = [[i, i % 3, 1.0] for i in range(n)]
    for _ in range(5):
        keep = np.sort(rng.choice(len(rows), len(rows) - 3, replace=False))
        new_labels = rng.integers(0, 3, len(rows))
        new_weights = rng.random(len(rows))
        now = now.then(TrainingSet(len(rows), keep, new_labels, new_weights), labels, weights)
        for row, label, weight in zip(rows, new_labels, new_weights, strict=True):
            row[1:] = label, weight
        rows = [rows[i] for i in keep]
    np.testing.assert_array_equal(now.keep, [row[0] for row in rows])
    np.testing.assert_array_equal(now.labels(labels), [row[1] for row in rows])
    np.testing.assert_array_equal(now.weights(weights), [row[2] for row in rows])
    np.testing.assert_array_equal(np.delete(np.arange(n), now.removed), now.keep)
    assert labels.tolist() == [i % 3 for i in range(n)]  # the original ones stay as they were
    assert not len(start.differs_from(start, labels, weights))


def test_what_is_not_changed_stays_as_it_was():
    removed = TrainingSet(N, KEEP)
    again = removed.then(TrainingSet(len(KEEP), np.array([0, 3])), Y, W)
    np.testing.assert_array_equal(again.keep, [0, 5])
    assert again.y is None
    assert again.sample_weight is None
    relabelled = removed.then(TrainingSet(len(KEEP), np.arange(4), np.array(list("zzzz"))), Y, W)
    np.testing.assert_array_equal(relabelled.y, ["z", "b", "z", "z", "b", "z"])
    assert relabelled.sample_weight is None


def test_differences_of_two_sets():
    labels = Y.copy()
    labels[2] = "b"
    weights = W.copy()
    weights[5] = 0.5
    changed = TrainingSet(N, KEEP, labels, weights)
    np.testing.assert_array_equal(
        changed.differs_from(TrainingSet.unchanged(N), Y, W), [1, 2, 4, 5]
    )
    np.testing.assert_array_equal(changed.differs_from(TrainingSet(N, KEEP), Y, W), [2, 5])
    np.testing.assert_array_equal(
        TrainingSet(N, KEEP).differs_from(TrainingSet(N, KEEP, Y.copy(), W.copy()), Y, W), []
    )
