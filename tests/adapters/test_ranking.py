"""The contract of rankers: the replay is exact, and every number is that of a refit by a twin."""

from dataclasses import replace
from functools import cache

import cases_ranking as data
import catboost
import lightgbm as lgb
import numpy as np
import pytest
import ranking_twins as twins
from raw_scores import raw_scores
from xgboost import XGBRegressor

import leaftrace as lt
from leaftrace._engine.coupled_passes import CoupledPasses
from leaftrace._engine.queries import make_queries
from leaftrace._engine.refit import refit_on
from leaftrace._engine.replay import replay
from leaftrace._engine.workspace import Workspace
from leaftrace._model.leaf_rule import Rounding

ROWS = [3, 40]
QUERY = 4


@cache
def prepared(name):
    case = data.CASES[name]()
    tracer = lt.Tracer(
        case.model, data.X, case.y, qid=data.SIZES, dtype="float64", **case.arguments
    )
    return case, tracer


TWINNED = [name for name in data.CASES if name not in data.DRAWN]


@pytest.fixture(params=data.CASES)
def setting(request):
    return prepared(request.param)


@cache
def smooth_passes(name):
    """Return passes and the query at the model that a refit without rounding and tables gives.

    There the twin's finite differences and the derivatives must agree to their last digits.
    """
    _, tracer = prepared(name)
    e = tracer.engine.ensemble
    trace = tracer.engine.work.trace
    smooth = replace(e, loss=e.loss.for_test_rows(), rounding=Rounding())
    smooth = replace(smooth, values=refit_on(trace, smooth).values)
    work = Workspace(replay(smooth, 1e-6), np.dtype(float), 1, 1 << 30)
    leaves = tracer.engine.source.rows(data.X_TEST)[0]
    return CoupledPasses(work), make_queries(smooth, leaves, None, None, "prediction", "sum", None)


def twin_refit(case, w=None, pi=None, orders=None, keep=None):
    """Return the sum of test scores of the twin's refit, and the scores before its steps."""
    number = np.repeat(np.arange(len(data.SIZES)), data.SIZES)
    if keep is None:
        keep = np.ones(data.N, bool)
    elif case.kept_weights is not None:
        w = case.kept_weights(keep)
    sizes = np.bincount(number[keep])
    w = case.w if w is None else w
    values, scores = twins.refit(
        case.query_terms, case.leaves(data.X)[:, keep], case.y[keep], sizes[sizes > 0], w[keep],
        case.rate, case.l2, case.lam, case.centred, pi, orders, case.prior,
        *(None if x is None else x[:, keep] for x in (case.bags, case.times)),
    )  # fmt: skip
    test = case.leaves(data.X_TEST)
    return sum(v[ids] for v, ids in zip(values, test, strict=True)), scores


def test_fidelity(setting):
    _, tracer = setting
    assert tracer.fidelity.exact, tracer.fidelity.verdict
    assert tracer.fidelity.max_error < 1e-6


@pytest.mark.parametrize("name", TWINNED)
def test_derivatives_are_slopes_of_a_refit(name):
    """Exact derivatives in weights and presences, with the order of scores held."""
    case, _ = prepared(name)
    passes, query = smooth_passes(name)
    slopes = passes.slopes(query, slice(0, 1), frozen=False)
    _, orders = twin_refit(case)
    step = 1e-5
    for row in ROWS:
        e = step * np.eye(data.N)[row]
        up = twin_refit(case, w=case.w + e, orders=orders)[0].sum()
        down = twin_refit(case, w=case.w - e, orders=orders)[0].sum()
        scale = np.abs(slopes.weights).max()
        expected = case.scale * (up - down) / (2 * step)
        np.testing.assert_allclose(slopes.weights[row, 0], expected, atol=3e-7 * scale)
        up = twin_refit(case, pi=1 + e, orders=orders)[0].sum()
        down = twin_refit(case, pi=1 - e, orders=orders)[0].sum()
        scale = np.abs(slopes.presences).max()
        expected = (up - down) / (2 * step)
        np.testing.assert_allclose(slopes.presences[row, 0], expected, atol=3e-7 * scale)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", data.CASES)
def test_forward_and_backward_agree(name, frozen):
    passes, query = smooth_passes(name)
    rng = np.random.default_rng(0)
    dw, dpi = rng.normal(size=(2, data.N))
    slopes = passes.slopes(query, slice(0, 1), frozen=frozen)
    changes = passes.leaf_changes(dw, dpi, frozen=frozen)
    e = passes.work.trace.ensemble
    forwards = (replace(e, values=changes, base=np.zeros(1)).scores(query.leaves)).sum()
    backwards = slopes.weights[:, 0] @ dw + slopes.presences[:, 0] @ dpi
    np.testing.assert_allclose(forwards, backwards, rtol=1e-9)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", data.CASES)
def test_matrices_of_queries_are_the_pass_row_by_row(name, frozen):
    passes, query = smooth_passes(name)
    method = lt.LeafInfluence(normalisers="frozen" if frozen else "exact")
    row_by_row = "Pairwise" in name or "bags of queries" in name
    assert (passes._query_matrices(frozen) is None) == row_by_row
    [(_, found)] = passes.blocks(query, method, None)
    expected = passes.slopes(query, slice(0, 1), frozen=frozen).weights
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("form", ["kept", "each pass", "row by row"])
@pytest.mark.parametrize("change", ["weight", "presence"])
def test_less_memory_gives_the_same(form, change):
    """Also where scores are equal before a step, which decides ranks and normalisers."""
    X = np.round(np.random.default_rng(0).normal(size=(120, 2)), 1)
    y = np.random.default_rng(1).integers(0, 4, 120).astype(float)
    groups = lgb.Dataset(X, y, group=np.full(10, 12))
    params = {"objective": "lambdarank", "num_leaves": 4, "min_data_in_leaf": 5, "verbosity": -1}
    model = lgb.train(params, groups, 11)
    method = lt.LeafInfluence(change=change)
    values = []
    for limit in (1 << 30, {"kept": 1 << 23, "each pass": 1_000_000, "row by row": 1 << 16}[form]):
        tracer = lt.Tracer(model, X, y, qid=np.full(10, 12), dtype="float64", memory_limit=limit)
        found = tracer.influence(X[:4], of="prediction", method=method)
        values.append(found.values)
    np.testing.assert_allclose(values[0], values[1], atol=1e-12 * np.abs(values[0]).max())
    if change == "weight":
        matrices = tracer.engine.coupled._query_matrices(frozen=True)
        is_kept = None if matrices is None else matrices.kept is not None
        assert is_kept == {"kept": True, "each pass": False, "row by row": None}[form]
    elif form == "row by row":
        assert not tracer.engine.coupled._keeps_points()


@pytest.mark.parametrize("name", TWINNED)
def test_refits_without_a_document_and_a_query(name):
    """Refits against the twin's and the library's own.

    The replay has the float32 numbers of training, the twin has not: 1e-4 of the largest score.
    """
    case, tracer = prepared(name)
    number = np.repeat(np.arange(len(data.SIZES)), data.SIZES)
    for keep in (np.arange(data.N) != ROWS[1], number != QUERY):
        found = raw_scores(tracer.refit(without=~keep), data.X_TEST).ravel()
        expected, _ = twin_refit(case, keep=keep)
        np.testing.assert_allclose(found, expected, atol=case.tolerance * np.abs(expected).max())
        if case.own_refit is not None:
            own = case.own_refit(case, case.w, keep)
            np.testing.assert_allclose(
                found, own, atol=0.1 * case.tolerance * np.abs(expected).max()
            )


def test_leaves_of_one_value_are_ordered_as_lightgbm_orders_them():
    """First leaves are often -2 learning rates but for LightGBM's 1e-15, and their order matters to the next."""
    rng = np.random.default_rng(928)
    sizes = rng.integers(1, 13, 10)
    number = np.repeat(np.arange(10), sizes)
    X = rng.normal(size=(len(number), 3))
    y = np.clip(np.round(X[:, 0] + rng.normal(size=len(number))), 0, 1)
    params = {"objective": "lambdarank", "num_leaves": 6, "min_data_in_leaf": 3, "verbosity": -1}
    model = lgb.train({**params, "num_threads": 1}, lgb.Dataset(X, y, group=sizes), 4)
    keep = number != 1
    again = model.refit(X[keep], y[keep], decay_rate=0.0, group=np.delete(sizes, 1))
    found = raw_scores(lt.Tracer(model, X, y, qid=sizes).refit(without=~keep), X)
    # LightGBM adds pairs in float32; rows in another order differ by 0.04.
    np.testing.assert_allclose(found, again.predict(X, raw_score=True), atol=1e-5)


def test_leaf_refit_is_the_change_of_refits(setting):
    _, tracer = setting
    ask = {"qid": data.TEST_SIZES, "method": lt.LeafRefit()}
    held = tracer.influence(data.X_TEST, of="prediction", rows=[ROWS[1]], method=lt.LeafRefit())
    without = raw_scores(tracer.refit(without=[ROWS[1]]), data.X_TEST).ravel()
    with_all = raw_scores(tracer.refit(without=[]), data.X_TEST).ravel()
    np.testing.assert_allclose(-held.values[0], without - with_all, atol=1e-12)
    whole = tracer.influence(data.X_TEST, of="prediction", by="query", **ask)
    rows = tracer.rows_of_queries(QUERY)
    assert len(rows) == data.SIZES[QUERY]
    without = raw_scores(tracer.refit(without=rows), data.X_TEST).ravel()
    np.testing.assert_allclose(-whole.values[QUERY], without - with_all, atol=1e-12)


def test_queries_in_another_order(setting):
    """A tracer of the same rows with queries in another order has the same numbers."""
    case, tracer = setting
    if case.bags is not None or any(case is prepared(name)[0] for name in data.DRAWN):
        pytest.skip("draws go by the position of queries")
    order = np.random.default_rng(5).permutation(len(data.SIZES))
    rows = np.concatenate(
        [np.arange(data.N)[q] for q in np.array(twins.queries_of(data.SIZES))[order]]
    )
    arguments = {
        name: value[rows] if np.shape(value) == (data.N,) else value
        for name, value in case.arguments.items()
    }
    other = lt.Tracer(
        case.model, data.X[rows], case.y[rows], qid=data.SIZES[order], dtype="float64", **arguments
    )
    ask = {"qid": data.TEST_SIZES}
    found = other.influence(data.X_TEST, case.y_test, **ask).values
    expected = tracer.influence(data.X_TEST, case.y_test, **ask).values[rows]
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_columns_and_lines(setting):
    """Columns are test queries or documents, lines are documents or training queries."""
    case, tracer = setting
    ask = {"qid": data.TEST_SIZES}
    documents = tracer.influence(data.X_TEST, case.y_test, **ask)
    assert documents.shape == (data.N, 4)
    assert documents.action == "weight_zero"
    mean = tracer.influence(data.X_TEST, case.y_test, reduce="mean", **ask)
    np.testing.assert_allclose(mean.values[:, 0], documents.values.mean(axis=1), atol=1e-12)
    queries = tracer.influence(data.X_TEST, case.y_test, by="query", **ask)
    weighted = documents.values * tracer.sample_weight[:, None]
    np.testing.assert_allclose(
        queries.values[QUERY], weighted[tracer.rows_of_queries(QUERY)].sum(axis=0), atol=1e-12
    )
    assert tracer.influence(data.X_TEST, of="prediction").shape == (data.N, len(data.X_TEST))
    goal = tracer.influence(data.X_TEST, case.y_test, of=lt.goals.ndcg(3), **ask)
    assert goal.shape == (data.N, 4)
    assert goal.effect_words == ("helpful", "harmful")
    present = lt.LeafInfluence(change="presence")
    absent = tracer.influence(data.X_TEST, case.y_test, method=present, **ask)
    assert "loss_change_if_absent" in absent.top(1)
    boostin = tracer.influence(
        data.X_TEST, case.y_test, method=lt.baselines.BoostIn(), by="query", **ask
    )
    assert boostin.shape == (len(data.SIZES), 4)


# ---- arguments ----


def test_forms_of_qid():
    case, tracer = prepared("LightGBM: lambdarank")
    expected = tracer.influence(data.X_TEST, data.Y_TEST, qid=data.TEST_SIZES).values
    names = np.repeat([f"q{i}" for i in range(len(data.SIZES))], data.SIZES)
    named = lt.Tracer(case.model, data.X, case.y, qid=names, dtype="float64")
    found = named.influence(data.X_TEST, data.Y_TEST, qid=np.repeat(list("abcd"), data.TEST_SIZES))
    np.testing.assert_array_equal(found.values, expected)
    assert found.test_index.tolist() == list("abcd")
    assert named.queries.ids[:2].tolist() == ["q0", "q1"]
    rows = lgb.Dataset(data.X, data.Y, group=data.SIZES, free_raw_data=False)
    own = lt.Tracer(case.model, rows, dtype="float64")
    np.testing.assert_array_equal(
        own.influence(data.X_TEST, data.Y_TEST, qid=data.TEST_SIZES).values, expected
    )


def test_as_many_values_as_rows_are_names_of_queries():
    """Sizes that are all one could be names; a ranker of single documents is exact with names."""
    X = np.arange(2.0)[:, None]
    pool = catboost.Pool(X, [0, 1], group_id=[0, 1])
    settings = {"loss_function": "PairLogit", "iterations": 2, "verbose": 0, "thread_count": 1}
    model = catboost.CatBoost({**settings, "allow_writing_files": False}).fit(pool)
    assert lt.Tracer(model, X, [0, 1], qid=["a", "b"]).fidelity.exact
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, X, [0, 1], qid=[1, 1])


def test_what_is_wrong_with_qid():
    case, tracer = prepared("LightGBM: lambdarank")
    with pytest.raises(lt.InvalidInput, match="this model is a ranker; pass qid="):
        lt.Tracer(case.model, data.X, case.y)
    with pytest.raises(lt.InvalidInput, match="add up to"):
        lt.Tracer(case.model, data.X, case.y, qid=[3, 4])
    scattered = np.arange(data.N) % 7
    with pytest.raises(lt.InvalidInput, match="in several places"):
        lt.Tracer(case.model, data.X, case.y, qid=scattered)
    with pytest.raises(lt.InvalidInput, match="pass qid="):
        tracer.influence(data.X_TEST, data.Y_TEST)
    with pytest.raises(lt.InvalidInput, match="no query 99"):
        tracer.rows_of_queries([99])
    plain = lgb.train({**data.SMALL}, lgb.Dataset(data.X, data.Y), 2)
    with pytest.raises(lt.InvalidInput, match="qid is for rankers"):
        lt.Tracer(plain, data.X, data.Y, qid=data.SIZES)
    with pytest.raises(lt.InvalidInput, match="no ranker"):
        lt.Tracer(plain, data.X, data.Y).influence(data.X_TEST, data.Y_TEST, by="query")


def test_ndcg_of_a_model_that_is_no_ranker():
    model = lgb.train({**data.SMALL}, lgb.Dataset(data.X, data.Y), 4)
    tracer = lt.Tracer(model, data.X, data.Y, dtype="float64")
    found = tracer.influence(
        data.X_TEST, data.Y_TEST, qid=data.TEST_SIZES, of=lt.goals.ndcg(), reduce="mean"
    )
    row = int(np.abs(found.values[:, 0]).argmax())
    e = 5e-3
    changes = []
    for sign in (1, -1):
        weights = np.ones(data.N) + sign * e * np.eye(data.N)[row]
        F = tracer.refit(sample_weight=weights).scores(data.X_TEST)[:, 0]
        scalar = lt.goals.ndcg().scalar(data.Y_TEST, np.repeat(np.arange(4), data.TEST_SIZES))
        changes.append(scalar.at(F).values(F).mean())
    np.testing.assert_allclose(
        found.values[row, 0], (changes[0] - changes[1]) / (2 * e), rtol=1e-3
    )  # LightGBM rounds gradients to float32, also in a refit


def test_refusals():
    _, tracer = prepared("LightGBM: lambdarank")
    X = data.X_TEST
    y = data.Y_TEST
    qid = {"qid": data.TEST_SIZES}
    with pytest.raises(lt.UnsupportedModel, match="StructureInfluence"):
        tracer.influence(X, y, method=lt.StructureInfluence(), **qid)
    with pytest.raises(lt.UnsupportedModel, match="TopKLeaves"):
        tracer.influence(X, y, method=lt.LeafInfluence(lt.TopKLeaves(2)), **qid)
    with pytest.raises(lt.InvalidInput, match="TopKLeaves"):
        tracer.influence(X, y, method=lt.LeafRefit(lt.TopKLeaves(2)), **qid)
    with pytest.raises(lt.InvalidInput, match="its presence is its weight"):
        tracer.influence(X, y, method=lt.LeafInfluence(change="presence"), by="query", **qid)
    for ask in (
        lambda: tracer.label_influence(X, of="prediction"),
        lambda: tracer.score_candidates(X, X, of="prediction"),
        lambda: tracer.label_influence(X, y),
        lambda: tracer.refit(added=(X, y)),
        lambda: tracer.retrain(added=(X, y)),
        lambda: tracer.estimate(5),
        lambda: lt.label_noise(tracer),
        lambda: tracer.influence(X, y, method=lt.baselines.TREX(), **qid),
    ):
        with pytest.raises(lt.UnsupportedModel, match=r"rows|query"):
            ask()
    with pytest.raises(lt.InvalidInput, match="or rows that bring them"):
        lt.removal_curve(tracer, [1, 2], X, y)
    with pytest.raises(lt.InvalidInput, match="or test rows that bring them"):
        tracer.noise_floor(X, y)


@pytest.mark.parametrize("kind", ["ranker", "survival times"])
def test_actions_for_losses_of_single_rows(kind):
    """They say so, instead of asking for queries that they do not take or failing in NumPy."""
    X = data.X_TEST
    y = data.Y_TEST
    if kind == "ranker":
        _, tracer = prepared("LightGBM: lambdarank")
    else:
        model = XGBRegressor(objective="survival:cox", n_estimators=3, n_jobs=1)
        tracer = lt.Tracer(model.fit(data.X, data.Y + 1), data.X, data.Y + 1)
    ids = np.arange(data.N) % 3
    for action in (
        lambda: lt.acquire(tracer, X, X, y, k=2),
        lambda: lt.clean(tracer, X, y, X, y),
        lambda: lt.data_values(tracer, X, y),
        lambda: lt.fix(tracer, X[:1], 1),
        lambda: lt.gate(tracer, X, y, X, y),
        lambda: lt.group_effects(tracer, ids, X, y),
        lambda: lt.influential_set(tracer, X, y),
        lambda: lt.label_noise(tracer),
        lambda: lt.mismatch(tracer, X, y),
        lambda: lt.removal_impact(tracer, [1], X, y),
        lambda: lt.report(tracer, X, y),
        lambda: lt.source_values(tracer, ids, X, y),
    ):
        with pytest.raises(lt.UnsupportedModel, match=r"is not for the .* loss, whose gradients"):
            action()


def test_settings_that_are_refused():
    """Settings whose leaf values are not replayed, or that the library gets wrong."""
    qid = {"qid": data.SIZES}
    yeti = data.catboost_ranker("YetiRank:mode=MRR", None)().model
    with pytest.raises(lt.UnsupportedModel, match="the mode Classic is"):
        lt.Tracer(yeti, data.X, data.Y, **qid)
    pairs = data.catboost_ranker("PairLogit", None, w=data.W)().model
    with pytest.raises(lt.UnsupportedModel, match="regulariser alone"):
        lt.Tracer(pairs, data.X, data.Y, data.W.astype(np.float32), **qid)
    with pytest.raises(lt.UnsupportedModel, match="path_smooth with"):
        lt.Tracer(data.lightgbm(path_smooth=2.0)().model, data.X, data.Y, **qid)


@pytest.mark.parametrize("loss", ["PairLogit", "PairLogitPairwise"])
def test_pairs_of_a_pool(loss):
    """Pairs that were given instead of all those of different labels, against a refit pair by pair."""
    rng = np.random.default_rng(3)
    starts = np.cumsum(data.SIZES) - data.SIZES
    pairs = []
    for start, size in zip(starts, data.SIZES, strict=True):
        pairs += [start + rng.choice(size, 2, replace=False) for _ in range(min(size - 1, 4))]
    pairs = np.array(pairs)
    weight = np.float32(rng.random(len(pairs)) + 0.5)
    pool = catboost.Pool(data.X, data.Y, group_id=data.NUMBER, pairs=pairs, pairs_weight=weight)
    settings = {"loss_function": loss, "iterations": 4, "depth": 2, "verbose": 0}
    model = catboost.CatBoost({**settings, "allow_writing_files": False}).fit(pool)
    given = {"pairs": pairs, "pairs_weight": weight}
    tracer = lt.Tracer(model, data.X, data.Y, qid=data.SIZES, params=given, dtype="float64")
    assert tracer.fidelity.max_error < 1e-9
    whole = lt.Tracer(model, pool, params=given, dtype="float64")
    ask = {"qid": data.TEST_SIZES}
    np.testing.assert_array_equal(
        tracer.influence(data.X_TEST, data.Y_TEST, **ask).values,
        whole.influence(data.X_TEST, data.Y_TEST, **ask).values,
    )
    # The twin: four steps of pairs, with the terms of PairLogit
    if loss == "PairLogit":
        A = np.zeros(data.N)
        leaves = model.calc_leaf_indexes(data.X).T
        p = model.get_all_params()
        rate = float(np.float32(p["learning_rate"]))
        for t, ids in enumerate(leaves):
            g = np.zeros(data.N)
            h = np.zeros(data.N)
            for (a, b), v in zip(pairs, weight.astype(float), strict=True):
                rho = 1 / (1 + np.exp(A[a] - A[b]))
                g[[a, b]] += [-v * rho, v * rho]
                h[[a, b]] += v * rho * (1 - rho)
            s = -np.bincount(ids, g, 4) / (np.bincount(ids, h, 4) + p["l2_leaf_reg"])
            W = np.bincount(ids, minlength=4)
            s = np.where(W > 0, s - W @ s / W.sum(), 0.0)
            e = tracer.engine.ensemble
            np.testing.assert_allclose(e.values[e.leaf_range(t), 0], rate * s, atol=1e-9)
            A = A + rate * s[ids]
    with pytest.raises(lt.InvalidInput, match="pairs, which it does not give back"):
        lt.Tracer(model, pool)
    with pytest.raises(lt.FidelityError):
        lt.Tracer(model, data.X, data.Y, qid=data.SIZES)
    with pytest.raises(lt.UnsupportedModel, match="pairs of its own"):
        tracer.retrain(without=[3])
    for wrong in ([[0, 1, 2]], [[0, data.N]], [[0, data.N - 1]]):
        with pytest.raises(lt.InvalidInput, match=r"params\['pairs'\]"):
            lt.Tracer(model, data.X, data.Y, qid=data.SIZES, params={"pairs": np.array(wrong)})
