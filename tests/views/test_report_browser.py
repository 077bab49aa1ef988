"""The report as people use it, in headless Chromium: mouse, keys, themes, print, widths, hostile data.

Without a browser these tests are skipped; LEAFTRACE_REQUIRE_BROWSER=1 makes that a failure.
"""

import json
import re
import tempfile

import hostile
import numpy as np
import pytest
from chromium import DESKTOP, PHONE, chromium

import leaftrace as lt
from leaftrace import report


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def found():
    """A report on hostile data, with every section."""
    model, X, y, X_test, y_test = hostile.hostile()
    X = X.copy()
    X_test = X_test.copy()
    X.iloc[::7, 1] = np.nan  # some missing values, in a column to sort by
    model = model.set_params(functiontransformer__func=without_missing).fit(X, y)
    kind = hostile.COLUMNS[2]
    return report(
        lt.Tracer(model, X, y), X_test, y_test, worst=8, top=6, groups=kind, test_groups=kind
    )


def without_missing(X):
    return np.nan_to_num(X.iloc[:, :2].to_numpy(float))


@pytest.fixture(scope="module")
def address(found):
    with tempfile.TemporaryDirectory() as folder:
        found.save(f"{folder}/report.html")
        yield f"file://{folder}/report.html"


@pytest.fixture
def visit(browser, address):
    """Open the page, and check at the end that there was no error, request or foreign script."""
    contexts = []
    heard = []
    known = (f"request: {address}", "request: data:,", "request: blob:")

    def opened(**settings):
        context = browser.new_context(**{"viewport": DESKTOP} | settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: heard.append(f"request: {request.url}"))
        page.goto(address)
        assert heard[0] == f"request: {address}"  # so that requests are noticed
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("typeof window.hacked") == "undefined"
        context.close()
    assert [line for line in heard if not line.startswith(known)] == []


def shown_rows(page, table):
    return page.locator(f"{table} tbody tr:visible")


def column(page, table, j):
    cells = page.locator(f"{table} tbody tr").all()
    return [row.locator("th, td").nth(j).inner_text().split("\n")[0].strip() for row in cells]


CASE = ".case[open] table.sortable"


def test_opens_quietly_and_shows_everything(visit, found):
    page = visit()
    assert page.title() == found.data["title"]
    assert page.locator(".case").count() == 8
    assert page.locator(".case[open]").count() == 1
    assert [h.inner_text().partition(":")[0] for h in page.locator("h2").all()] == [
        "Conclusions", "Try it", "Test rows", "Whole test set", "Label noise", "Groups", "Model", "About",
    ]  # fmt: skip
    first = found.data["cases"][0]
    rows = page.locator(f"{CASE} tbody tr")
    assert rows.count() == len(first["training_rows"])
    text = rows.first.inner_text()
    assert "harmful" in text
    assert "−" in text  # removing a harmful row lowers the loss
    assert first["training_rows"][0]["row"].split()[0] in page.locator(CASE).inner_text().replace(
        "\n", " "
    )


def test_expand_and_collapse(visit):
    page = visit()
    page.locator(".case summary").nth(2).click()
    assert page.locator(".case").nth(2).get_attribute("open") is not None
    assert page.locator(".case[open]").count() == 2
    page.get_by_role("button", name="Expand all").click()
    assert page.locator(".case[open]").count() == 8
    page.get_by_role("button", name="Collapse all").click()
    assert page.locator(".case[open]").count() == 0


def test_sorting_a_table(visit, found):
    page = visit()
    heading = page.locator(f"{CASE} thead th", has_text="loss change")
    heading.get_by_role("button").click()
    changes = sorted(r["change"] for r in found.data["cases"][0]["training_rows"])
    seen = [float(c.get_attribute("data-v")) for c in page.locator(f"{CASE} td.change").all()]
    assert heading.get_attribute("aria-sort") == "ascending"
    assert seen == changes
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert [
        float(c.get_attribute("data-v")) for c in page.locator(f"{CASE} td.change").all()
    ] == changes[::-1]

    by_name = page.locator(f"{CASE} thead tr:first-child th")
    places = {by_name.nth(j).inner_text(): j for j in range(by_name.count())}
    by_name.nth(places["b"]).get_by_role("button").click()
    numbers = column(page, CASE, places["b"])
    known = [
        float(re.sub("[^0-9.e-]", "", x.replace("−", "-"))) for x in numbers if "missing" not in x
    ]
    assert known == sorted(known)
    assert numbers == [x for x in numbers if "missing" not in x] + ["missing"] * (
        len(numbers) - len(known)
    )
    assert page.locator(f"{CASE} thead tr.self").count() == 1  # the test row stays on top
    assert page.locator(f"{CASE} [aria-sort]").count() == 1


def test_chips_filter_by_effect(visit):
    page = visit()
    chips = page.locator(".case[open] .chips button")
    assert [re.sub(r"\W+", " ", c.inner_text()) for c in chips.all()] == [
        "all 12",
        "harmful 6",
        "helpful 6",
    ]
    chips.nth(1).click()
    assert shown_rows(page, CASE).count() == 6
    assert {r.get_attribute("data-effect") for r in shown_rows(page, CASE).all()} == {"harmful"}
    assert chips.nth(1).get_attribute("aria-pressed") == "true"
    assert chips.nth(0).get_attribute("aria-pressed") == "false"
    chips.nth(1).press("ArrowLeft")
    page.keyboard.press("Enter")
    assert shown_rows(page, CASE).count() == 12


def test_search_and_filters_of_test_rows(visit, found):
    page = visit()
    text = [c.text_content().lower() for c in page.locator(".case").all()]
    number = found.data["cases"][4]["row"].split()[-1]
    wanted = [i for i, words in enumerate(text) if "javascript" in words and number in words]
    assert 0 < len(wanted) < 8
    page.get_by_label("Search").first.fill(f"  {number} JavaScript ")
    assert [
        int(c.get_attribute("data-place")) for c in page.locator(".case:visible").all()
    ] == wanted
    page.locator("#find").fill(f"zzz {number}")
    assert page.locator(".case:visible").count() == 0
    assert page.locator("#nothing").is_visible()
    assert page.locator("#count").inner_text() == "0 of 8"
    page.locator("#find").press("Escape")
    assert page.locator(".case:visible").count() == 8
    for which in ("wrong", "right"):
        page.locator("#which").select_option(which)
        expected = [c for c in found.data["cases"] if c["correct"] == (which == "right")]
        assert page.locator(".case:visible").count() == len(expected)
        assert page.locator("#count").inner_text() == f"{len(expected)} of 8"


def test_order_of_test_rows(visit, found):
    page = visit()

    def order():
        return [int(c.get_attribute("data-place")) for c in page.locator(".case").all()]

    cases = found.data["cases"]
    page.locator("#order").select_option("loss")
    assert order() == sorted(range(8), key=lambda i: cases[i]["loss"])
    page.locator("#order").select_option("gain")
    assert order() == sorted(
        range(8), key=lambda i: cases[i]["removal"]["refitted"]["loss"] - cases[i]["loss"]
    )
    page.locator("#order").select_option("place")
    assert order() == list(range(8))


def test_tables_of_noise_and_groups(visit, found):
    page = visit()
    suspects = found.data["noise"]["training_rows"]
    assert shown_rows(page, "#noise-table").count() == len(suspects)
    page.locator("#flagged").check()
    assert shown_rows(page, "#noise-table").count() == sum(r["is_label_issue"] for r in suspects)
    page.locator("#flagged").uncheck()
    number = suspects[0]["row"].split()[-1]
    page.locator('input[data-table="noise-table"]').fill(number)
    assert 1 <= shown_rows(page, "#noise-table").count() < len(suspects)
    page.locator("#groups-table thead button").nth(1).click()
    sizes = [int(x) for x in column(page, "#groups-table", 1)]
    assert sizes == sorted(sizes)


def test_keys(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    summaries = page.locator(".case summary")
    summaries.first.focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.parentElement.dataset.place") == "2"
    assert (
        outline != "none"
        or page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    )
    page.keyboard.press("Space")
    assert page.locator(".case").nth(2).get_attribute("open") is not None
    page.keyboard.press("Enter")
    assert page.locator(".case").nth(2).get_attribute("open") is None
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.parentElement.dataset.place") == "7"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.parentElement.dataset.place") == "7"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.parentElement.dataset.place") == "0"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"


def test_everything_can_be_reached_with_tab(visit):
    page = visit()
    page.frame_locator("#explorer").locator("#rows .choose tbody tr").first.wait_for()
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "document.activeElement.id || document.activeElement.tagName + document.activeElement.className"
        )
        reached.add(at)  # goes on at the body: a frame that is drawn anew gives the focus back
    for name in (
        "theme",
        "print",
        "save",
        "find",
        "which",
        "order",
        "open",
        "close",
        "flagged",
        "explorer",
    ):
        assert name in reached
    assert {"SUMMARY", "BUTTON", "DIVscroll"} <= reached


def background(page):
    return [
        int(x)
        for x in re.findall(
            r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")
        )[:3]
    ]


def test_dark_mode(visit):
    light = visit(color_scheme="light")
    dark = visit(color_scheme="dark")
    assert min(background(light)) > 200
    assert max(background(dark)) < 60
    theme = dark.locator("#theme")
    assert theme.inner_text() == "Theme: auto"
    theme.click()
    assert theme.inner_text() == "Theme: light"
    assert min(background(dark)) > 200
    theme.click()
    assert max(background(dark)) < 60
    light.locator("#theme").click()
    light.locator("#theme").click()
    assert max(background(light)) < 60
    # Chromium writes the choice to its store in its own time, so a page may be loaded before it.
    for _ in range(20):
        light.reload()
        if light.locator("#theme").inner_text() == "Theme: dark":
            break
        light.wait_for_timeout(250)
    assert light.locator("#theme").inner_text() == "Theme: dark"


def brightness(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text(visit, scheme):
    """Contrast is at least 4.5 to 1, as WCAG 2 requires at level AA."""
    page = visit(color_scheme=scheme)

    def colour(name):
        value = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
        )
        return value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:])

    pairs = [
        (text, ground)
        for text in ("ink", "quiet", "up", "down")
        for ground in ("bg", "panel", "soft")
    ]
    for text, ground in [
        *pairs,
        ("up", "up-soft"),
        ("down", "down-soft"),
        ("ink", "up-mid"),
        ("ink", "down-mid"),
    ]:
        high, low = sorted((brightness(colour(text)), brightness(colour(ground))), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_print_shows_everything_expanded(visit):
    page = visit()
    page.emulate_media(media="print")
    assert page.locator(".case .body:visible").count() == 8
    assert not page.locator(".tools").is_visible()
    assert not page.locator("#find").is_visible()
    assert min(background(page)) == 255
    page.set_viewport_size({"width": 1040, "height": 720})  # A4, landscape
    assert page.evaluate("document.documentElement.scrollWidth") <= 1040
    page.emulate_media(media="screen")
    assert page.locator(".case[open]").count() == 1
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".case[open]").count() == 8
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".case[open]").count() == 1


@pytest.mark.parametrize(
    "size", [DESKTOP, PHONE, {"width": 320, "height": 640}], ids=["desktop", "phone", "small phone"]
)
def test_nothing_is_wider_than_the_screen(visit, size):
    page = visit(viewport=size)
    page.get_by_role("button", name="Expand all").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.locator(f"{CASE} >> nth=0").scroll_into_view_if_needed()
    assert page.locator(f"{CASE} >> nth=0").is_visible()


def test_save_data(visit, found):
    page = visit()
    with page.expect_download() as download:
        page.locator("#save").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert json.load(file) == found.data


def test_without_script_the_page_is_whole(browser, address):
    context = browser.new_context(viewport=DESKTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".case").count() == 8
    page.locator(".case summary").nth(1).click()
    assert page.locator(".case .body").nth(1).is_visible()
    assert not page.locator("#find").is_visible()
    assert not page.locator(".chips").first.is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing(browser, address, scheme, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = browser.new_page(color_scheme=scheme, viewport=size)
    page.goto(address)
    page.click("#open")  # all test rows
    found = axe.Axe().run(page).response["violations"]
    page.close()
    assert [(one["id"], len(one["nodes"]), one["nodes"][0]["html"][:200]) for one in found] == []
