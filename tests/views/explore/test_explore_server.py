"""The explorer's server: only its own page gets answers, and it starts and ends in good order."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import lightgbm
import numpy as np
import pytest
from cli_world import DATA, TEST
from explore_world import Client, homes, removal

import leaftrace as lt
from leaftrace._views.cli import main
from leaftrace._views.explore.session import Session

STATIC = Path(lt.__file__).parent / "_views" / "explore" / "static"

# ---- who can read it ----


def test_every_address_needs_the_token(people):
    client = people.client
    assert client.request("GET", "")[0] == 200
    wrong = client.path[:-2] + ("a" if client.path[-2] != "a" else "b") + "/"
    for path in (
        "/",
        "/favicon.ico",
        wrong,
        wrong + "static/main.js",
        client.path[:-1],
        "//",
        "/%C3%A9/",
    ):
        assert client.request("GET", path)[0] == 404, path
    assert client.request("POST", wrong + "api/facts", {})[0] == 404
    assert len(client.path) > 30


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),  # another port
        ({"Host": "127.0.0.1:80.evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://{host}"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "http://{host}", "Sec_Fetch_Site": "same-origin"}, 200),
    ],
)
def test_host_and_origin(people, method, headers, status):
    given = {name: value.format(host=people.client.host) for name, value in headers.items()}
    path, body = ("", None) if method == "GET" else ("api/facts", {})
    assert people.client.request(method, path, body, **given)[0] == status


def test_a_link_may_open_the_page_but_nothing_else(people):
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert people.client.request("GET", "", **link)[0] == 200
    assert people.client.request("GET", "static/main.js", **link)[0] == 403
    assert people.client.request("POST", "api/facts", {}, **link)[0] == 403


def test_requests_are_small_json_objects(people):
    client = people.client
    assert client.request("POST", "api/facts", "{}", Content_Type="text/plain")[0] == 415
    assert client.request("POST", "api/facts", "{}")[0] == 415
    assert client.request("POST", "api/facts", [1])[0] == 400
    assert client.request("POST", "api/facts", "{", Content_Type="application/json")[0] == 400
    assert client.request("POST", "api/nothing", {})[0] == 404
    assert client.request("POST", "api/_basket", {})[0] == 404
    assert client.request("GET", "api/facts")[0] == 405
    length = {"Content_Length": "4000001", "Content_Type": "application/json"}
    assert client.request("POST", "api/facts", "{}", **length)[0] == 413


def test_headers_forbid_what_the_page_does_not_need(people):
    answers = [
        people.client.request("GET", path) for path in ("", "static/main.js", "/", "static/no.js")
    ]
    answers.append(people.client.request("POST", "api/facts", {}))
    for _, headers, _ in answers:
        policy = headers["content-security-policy"]
        assert (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
        )
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_only_the_files_of_the_page_are_given(people):
    for name in ("..%2fserver.py", "%2e%2e/server.py", "..\\server.py", "/etc/passwd", "report.js"):
        assert people.client.request("GET", f"static/{name}")[0] in (404, 403, 405), name
    assert people.client.request("GET", "static/report.css")[0] == 200


def test_the_page_has_no_inline_script_and_writes_no_markup():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="static/main.js">']
    assert not re.search(r"\son\w+=|<style|style=|https?:", page)
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc"
    for path in STATIC.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        if path.name == "widget.js":  # its frame shows our own page, and has no origin
            assert 'const FRAME = "allow-scripts allow-downloads";' in text
            text = text.replace('frame.srcdoc = model.get("page");', "")
        assert not re.search(forbidden, text), path.name
        assert re.findall(r"https?://[^\"]*", text) in ([], ["http://www.w3.org/2000/svg"])


def test_the_socket_listens_on_loopback_only(people):
    assert people.explorer.address.startswith("http://127.0.0.1:")
    assert repr(people.explorer) == f"Explorer({people.explorer.address})"
    assert people.explorer.address in people.explorer._repr_html_()


# ---- starting it ----


def test_a_port_that_is_taken_is_an_error(people):
    taken = int(people.client.host.rpartition(":")[2])
    with pytest.raises(lt.InvalidInput, match=f"port {taken} cannot be used"):
        lt.explore(people.tracer, people.X_test, people.y_test, port=taken, open_browser=False)


def test_labels_are_needed(people):
    with pytest.raises(lt.InvalidInput, match="with their labels"):
        Session(people.tracer, people.X_test, None)
    with pytest.raises(lt.InvalidInput, match=r"leaftrace\.Tracer"):
        lt.explore(people.model, people.X_test, people.y_test)


def test_the_address_is_printed_and_closing_ends_it(people, capsys):
    with lt.explore(people.tracer, people.X_test, people.y_test, open_browser=False) as explorer:
        assert capsys.readouterr().out == f"{explorer.address}\n"
        client = Client(explorer.address)
        assert client.ask("facts")["test_rows"] == len(people.y_test)
    with pytest.raises(ConnectionError):
        client.ask("facts")


def test_the_browser_is_opened_by_a_private_file(people, monkeypatch):
    """Other users of the machine see arguments of processes, so the address is not one of them."""
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with lt.explore(people.tracer, people.X_test, people.y_test) as explorer:
        assert explorer.address not in opened[0]
        assert explorer.address.split("/")[3] not in opened[0]
        link = Path(url2pathname(urlsplit(opened[0]).path))
        assert f"url={explorer.address}" in link.read_text(encoding="utf-8")
        if sys.platform != "win32":
            assert link.stat().st_mode & 0o077 == 0
    assert not link.exists()


def test_models_without_derivatives_can_be_explored():
    _, X, y, X_test, y_test = homes(320)
    model = lightgbm.LGBMRegressor(
        objective="l1", n_estimators=4, num_leaves=4, verbose=-1, n_jobs=1
    ).fit(X, y)
    tracer = lt.Tracer(model, X, y, n_jobs=1)
    with lt.explore(tracer, X_test, y_test, open_browser=False) as explorer:
        client = Client(explorer.address)
        assert "derivative" in client.ask("row", position=1)["missing"]
        assert "missing" in client.ask("basket", basket=removal(1), position=1)["effect"]
        said = client.ask("refit", basket=removal(1), position=1)
        after = np.abs(y_test - tracer.refit([1]).predict(X_test))
        assert said["all"]["after"] == pytest.approx(after.mean())


# ---- the command ----


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for other processes")
def test_the_first_line_of_the_command_is_the_address(here):
    command = [sys.executable, "-m", "leaftrace", "explore", "lgb.txt", *DATA, *TEST, "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=here, **pipes) as process:
        try:
            address = process.stdout.readline().strip()
            facts = Client(address).ask("facts")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert facts["classes"] == ["no", "yes"]
    assert "the page is closed" in errors
    assert process.returncode == 130


def test_the_command_refuses_what_it_cannot_do(here, capsys):
    command = ("explore", "lgb.txt", *DATA, *TEST, "--no-open")
    assert main([*command, "--json"]) == 2
    assert "has no --json" in capsys.readouterr().err
    assert main([*command, "--port", "70000"]) == 2
    assert "65535" in capsys.readouterr().err
