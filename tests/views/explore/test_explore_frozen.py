"""The report that the explorer exports: its own modules inside, answered from a recording, without a server."""

import json

import hostile
import numpy as np
import pytest
from chromium import DESKTOP, PHONE, chromium
from explore_world import World, adult, homes, income, wine

import leaftrace as lt
from leaftrace._views.explore import export, record
from leaftrace._views.report.page import number

LONG = 30_000  # milliseconds to wait at most, on a busy machine
POSITION = 4
WORLDS = {"income": income, "homes": homes}
REAL = {"adult": adult, "wine": wine}  # which the first test opens, too


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module", params=WORLDS)
def exported(request):
    """A served model, and the report that it exports."""
    yield from exported_by(WORLDS[request.param])


@pytest.fixture(scope="module", params=REAL)
def real(request):
    yield from exported_by(REAL[request.param])


def exported_by(make):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "SECONDS", 600.0)  # a busy machine records as much as an idle one
        patch.setattr(export, "MAX_ROWS", 2)
        world = World(make())
        world.page = world.ask("report", position=POSITION)["text"]
        yield world
        world.explorer.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from a file, offline, and check at the end that it asked nothing and said nothing."""
    heard = []
    contexts = []

    def visit(html, **settings):
        (tmp_path / "report.html").write_text(html, encoding="utf-8")
        context = browser.new_context(**{"viewport": DESKTOP, "offline": True} | settings)
        context.set_default_timeout(LONG)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        kinds = ("file:", "data:,", "about:")
        page.on("request", lambda r: None if r.url.startswith(kinds) else heard.append(r.url))
        page.goto(f"file://{tmp_path}/report.html")
        frame = page.frame_locator("#explorer")
        frame.locator("#panel tbody tr").first.wait_for()
        frame.locator("#rows tbody tr").first.wait_for()
        return page, frame

    yield visit
    for context in contexts:
        context.close()
    assert heard == []


def wait_for(frame, selector, text):
    frame.locator(selector, has_text=text).first.wait_for()


def cells(frame, line):
    return [cell.inner_text() for cell in frame.locator(f"#{line} td").all()]


def harmful(world, k=10):
    X = world.X_test.iloc[[POSITION]]
    top = world.tracer.influence(X, world.y_test[[POSITION]]).top(k, effect="harmful")
    return top.position.tolist()


def check_effect(world, frame, rows):
    """The table has the numbers of the model refitted without these rows."""
    wait_for(frame, "#level", "refitted")
    before, after = (world.shown(world.loss(world.tracer.refit(w))) for w in (None, rows))
    row = cells(frame, "row-loss")
    assert row[:2] == [number(float(x[POSITION])) for x in (before, after)]
    losses = [world.loss(world.tracer.refit(w)).mean() for w in (None, rows)]
    assert cells(frame, "all-loss")[:2] == [number(float(world.shown(x))) for x in losses]
    frame.locator("#conclusion").wait_for()


def test_rows_of_real_data_are_taken_out_offline(real, opened):
    _, frame = opened(real.page)
    frame.locator(f"tr[data-position='{harmful(real)[0]}'] input[type=checkbox]").check()
    check_effect(real, frame, harmful(real)[:1])


def test_rows_are_taken_out_offline(exported, opened):
    """Recorded refits replace first order; what was not recorded keeps it, with a sentence."""
    page, frame = opened(exported.page)
    assert page.locator(".case").count() == 1
    rows = harmful(exported)
    box = frame.locator(f"tr[data-position='{rows[0]}'] input[type=checkbox]")
    box.check()
    check_effect(exported, frame, rows[:1])
    frame.locator(f"tr[data-position='{rows[1]}'] input[type=checkbox]").check()
    wait_for(frame, ".items li", "2 rows")
    check_effect(exported, frame, rows[:2])
    box.uncheck()
    wait_for(frame, ".items li", "removed")
    check_effect(exported, frame, rows[1:2])
    frame.locator("#empty").click()
    frame.locator("#basket .items").wait_for(state="detached")
    frame.get_by_role("button", name="Remove the").click()
    check_effect(exported, frame, rows)
    frame.locator(f"tr[data-position='{rows[0]}'] input[type=checkbox]").uncheck()
    wait_for(frame, "#problem", "The refit of this combination was not recorded")
    wait_for(frame, "#problem", "lt.explore(tracer, X_test, y_test)")
    assert frame.locator("#level").inner_text() == "first order"
    live = exported.ask("basket", basket=[{"rows": rows[1:], "do": "remove"}], position=POSITION)
    change = live["effect"]["row"]["change"]
    sign = "\N{MINUS SIGN}" if change < 0 else "+"
    assert f"{sign}{number(abs(change), 3)}" in cells(frame, "row-loss")[2]
    for gone in ("#retrain", "#tab-map", "#panel select", "#rows input"):
        assert frame.locator(gone).count() == 0


def test_another_recorded_test_row(exported, opened):
    _, frame = opened(exported.page)
    assert frame.locator("#rows tbody tr").count() == 2
    worst = int(exported.loss(exported.model).argmax())
    name = str(exported.X_test.index[worst])
    frame.locator("#rows tbody button", has_text=name).first.click()
    wait_for(frame, "#chosen b", name)
    wait_for(frame, "#count", f"2 rows of {len(exported.y_test)} recorded")


def test_the_file_is_small_and_asks_nothing(exported):
    assert len(exported.page.encode()) < 2_000_000
    policy = exported.page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    policy = policy.replace("&#39;", "'")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert policy.count("sha256-") == 5  # two scripts; the styles of the report are in both pages


def test_reports_have_it(exported, opened):
    """`lt.report` records the worst of its test rows; with columns to hide it does not."""
    given = exported.tracer, exported.X_test, exported.y_test
    page, frame = opened(lt.report(*given, worst=4, noise=False).html)
    assert page.locator(".case").count() == 4
    assert frame.locator("#rows tbody tr").count() == 4
    frame.get_by_role("button", name="Remove the").click()
    wait_for(frame, "#level", "refitted")
    wait_for(frame, "#facts", "lt.explore(tracer, X_test, y_test)")
    hidden = {"redact": [exported.X_test.columns[0]]}
    for without in ({"explorer": False}, hidden, {"method": lt.LeafRefit()}):
        assert 'id="frame"' not in lt.report(*given, worst=1, noise=False, **without).html
    assert 'id="frame"' not in lt.report(*given[:2], worst=1, noise=False).html
    with pytest.raises(lt.InvalidInput, match=r"cannot have the explorer inside: .* redacted"):
        lt.report(*given, explorer=True, **hidden)


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)])
def test_axe_finds_nothing(exported, opened, scheme, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page, frame = opened(exported.page, color_scheme=scheme, viewport=size)
    frame.locator("#panel input[type=checkbox]").first.check()
    frame.locator("#conclusion").wait_for()
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    inside = next(f for f in page.frames if f.parent_frame)
    assert inside.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_limits_leave_out_refits(monkeypatch, opened):
    """Without time for a refit the page has one row and first order, and says so."""
    monkeypatch.setattr(export, "SECONDS", 0.0)
    world = World(income())
    page = world.ask("report", position=POSITION)["text"]
    world.explorer.close()
    _, frame = opened(page)
    assert frame.locator("#rows tbody tr").count() == 1
    frame.locator("#panel input[type=checkbox]").first.check()
    wait_for(frame, "#problem", "was not recorded")
    assert frame.locator("#level").inner_text() == "first order"


def test_a_class_that_would_have_no_rows_says_so():
    """A basket that cannot be refitted is recorded with the reason."""
    world = World(income())
    session = world.explorer.session
    rows = np.flatnonzero(world.y == "<=50K").tolist()
    (scores,) = record._scores_without(session, [np.array(rows)])
    found = record._basket(session, scores, POSITION, {})
    assert "class" in found["error"]
    world.explorer.close()


def test_hostile_texts_are_texts(opened):
    world = World(hostile.hostile())
    html = world.ask("report", position=POSITION)["text"]
    world.explorer.close()
    page, frame = opened(html)
    text = frame.locator("body").inner_text()
    assert hostile.COLUMNS[2] in text
    for one in page.frames:
        assert one.evaluate("typeof window.hacked") == "undefined"
    assert frame.locator("img, iframe, body style").count() == 0


def test_the_recording_holds_no_more_than_it_shows(exported):
    """Training rows that are not listed for a recorded test row are nowhere in the recording."""
    session = exported.explorer.session
    made = record.record(session, [POSITION], "leaftrace explore", lambda: None, 600.0)
    listed = {
        line["position"] for row in made["rows"].values() for line in row["row"]["training_rows"]
    }
    asked = {
        int(i) for row in made["rows"].values() for key in row["baskets"] for i in key.split(",")
    }
    assert asked == listed
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_controls_are_refits_without_random_rows(exported):
    """Baskets of as many rows share them; by hand from the seed they are the same."""
    session = exported.explorer.session
    made = record.record(session, [POSITION], "leaftrace explore", lambda: None, 600.0)
    baskets = made["rows"][str(POSITION)]["baskets"]
    pairs = [one["controls"] for key, one in baskets.items() if key.count(",") == 1]
    singles = [one["controls"] for key, one in baskets.items() if "," not in key]
    assert all(one == singles[0] for one in singles)
    assert pairs[0] != singles[0]
    rows = np.random.default_rng([2, 3]).permutation(len(exported.y))[:2]
    losses = [exported.loss(exported.tracer.refit(w)) for w in (None, rows)]
    row = [float(exported.shown(loss[POSITION])) for loss in losses]
    mean = [float(exported.shown(loss.mean())) for loss in losses]
    # Many sets at once are refitted in float32, to six digits of a score.
    np.testing.assert_allclose(pairs[0]["row"][3], row[1] - row[0], rtol=1e-4)
    np.testing.assert_allclose(pairs[0]["all"][3], mean[1] - mean[0], rtol=1e-3)
