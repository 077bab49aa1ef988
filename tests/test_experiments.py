"""Measures of the experiments against their definitions, and the store of results."""

import ast
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score, roc_auc_score

FOLDER = Path(__file__).parents[1] / "experiments"
CHANGES_THE_METHOD = "soft_shares.py"  # by parts of it that users cannot reach
sys.path.insert(0, str(FOLDER))

import action_groups  # noqa: E402
import attribution  # noqa: E402
import attribution_text  # noqa: E402
import contenders  # noqa: E402
import limit  # noqa: E402
import limit_text  # noqa: E402
import noisy  # noqa: E402
import paper  # noqa: E402
import paper_attribution  # noqa: E402
import paper_detectors  # noqa: E402
import paper_fixing  # noqa: E402
import paper_proxies  # noqa: E402
import results  # noqa: E402
import store  # noqa: E402
import structure_text  # noqa: E402
import values  # noqa: E402

rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    "path",
    sorted(path for path in FOLDER.glob("*.py") if path.name != CHANGES_THE_METHOD),
    ids=lambda p: p.name,
)
def test_experiments_use_the_public_names_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in names if name.startswith("leaftrace.")]
        if isinstance(node, ast.Attribute):
            assert not (
                node.attr.startswith("_")
                and isinstance(node.value, ast.Name)
                and node.value.id == "lt"
            )


def test_ndcg():
    truth, guess = rng.normal(size=(2, 60, 7))
    found = paper_proxies.ndcg(truth, guess, 5, "value")
    np.testing.assert_allclose(
        found, [ndcg_score([t], [g], k=5) for t, g in zip(truth.clip(0).T, guess.T, strict=True)]
    )
    place = (-truth).argsort(axis=0).argsort(axis=0)
    gains = np.where(place < 5, 5 - place, 0)
    found = paper_proxies.ndcg(truth, guess, 5, "rank")
    np.testing.assert_allclose(
        found, [ndcg_score([t], [g], k=5) for t, g in zip(gains.T, guess.T, strict=True)]
    )
    np.testing.assert_allclose(paper_proxies.ndcg(truth, truth, 5, "rank"), 1)


def test_auc():
    score = rng.integers(0, 9, 200)  # with ties
    positive = rng.random(200) < 0.3 + 0.05 * score
    np.testing.assert_allclose(noisy.auc(positive, score), roc_auc_score(positive, score))


def test_accuracy_of_detectors():
    """The accuracy is the largest of all thresholds, the precision that of as many flags as flips."""
    score = rng.permutation(60)
    flipped = rng.random(60) < 0.2 + 0.01 * score
    found = paper_detectors.measures(flipped, score)
    every = [((score >= threshold) == flipped).mean() for threshold in range(61)]
    np.testing.assert_allclose(found["accuracy"], max(every))
    flagged = np.argsort(-score)[: flipped.sum()]
    np.testing.assert_allclose(found["precision"], flipped[flagged].mean())


def test_the_probability_of_a_flip():
    """It is the share of flips among simulated rows of the same class probability and label."""
    draw = np.random.default_rng(0)
    y = draw.random(200_000) < 0.7
    flipped = draw.random(len(y)) < 0.2
    given = (y != flipped).astype(int)
    for label in (0, 1):
        found = paper_detectors.flip_probability(np.array([0.7]), np.array([label]), 0.2)
        np.testing.assert_allclose(found, flipped[given == label].mean(), atol=0.01)


def test_dcg():
    np.testing.assert_allclose(
        paper_fixing.dcg(np.array([[1.0, 0], [0, 1], [2, 0]])), [1 + 2 / 2, 1 / np.log2(3)]
    )


def test_correlations():
    a, b = rng.normal(size=(2, 30, 4))
    found = attribution.correlations(a, b)
    np.testing.assert_allclose(found, [spearmanr(a[:, j], b[:, j])[0] for j in range(4)])


def noisy_effects(noise):
    """Effects of 4,000 groups on one slice, and 20 retrainings with noise."""
    draw = np.random.default_rng(0)
    effects = draw.normal(size=(4000, 1))
    return effects, effects + noise * draw.normal(size=(20, 4000, 1))


def test_the_best_possible_estimate_of_groups():
    """What exact effects have is known from noisy retrainings alone."""
    effects, retrained = noisy_effects(2.0)
    with_mean = action_groups.with_mean(effects, retrained)
    np.testing.assert_allclose(action_groups.best_with_mean(retrained), with_mean, atol=0.01)
    with_one = action_groups.with_one(effects, retrained)
    np.testing.assert_allclose(action_groups.best_with_one(retrained), with_one, atol=0.01)
    assert with_one < action_groups.with_others(retrained, 4) < with_mean


def test_the_aim_of_groups():
    effects, retrained = noisy_effects(1.5)
    few = slice(0, 200)  # intervals take many correlations
    estimates = {"exact": effects[few], "wrong": -effects[few]}
    said = action_groups.verdict(estimates, retrained[:, few])
    assert "With one retraining it is **not reached**" in said
    assert "- exact: reached, 0.9" in said
    assert "- wrong: **not reached**, -0.9" in said


def test_wrong_labels_are_wrong():
    from models import other_labels

    classes = rng.integers(0, 3, 50)
    assert (other_labels(classes, "classes") != classes).all()
    assert set(other_labels(classes, "classes")) == {0, 1, 2}
    y = rng.normal(size=101)
    assert ((other_labels(y, "numbers") > np.median(y)) == (y < np.median(y))).all()


def test_a_result_is_computed_once_for_the_same_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    calls = []

    def compute():
        calls.append(1)
        return {"v": np.arange(3.0)}

    for settings in ({"rows": 5}, {"rows": 5}, {"rows": 6}):
        np.testing.assert_array_equal(store.cached("x", settings, compute)["v"], [0, 1, 2])
    assert len(calls) == 2


def test_an_interrupted_result_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FOLDER", tmp_path)

    def stops():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.cached("x", {}, stops)
    monkeypatch.setattr(np, "savez", lambda *a, **k: stops())
    with pytest.raises(KeyboardInterrupt):
        store.cached("x", {}, lambda: {"v": np.zeros(1)})
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_data_are_told_apart():
    table = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    same = store.hashed(table)
    assert same == store.hashed(table.copy())
    others = [
        table.rename(columns={"a": "c"}),
        table.assign(a=[2, 1]),
        table.assign(a=[1.0, 2.0]),
        table[:1],
    ]
    assert len({same, *(store.hashed(other) for other in others)}) == 5


def test_a_claim_that_does_not_hold_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "ROOT", tmp_path)
    figure, _ = results.axes()
    numbers = pd.DataFrame({"a": [1.5]})
    section = results.Section(
        "Title",
        "Text.\n\nFIGURE",
        numbers,
        figure,
        {"two is odd": False, "one is odd": True},
        "less",
    )
    text = section.write("x", full=True).read_text()
    assert (
        "- **Does not hold**: two is odd\n- Holds: one is odd\n- Differs from the paper: less"
        in text
    )
    assert "![Title](paper/x.png)" in text
    assert {p.name for p in (tmp_path / "docs" / "paper").iterdir()} == {
        "x.csv",
        "x.md",
        "x.png",
        "x.svg",
    }
    assert paper.summary([text]).splitlines()[-1] == "| Title | 1 of 2 | two is odd | less |"


def test_the_command(tmp_path, capfd, monkeypatch):
    from leaftrace._views.cli import main

    monkeypatch.chdir(FOLDER.parent)
    assert main(["paper", "nothing"]) == 2
    assert (
        "there is no experiment nothing; there are proxies, times, noise" in capfd.readouterr().err
    )
    monkeypatch.setenv("LEAFTRACE_DATA", str(tmp_path))
    assert main(["paper", "mismatch"]) == 2
    assert "there is no hospital/diabetic_data.parquet in" in capfd.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["paper"]) == 2
    assert "Clone it and run this in its folder" in capfd.readouterr().err


class _Linear:
    """A model whose loss of each test row is a sum of numbers of the training rows, and a seed's noise."""

    def __init__(self, seed):
        self.seed = seed

    def fit(self, X, y):
        self.total = X["effect"].sum() + 1e-3 * self.seed
        return self

    def predict(self, X):
        return np.sqrt(2 * np.maximum(X["scale"] * (self.total + 30), 0))


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a world of 40 rows whose retrainings are known."""
    draw = np.random.default_rng(3)
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    X = pd.DataFrame({"effect": draw.normal(size=40), "scale": 1.0})
    tests = pd.DataFrame({"effect": 0.0, "scale": np.repeat([1.0, 2.0, 0.5], 11)})
    made = attribution.Data(X, np.zeros(40), tests, np.zeros(33))
    monkeypatch.setattr(attribution, "load", lambda name, size: made)
    monkeypatch.setitem(attribution.LIBRARIES, "linear", lambda kind, seed: _Linear(seed))
    size = attribution.Size(40, 3, 30, 2, 1, ("houses",), ("linear",), (), (10, 200))
    return attribution.World("houses", "linear", size)


def test_a_world_retrains_on_halves(world):
    """Losses are those of models trained on the halves, one by one, with seeds of their own."""
    effect = world.data.X["effect"].to_numpy()
    for repetition in (0, 2):
        seeds = 1_000 + 30 * repetition + np.arange(30)
        totals = [effect[h].sum() + 1e-3 * s for h, s in zip(world.halves, seeds, strict=True)]
        expected = (np.array(totals)[:, None] + 30) * world.data.X_test["scale"].to_numpy()[:3]
        np.testing.assert_allclose(world.on_halves(repetition), expected)
    halves, losses = world.on_fresh_halves(130)
    assert halves.shape == (130, 40)
    assert not (halves[:30] == world.halves).all(axis=1).any()
    few_halves, few_losses = world.on_fresh_halves(20)
    np.testing.assert_array_equal(few_halves, halves[:20])
    np.testing.assert_array_equal(few_losses, losses[:20])


def test_lds_of_known_effects(world):
    """The true effects, and a ridge regression on enough trainings, explain the halves."""

    class Known:
        acts = False

        def values(self, world, tests, reduce):
            return [np.repeat(world.data.X["effect"].to_numpy()[:, None], 3, axis=1)]

    class Opposite(Known):
        def values(self, *given):
            return [-v for v in super().values(*given)]

    ways = {"known": Known(), "opposite": Opposite()}
    ways |= {f"ridge {count}": contenders.Ridge(count) for count in (10, 200)}
    ways["banzhaf"] = contenders.Banzhaf(200)
    found = contenders.lds_line(world, ways)
    assert found["known"] > 0.99
    assert found["opposite"] < -0.99
    assert found["ridge 10"] < 0.9 < 0.99 < found["ridge 200"]
    assert 0.8 < found["banzhaf"] < 0.99  # the other rows of a half are noise to it
    assert found["ceiling"] > 0.99
    known = world.summed(Known().values(world, world.tests, None))
    for lds in (world.lds(known), world.retrained_lds(2)):
        assert lds.shape == (3, 3)  # repetitions, test rows


def test_lds_is_of_every_repetition(world, monkeypatch):
    """Each repetition is compared with the influences, and with the mean of those that follow it."""
    draw = np.random.default_rng(4)
    losses = draw.normal(size=(3, 30, 3))
    monkeypatch.setattr(world, "on_halves", lambda repetition: losses[repetition])
    summed = draw.normal(size=(2, 30, 3))  # of two models
    for repetition in range(3):
        for test in range(3):
            with_models = [
                spearmanr(model[:, test], losses[repetition, :, test]).statistic for model in summed
            ]
            assert world.lds(summed)[repetition, test] == pytest.approx(np.mean(with_models))
            others = np.delete(losses, repetition, axis=0).mean(axis=0)[:, test]
            expected = spearmanr(others, losses[repetition, :, test]).statistic
            assert world.retrained_lds(2)[repetition, test] == pytest.approx(expected)


def test_errors_of_the_lds():
    """Errors over test rows and over repetitions are those of the means over the other."""
    found = paper_attribution.mean_and_errors(np.array([[0.1, 0.3], [0.3, 0.5], [0.2, 0.4]]))
    assert found["lds"] == pytest.approx(0.3)
    assert found["lds_error"] == pytest.approx(0.1)  # means of 0.2 and 0.4
    assert found["lds_error_repetitions"] == pytest.approx(0.1 / np.sqrt(3))


def test_an_aim_that_is_missed_is_told_and_does_not_fail(tmp_path, monkeypatch):
    """The page says that an aim is not reached, in its section and in the summary."""
    monkeypatch.setattr(results, "ROOT", tmp_path)
    aims = {"half of it": True, "all of it": False}
    drawn, _ = results.axes()
    path = results.Section("A title", "text", pd.DataFrame({"a": [1]}), drawn, {}, aims=aims).write(
        "one", full=False
    )
    text = path.read_text()
    assert "- Aim reached: half of it" in text
    assert "- **Aim not reached**: all of it" in text
    line = paper.summary([text]).splitlines()[-1]
    assert "aim: all of it" in line
    assert "half of it" not in line


def test_results_of_influences_depend_on_the_code(tmp_path, monkeypatch):
    """A changed statement changes the hash, a changed docstring does not."""
    package = tmp_path / "baselines"
    package.mkdir()
    monkeypatch.setattr(store.lt, "__file__", str(tmp_path / "__init__.py"))
    hashes = []
    for text in (
        'def f():\n    """A."""\n    return 1',
        'def f():\n    """B."""\n    return 1',
        "x = 2",
    ):
        (package / "one.py").write_text(text)
        hashes.append(store.code.__wrapped__())
    assert hashes[0] == hashes[1] != hashes[2]


def test_claims_about_soft_splits():
    """A lead that is too small or missing on a line is a broken claim; a share below is a missed aim."""
    names = (
        paper_attribution.EXACT,
        paper_attribution.SOFT,
        paper_attribution.SEEDS,
        *contenders.AVERAGES,  # ten seeds, 10 and 40 bags, 10 and 20 refitted bags
        attribution_text.TWICE,
        attribution_text.CEILING,
    )
    lds = pd.DataFrame(
        [
            [0.5, 0.56, 0.55, 0.6, 0.61, 0.72, 0.72, 0.73, 0.7, 0.8],
            [0.4, 0.45, 0.47, 0.5, 0.51, 0.62, 0.62, 0.63, 0.6, 0.7],
        ]
    )
    lds.columns = names
    lds.index = pd.MultiIndex.from_product(
        [["adult"], ["XGBoost", "CatBoost"]], names=["data", "library"]
    )
    full = paper_attribution.FULL
    assert list(paper_attribution.structure_claims(lds, full).values()) == [True] * 4
    aims = paper_attribution.structure_aims(lds, full)
    assert list(aims.values()) == [False, False, False, True, True, True]
    # 0.866 of the ceiling by four retrainings, and 0.84 of that by eight, which counts.
    less = lds.assign(
        **{
            name: [0.7, 0.6]
            for name in (
                contenders.SOFT_DEFAULT,
                contenders.SOFT_TEN_REFITTED,
                contenders.SOFT_BAGS,
            )
        }
    )
    assert not any(paper_attribution.structure_aims(less, full).values())
    soft = paper_attribution.SOFT
    for worse in ([0.53, 0.44], [0.7, 0.39]):
        held = paper_attribution.structure_claims(lds.assign(**{soft: worse}), full)
        assert list(held.values()) == [False, True, True, True]
    held = paper_attribution.structure_claims(
        lds.assign(**{soft: [0.53, 0.44]}), paper_attribution.QUICK
    )
    assert all(held.values())
    lds.index = lds.index.set_levels(["LightGBM", "XGBoost"], level="library")
    for place, label in ((2, contenders.SOFT_BAGS), (3, contenders.SOFT_TEN_REFITTED)):
        for worse in ([0.72, 0.49], [0.59, 0.62]):  # a lead must be there with l2 and without
            held = paper_attribution.structure_claims(lds.assign(**{label: worse}), full)
            assert [i for i, holds in enumerate(held.values()) if not holds] == [place]


def test_lines_that_were_measured_again_replace_the_kept_ones():
    place = paper_attribution.PLACE
    kept = pd.DataFrame(
        [["a", "x", "old", 0.1, 7.0], ["a", "x", "ceiling", 0.5, 8.0]],
        columns=[*place, "lds", "more"],
    )
    found = pd.DataFrame([["a", "x", "new", 0.3], ["a", "x", "old", 0.2]], columns=[*place, "lds"])
    lines = paper_attribution.merged(kept.set_index(place), found.set_index(place))
    assert lines["method"].tolist() == ["new", "old", "ceiling"]
    assert lines["lds"].tolist() == [0.3, 0.2, 0.5]
    assert lines["more"].tolist()[1:] == [7.0, 8.0]


def test_lines_that_were_not_measured_again_are_named():
    """They are in no mean of changes but their own number, and on the page by name."""
    ways = (contenders.SOFT, contenders.SOFT_SEEDS, contenders.SOFT_BAGS)
    numbers = pd.DataFrame(
        [
            {
                "data": data,
                "library": "LightGBM",
                "method": way,
                "lds": lds,
                structure_text.BEFORE: old,
            }
            for data, lds, old in (("wine", 0.5, 0.4), ("adult", 0.7, np.nan))
            for way in ways
        ]
    )
    text = structure_text.changes(numbers)
    assert "| wine, LightGBM | 0.400 → 0.500 |" in text
    assert "| adult, LightGBM | 0.700, not measured again |" in text
    assert "one model +0.050 in the mean, on 1 lines more and on 0 less" in text
    assert text.index("wine") < text.index("adult")
    assert "for adult with LightGBM are" in structure_text.old_lines_text(numbers)
    assert structure_text.old_lines_text(numbers.fillna(0.7)) == ""


def test_leads_of_data_values_have_errors_over_lines():
    """The mean of paired differences, its standard error, and on how many lines less harm is done."""
    lines = [
        {"data": data, "library": "a", "method": method, "clean_5%": value}
        for method, values_of in (("BoostIn", (3.0, 5.0)), ("LeafInfluence", (1.0, 7.0)))
        for data, value in zip("xy", values_of, strict=True)
    ]
    numbers = pd.DataFrame(lines)
    every = pd.concat([numbers.replace("LeafInfluence", name) for name in values.METHODS])
    table = values.leads(every.drop_duplicates(["method", "data"]), ["clean_5%"])
    assert table["method"].tolist() == [name for name in values.METHODS if name != "BoostIn"]
    assert set(table["clean_5%"]) == {"+0.0 ± 2.0 (1)"}  # differences of -2 and 2


def test_ceiling_of_more_retrainings():
    """Means of draws around a known effect agree with another draw as the formula says."""
    draw = np.random.default_rng(6)
    effect = draw.normal(size=100_000)
    one, *others = (effect + 0.7 * draw.normal(size=effect.size) for _ in range(9))

    def agreement(count):
        return np.corrcoef(np.mean(others[:count], axis=0), one)[0, 1]

    names = [attribution_text.TWICE, attribution_text.CEILING]
    lds = pd.DataFrame([[agreement(1), agreement(4)]], columns=names)
    found = attribution_text.ceiling_of(lds, paper_attribution.FULL, 8)
    assert found[0] == pytest.approx(agreement(8), abs=0.005)
    assert agreement(8) > agreement(4) + 0.01


def test_the_limit_of_sums_is_that_of_the_parts_a_function_was_made_of():
    rng = np.random.default_rng(0)
    rows = 80
    drawn = limit.halves(rows, 4000)
    inside = np.where(drawn, 1.0, -1.0)
    assert np.all(inside.sum(axis=2) == 0)
    assert np.all((inside[:, 0] * inside[:, 2]).mean(axis=1) == 0.5)
    one = inside @ rng.normal(size=(rows, 6)) / np.sqrt(rows)
    pairs = np.einsum("skr,rqt,skq->skt", inside, rng.normal(size=(rows, rows, 6)), inside) / rows
    noise = rng.normal(size=one.shape)
    for share in (1.0, 0.5):  # of the sum, the rest is of pairs
        losses = np.sqrt(share) * one + np.sqrt(1 - share) * pairs + 0.5 * noise
        parts = (part.var(axis=(0, 1)).mean() for part in (one, pairs, 0.5 * noise))
        first, second, rest = share * next(parts), (1 - share) * next(parts), next(parts)
        total = first + second + rest
        found = limit.measured(losses)  # correlations over 4,000 sets have errors of about 0.01
        assert found["again"] == pytest.approx((first + second) / total, abs=0.02)
        assert found["bound"] == pytest.approx(first / total, abs=0.03)
    x, noise = rng.normal(size=(2, 20_000))
    assert limit_text.rank_correlation(0.6) == pytest.approx(
        spearmanr(x, 0.6 * x + 0.8 * noise).statistic, abs=0.02
    )
