"""The explorer as a widget of a notebook: the same page and answers, through messages instead of a server."""

import re

import pytest
from chromium import DESKTOP, chromium
from explore_world import removal

pytest.importorskip("anywidget", reason="the widget needs the extra `notebook`")


@pytest.fixture
def widget(people):
    made = people.explorer.widget(height=700)
    yield made
    made.close()


def asked(widget, monkeypatch, name, question):
    """The answer of the kernel to a message."""
    sent = []
    monkeypatch.setattr(widget, "send", sent.append)
    widget._on_question(widget, {"id": 7, "name": name, "asked": question}, [])
    [message] = sent
    assert message["id"] == 7
    return message["status"], message["answer"]


def test_answers_are_those_of_the_server(widget, people, monkeypatch):
    question = {"basket": removal(3, 8), "position": 4}
    assert asked(widget, monkeypatch, "refit", question) == (200, people.ask("refit", **question))
    status, answer = asked(widget, monkeypatch, "row", {"position": -1})
    assert status == 422
    assert "error" in answer
    assert asked(widget, monkeypatch, "close", {})[0] == 404
    assert asked(widget, monkeypatch, "row", None)[0] == 404


def test_the_page_requests_nothing(widget):
    assert widget.height == 700
    assert "default-src 'none'" in widget.page
    assert not re.search(r'(?:src|href)="(?!data:|#)', widget.page.partition("application/json")[0])


# A notebook, as far as a widget sees it: a model that passes messages on.
HOST = """<!doctype html><div id="cell"></div><script type="module">
const source = %s;
const { default: widget } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
const heard = [];
const traits = await kernelTraits();
const model = {
  get: (name) => traits[name],
  on: (_, listener) => heard.push(listener),
  off: () => {},
  send: async (message) => { const answer = await kernel(message); for (const one of heard) one(answer); },
};
widget.render({ model, el: document.getElementById("cell") });
</script>"""


def test_rows_are_taken_out_in_a_notebook(widget, people, monkeypatch):
    import json

    def kernel(message):
        sent = []
        monkeypatch.setattr(widget, "send", sent.append)
        widget._on_question(widget, message, [])
        return sent[0]

    heard = []
    with chromium() as browser:
        page = browser.new_page(viewport=DESKTOP)
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda r: heard.append(r.url) if r.url.startswith("http") else None)
        page.expose_function("kernel", kernel)
        page.expose_function("kernelTraits", lambda: {"page": widget.page, "height": 700})
        page.set_content(HOST % json.dumps(widget._esm).replace("<", "\\u003c"))
        frame = page.frame_locator("iframe")
        frame.locator("#rows .choose tbody tr").first.wait_for()
        frame.locator(".panel-behind input[type=checkbox]").first.check()
        frame.locator(".level b", has_text="refitted").wait_for()
        said = frame.locator("#basket").inner_text()
    worst = int(people.loss(people.model).argmax())
    first = people.ask("row", position=worst)["training_rows"][0]
    effect = people.ask("refit", basket=removal(first["position"]), position=worst)
    assert f"{effect['row']['after']['loss']:.3f}" in said
    assert heard == []
