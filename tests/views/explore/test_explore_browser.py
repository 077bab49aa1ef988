"""The explorer as people use it, in headless Chromium: every panel, by mouse and keys, with hostile data."""

import csv
import json
import threading
from urllib.parse import quote, unquote

import hostile
import numpy as np
import pytest
from chromium import DESKTOP, PHONE, chromium
from explore_world import adult, grains, homes, income, tracer_of, wine

import leaftrace as lt
from leaftrace._data.stopping import Stopped, is_wanted
from leaftrace._views.explore import effects
from leaftrace._views.explore.basket import Basket
from leaftrace._views.report.page import number, percent, signed

TABS = ("behind", "groups", "review", "map", "whatif")
LONG = 30_000  # milliseconds to wait at most, on a busy machine


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


class World:
    """A served model."""

    def __init__(self, world):
        self.model, self.X, self.y, self.X_test, self.y_test = world
        self.tracer = tracer_of(world)
        self.explorer = lt.explore(self.tracer, self.X_test, self.y_test, open_browser=False)
        self.address = self.explorer.address

    @property
    def worst(self):
        return int(np.argmax(self.tracer.refit().loss(self.X_test, self.y_test)))

    def loss(self, model):
        return model.loss(self.X_test, self.y_test)


@pytest.fixture(scope="module")
def people():
    made = World(income())
    yield made
    made.explorer.close()


@pytest.fixture(scope="module", params=["income", "grains", "adult", "wine"])
def classes(request):
    """Made-up people and grains, and real rows of Adult and of wine, in seven classes."""
    worlds = {"income": income, "grains": grains, "adult": adult, "wine": wine}
    made = World(worlds[request.param]())
    yield made
    made.explorer.close()


@pytest.fixture
def serve():
    """Serve a model for one test. Named before `visit`, it ends after the pages are closed."""
    served = []

    def made(world):
        served.append(World(world))
        return served[-1]

    yield made
    for world in served:
        world.explorer.close()


@pytest.fixture
def visit(browser):
    """Open a page, and check at the end that there was no error, foreign request or script."""
    contexts = []
    heard = []

    def opened(world, state=None, **settings):
        context = browser.new_context(**{"viewport": DESKTOP} | settings)
        context.set_default_timeout(LONG)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        known = (world.address, "data:,", "blob:")
        page.on(
            "request",
            lambda r: None if r.url.startswith(known) else heard.append(f"request: {r.url}"),
        )
        hash_part = "" if state is None else f"#{quote(json.dumps(state))}"
        page.goto(world.address + hash_part)
        page.wait_for_selector("#rows .choose tbody tr")
        page.wait_for_selector("#chosen dl")
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("typeof window.hacked") == "undefined"
        context.close()
    assert heard == []


def state_of(page):
    return json.loads(unquote(page.evaluate("location.hash"))[1:] or "{}")


def wait_for_text(page, selector, text, there=True):
    """Wait until a text is there, or no longer is.

    Playwright's own functions run in the page, where its policy forbids to evaluate strings."""
    from playwright.sync_api import expect

    place = expect(page.locator(selector).first)
    (place.to_contain_text if there else place.not_to_contain_text)(text, timeout=LONG)


def wait_for_level(page, level):
    wait_for_text(page, "#level", level)


def cells(page, line):
    return [cell.inner_text() for cell in page.locator(f"#{line} td").all()]


def harmful(world, position, k=10):
    X = world.X_test.iloc[[position]]
    top = world.tracer.influence(X, world.y_test[[position]]).top(k, effect="harmful")
    return top.position.tolist()


def test_ask_remove_see(visit, classes, monkeypatch):
    """First order comes at once and says so, the refit replaces it, and retraining that."""
    page = visit(classes)
    loss = classes.loss(classes.tracer.refit())
    order = np.argsort(-loss, kind="stable")
    names = [cell.inner_text() for cell in page.locator("#rows .choose tbody th").all()]
    assert names == [str(name) for name in classes.X_test.index[order[:15]]]
    assert page.locator("#rows tr.chosen").count() == 1
    page.locator("#rows .choose tbody tr").nth(2).click()
    position = int(order[2])
    wait_for_text(page, "#chosen b", names[2])

    page.wait_for_selector("#finding b")

    held = threading.Event()  # keeps the refit back until first order was seen
    refit = effects.refitted
    monkeypatch.setattr(effects, "refitted", lambda *given: (held.wait(60), refit(*given))[1])
    rows = harmful(classes, position, 2)
    box = page.locator(f"tr[data-position='{rows[0]}'] input[type=checkbox]")
    box.check()
    wait_for_level(page, "first order")
    slope = classes.tracer.influence(
        classes.X_test.iloc[[position]], classes.y_test[[position]]
    ).values[rows[0], 0]
    assert signed(-float(slope)) in cells(page, "row-loss")[2]
    held.set()
    wait_for_level(page, "refitted")
    check_effect(page, classes, position, classes.tracer.refit(rows[:1]))
    page.wait_for_selector("#conclusion")
    assert "random rows" in page.locator("#conclusion").inner_text()

    page.locator(f"tr[data-position='{rows[1]}'] input[type=checkbox]").check()
    wait_for_text(page, ".items li", "2 rows")
    page.locator("#undo").click()
    wait_for_text(page, ".items li", "2 rows", there=False)
    assert not page.locator(f"tr[data-position='{rows[1]}'] input[type=checkbox]").is_checked()
    wait_for_level(page, "refitted")
    page.locator("#retrain").click()
    wait_for_level(page, "retrained")
    check_effect(page, classes, position, classes.tracer.retrain(rows[:1]))
    page.locator("#undo").click()
    page.wait_for_selector("#basket .items", state="detached")
    assert "Nothing is changed" in page.locator("#basket").inner_text()
    assert not box.is_checked()


@pytest.mark.parametrize("press", ["mouse", "key"])
def test_a_click_is_not_lost_when_numbers_arrive(visit, people, monkeypatch, press):
    """A button that is pressed while its panel is drawn again does what it says."""
    page = visit(people)
    page.wait_for_selector("#finding b")  # if it came later, it would move the button below it
    held = threading.Event()
    refit = effects.refitted
    monkeypatch.setattr(effects, "refitted", lambda *given: (held.wait(60), refit(*given))[1])
    page.locator("tr[data-position] input[type=checkbox]").first.check()
    wait_for_level(page, "first order")
    if press == "mouse":
        page.locator("#undo").hover()
        page.mouse.down()
    else:
        page.locator("#undo").focus()
        page.keyboard.down(" ")
    with page.expect_response("**/controls"):
        held.set()
    page.wait_for_timeout(100)  # the page has the answer
    if press == "mouse":
        page.mouse.up()
    else:
        page.keyboard.up(" ")
    page.wait_for_selector("#basket .items", state="detached")


def test_every_panel_opens(visit, browser, classes, tmp_path):
    """Groups fill the basket, the map, the review and What if answer, and the report opens offline."""
    page = visit(classes, {"by": str(classes.X.columns[0])})
    for tab in TABS[1:]:
        page.locator(f"#tab-{tab}").click()
        page.wait_for_selector(f".panel-{tab} table, .panel-{tab} svg, .panel-{tab} input")
        if tab == "groups":
            page.locator(".panel-groups button.cell").first.click()
            page.wait_for_selector("#basket .items li")
            wait_for_level(page, "refitted")
        if tab == "map":
            page.wait_for_selector(".map circle")
    with page.expect_download() as download:
        page.get_by_role("button", name="Report").click()
    download.value.save_as(tmp_path / "report.html")
    context = browser.new_context(offline=True)
    report = context.new_page()
    report.goto(f"file://{tmp_path}/report.html")
    assert report.locator(".case").count() == 1
    context.close()


def check_effect(page, world, position, model):
    """The table of effects has the numbers of this model."""
    before = world.loss(world.tracer.refit())
    after = world.loss(model)
    change = after - before
    row = cells(page, "row-loss")
    assert row[:2] == [number(float(before[position])), number(float(after[position]))]
    assert row[2] == f"{signed(change[position])} {'better' if change[position] < 0 else 'worse'}"
    all_rows = cells(page, "all-loss")
    assert all_rows[:2] == [number(float(before.mean())), number(float(after.mean()))]
    assert all_rows[2].startswith(signed(change.mean()))
    assert "95 % interval" in all_rows[2]
    label = world.y_test[position]
    own = world.tracer.classes.tolist().index(label)
    p = model.predict_proba(world.X_test.iloc[[position]])[0, own]
    assert percent(float(p)) in cells(page, "row-prediction")[1]


def test_retraining_shows_progress_and_can_be_cancelled(visit, people, monkeypatch):
    def endless(_):
        while is_wanted():
            threading.Event().wait(0.01)
        raise Stopped

    monkeypatch.setattr(Basket, "retrain", endless)
    page = visit(people, {"basket": [{"rows": [1], "do": "remove"}]})
    wait_for_level(page, "refitted")
    page.locator("#retrain").click()
    page.wait_for_selector("progress")
    assert "model 1 of 4" in page.locator(".progress").inner_text()
    page.locator("#cancel").click()
    page.wait_for_selector("text=Retraining was cancelled.")
    assert page.locator("#level").inner_text() == "refitted"


def test_the_address_holds_the_state(visit, people):
    state = {"row": 7, "basket": [{"rows": [3], "do": "remove"}], "tab": "groups", "by": "job"}
    page = visit(people, state)
    wait_for_level(page, "refitted")
    assert page.locator("#chosen b.label").inner_text() == people.X_test.index[7]
    assert page.locator("#tab-groups").get_attribute("aria-selected") == "true"
    page.locator("#tab-behind").click()
    page.locator("#panel input[type=checkbox]").first.check()
    wait_for_text(page, ".items li", "2 rows")
    assert len(state_of(page)["basket"][0]["rows"]) == 2
    page.go_back()
    wait_for_text(page, ".items li", "2 rows", there=False)
    page.reload()
    wait_for_level(page, "refitted")
    assert state_of(page)["row"] == 7


def test_filters_of_test_rows(visit, people):
    page = visit(people)
    loss = people.loss(people.tracer.refit())
    count = page.locator("#count")
    page.get_by_label("Search").fill("age>60 job=Exec")
    wanted = ((people.X_test.age > 60) & (people.X_test.job == "Exec")).sum()
    wait_for_text(page, "#count", f"of {wanted} rows")
    page.get_by_role("button", name="Clear filters").click()
    wait_for_text(page, "#count", f"of {len(loss)} rows")
    decision = people.model.predict(people.X_test)
    wrong = ((people.y_test == ">50K") & (decision == "<=50K")).sum()
    cell = page.locator(".confusion tbody tr").nth(1).locator("button").first
    assert cell.inner_text() == str(wrong)
    cell.click()
    wait_for_text(page, "#count", f"of {wrong} rows")
    page.get_by_role("button", name="Clear filters").click()
    wait_for_text(page, "#count", f"of {len(loss)} rows")
    box = page.locator(".histogram svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    page.mouse.up()
    page.wait_for_url("**loss**")
    low, high = state_of(page)["loss"]
    kept = ((loss >= low) & (loss <= high)).sum()
    wait_for_text(page, "#count", f"of {kept} row")
    assert low == pytest.approx((loss.min() + loss.max()) / 2, rel=0.05)
    assert count.is_visible()


def test_relabel_and_reweight_by_the_list(visit, people):
    page = visit(people)
    row = harmful(people, people.worst, 1)[0]
    page.wait_for_selector(f"tr[data-position='{row}']")
    change = page.locator(f"tr[data-position='{row}'] select")
    change.select_option("weight 0.5")
    wait_for_level(page, "refitted")
    assert state_of(page)["basket"] == [{"rows": [row], "do": "weight", "to": 0.5}]
    other = int(people.y[row] == "<=50K")
    change.select_option(f"relabel {other}")
    page.wait_for_selector(".items li:has-text('label')")
    wait_for_level(page, "refitted")
    y = people.y.copy()
    y[row] = people.tracer.classes[other]
    check_effect(page, people, people.worst, people.tracer.refit(y=y))


def test_numbers_are_relabelled_by_typing(serve, visit):
    world = serve(homes())
    page = visit(world)
    page.wait_for_selector("#panel tbody tr")
    row = harmful(world, world.worst, 1)[0]
    page.locator(f"tr[data-position='{row}'] select").select_option("relabel")
    page.locator(f"tr[data-position='{row}'] input[type=number]").fill("321")
    page.locator(f"tr[data-position='{row}'] input[type=number]").press("Tab")
    page.wait_for_selector(".items li:has-text('label 321')")
    wait_for_level(page, "refitted")
    y = world.y.copy()
    y[row] = 321
    after = world.loss(world.tracer.refit(y=y))
    wait_for_text(page, "#row-loss", number(float(np.sqrt(2 * after[world.worst]))))
    assert "error" in page.locator("#row-loss th").inner_text()
    assert "RMSE" in page.locator("#all-loss th").inner_text()
    assert page.locator(".residuals rect").count() > 5


def test_a_group_fills_the_basket(visit, people):
    page = visit(people, {"tab": "groups", "by": "job", "slices": "age"})
    page.wait_for_selector("#groups-table tbody tr")
    name = page.locator("#groups-table tbody th").nth(1).inner_text()
    page.locator("#groups-table tbody tr").nth(1).locator("button").first.click()
    wait_for_level(page, "refitted")
    assert page.locator(".items li").inner_text().startswith(f"{name}: removed")
    gone = people.X.job == name.removeprefix("job = ")
    check_effect(page, people, people.worst, people.tracer.refit(gone.to_numpy()))
    expected = lt.group_effects(
        people.tracer, "job", people.X_test, people.y_test, "age", refit=True, bins=6
    )
    page.get_by_label("computed by").select_option("refit")
    page.wait_for_selector("#panel b:has-text('refitted')")
    seen = page.locator("#groups-table tbody tr").nth(1).locator("td button").first.inner_text()
    assert seen == signed(expected.refitted[1, 0])


def test_review_by_keyboard(serve, visit, browser):
    world = serve(income(240))
    page = visit(world, {"tab": "review"})
    page.locator("#review-now").focus()
    for key in ("w", "u", "ArrowDown", "k", "ArrowUp", "w"):
        page.keyboard.press(key)  # faster than the server answers
    wait_for_text(page, "#panel [role=status]", "3 labels reviewed")
    order = np.argsort(lt.label_noise(world.tracer).label_score, kind="stable")
    names = world.X.index[order].tolist()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        said = {line["train_row"]: line["verdict"] for line in csv.DictReader(file)}
    assert said == {names[0]: "wrong", names[1]: "unsure", names[3]: "wrong"}
    page.get_by_role("button", name="Remove the wrong ones").click()
    wait_for_level(page, "refitted")
    assert sorted(state_of(page)["basket"][0]["rows"]) == sorted(order[[0, 3]].tolist())
    page.reload()
    page.wait_for_selector("#panel tbody tr")
    assert page.locator("#panel tbody tr").nth(1).inner_text().count("unsure") == 1  # kept


def test_map_with_lasso_and_rectangle(visit, people):
    page = visit(people, {"tab": "map", "x": "age", "y": "hours"})
    page.wait_for_selector(".map circle")
    assert page.locator(".map circle").count() == len(people.X)
    page.locator(".map").scroll_into_view_if_needed()
    box = page.locator(".map").bounding_box()
    around = [(0.3, 0.3), (0.6, 0.3), (0.6, 0.6), (0.3, 0.6), (0.3, 0.32)]
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in around]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=6)
    page.mouse.up()
    page.wait_for_selector(".items li:has-text('region of age and hours')")
    wait_for_level(page, "refitted")
    page.locator("#empty").click()
    page.wait_for_selector("#basket .items", state="detached")
    for name, value in (("age from", 30), ("age to", 40), ("hours from", 20), ("hours to", 60)):
        page.get_by_label(name, exact=True).first.fill(str(value))
    page.get_by_role("button", name="Put this rectangle into the basket").click()
    inside = people.X.age.between(30, 39.9) & people.X.hours.between(20, 59.9)
    page.wait_for_selector(f".items li:has-text('({inside.sum()} rows)')")
    wait_for_level(page, "refitted")


def test_what_if(visit, people):
    page = visit(people, {"tab": "whatif", "row": 5})
    page.wait_for_selector(".fields input")
    page.get_by_label("age").fill("88")
    page.get_by_label("age").press("Tab")
    page.wait_for_selector("#edited")
    row = people.X_test.iloc[[5]].copy()
    row["age"] = 88
    own = people.tracer.classes.tolist().index(people.y_test[5])
    expected = percent(float(people.model.predict_proba(row)[0, own]))
    assert expected in page.locator("#edited b").inner_text()
    top = people.tracer.influence(row, people.y_test[[5]]).top(5, effect="harmful")
    assert page.locator("#panel tbody th").first.inner_text() == top.train_row.iloc[0]


def test_exports_open_offline(visit, browser, people, tmp_path):
    page = visit(people, {"row": 4, "basket": [{"rows": [3, 8], "do": "remove"}]})
    wait_for_level(page, "refitted")
    for name, file in (
        ("Python script", "repeat.py"),
        ("Audit file", "audit.json"),
        ("Report", "report.html"),
    ):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == file
        download.value.save_as(tmp_path / file)
    names = {}
    exec((tmp_path / "repeat.py").read_text(encoding="utf-8"), names)
    found = names["repeat"](people.tracer, people.X_test, people.y_test)
    assert found["after"]["all"] == pytest.approx(people.loss(people.tracer.refit([3, 8])).mean())
    assert json.loads((tmp_path / "audit.json").read_text())["removed"] == [3, 8]
    context = browser.new_context(offline=True)
    report = context.new_page()
    asked = []
    report.on("request", lambda request: asked.append(request.url))
    report.goto(f"file://{tmp_path}/report.html")
    assert people.X_test.index[4] in report.locator(".case").first.inner_text()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


def test_hostile_texts_are_texts(serve, visit):
    world = serve(hostile.hostile())
    kind = hostile.COLUMNS[2]
    group = {"group": {"by": kind, "number": 1}, "do": "weight", "to": 2}
    page = visit(world, {"by": kind, "x": kind, "basket": [{"rows": [2], "do": "remove"}, group]})
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        page.wait_for_selector(f".panel-{tab} table, .panel-{tab} svg, .panel-{tab} input")
    wait_for_level(page, "refitted")
    text = page.locator("body").inner_text()
    assert hostile.LABELS[0] in text
    assert kind in text
    assert page.locator("img, iframe, body style, body script").count() == 0


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)]
)
def test_axe_finds_nothing(visit, people, scheme, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    basket = [{"rows": [3, 8], "do": "remove"}]
    page = visit(people, {"basket": basket}, color_scheme=scheme, viewport=size)
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        page.wait_for_selector(f".panel-{tab} table, .panel-{tab} svg, .panel-{tab} input")
        page.wait_for_selector("#conclusion")
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == [], tab


@pytest.mark.parametrize("size", [PHONE, {"width": 320, "height": 640}], ids=["phone", "small"])
def test_nothing_is_wider_than_the_screen(visit, people, size):
    page = visit(people, {"basket": [{"rows": [3], "do": "remove"}]}, viewport=size)
    wait_for_level(page, "refitted")
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        page.wait_for_selector(f".panel-{tab} table, .panel-{tab} svg, .panel-{tab} input")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], tab


def test_keys_reach_everything(visit, people):
    page = visit(people)
    page.wait_for_selector("#panel tbody tr")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#tab-behind").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#groups-table")
    assert page.evaluate("document.activeElement.id") == "tab-groups"
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#panel input[type=checkbox]")
    page.locator("#panel input[type=checkbox]").first.focus()
    page.keyboard.press("Space")
    wait_for_level(page, "refitted")
    assert page.evaluate("document.activeElement.type") == "checkbox"  # the focus stays
