"""README and documentation: code runs, public names are explained, the site builds.

The site is built without a warning and requests nothing from other hosts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import leaftrace as lt

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools" / "site"))
from blocks import BLOCK, with_output  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = (
    "features",
    "gate",
    "labels",
    "fix",
    "values",
    "ranking",
    "shift",
    "tools",
    "deletion",
    "monotone",
    "pictures",
    "serve",
    "sources",
    "wrapped",
)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of pyspark
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_code_runs(page):
    text = page.read_text(encoding="utf-8")
    assert len(with_output(text)) > len(text)  # it has run, and printed something


def test_pages_with_code():
    expected = {
        "README.md",
        "docs/quickstart.md",
        "docs/api/index.md",
        "docs/cli.md",
        "docs/structure.md",
        *(f"docs/howto/{page}.md" for page in HOW_TO),
    }
    assert expected <= set(map(name, WITH_CODE))


def test_output_stands_under_its_block():
    hidden = "<!--\n```python\ny = 3\nprint(y)\n```\n-->"
    page = f"a\n\n```python\nx = 2\n```\n\n{hidden}\n\n```python\nprint(x * y)\n```\nb\n"
    shown = with_output(page)
    assert shown.endswith("```python\nprint(x * y)\n```\n\n```{.text .output}\n6\n```\nb\n")
    assert shown.count("output") == 1


def test_tables_have_all_their_columns():
    pytest.importorskip("pandas")
    names = [f"a_long_name_of_column_{i}" for i in range(8)]
    page = (
        f"```python\nimport pandas as pd\nprint(pd.DataFrame([range(8)], columns={names}))\n```\n"
    )
    output = with_output(page).removeprefix(page)
    assert all(name in output for name in names)


def test_pictures_stand_under_their_block():
    pytest.importorskip("matplotlib")
    draw = (
        "```python\nfrom matplotlib import pyplot\npyplot.subplots()[1].set_title('a < b')\n```\n"
    )
    shown = with_output(f"{draw}\n<!--\n{draw}-->\n\n```python\nx = 1\n```\n")
    assert shown.count('<img alt="a &lt; b" width="614" src="data:image/png;base64,iVBOR') == 1
    assert shown.startswith(draw + "\n<img")
    assert shown.endswith("x = 1\n```\n")


def test_a_broken_block_is_found_with_its_line():
    with pytest.raises(ZeroDivisionError) as error:
        with_output("one\n\n```python\nx = 1\nx / 0\n```\n")
    assert error.traceback[-1].lineno == 5 - 1  # counted from 0


def test_every_public_name_is_in_the_reference():
    pages = "".join(
        page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    )
    explained = set(re.findall(r"^::: leaftrace\.(\w+)$", pages, re.MULTILINE))
    assert explained == set(lt.__all__) - {"__version__"}


@pytest.mark.parametrize("module", ["baselines", "goals", "plot"])
def test_public_modules_leak_nothing(module):
    """All public attributes of a public module are meant to be used: no `lt.goals.np`."""
    module = getattr(lt, module)
    found = {name for name in vars(module) if not name.startswith("_")}
    assert found == set(module.__all__)


def test_docstrings_as_markdown():
    pytest.importorskip("griffe")
    from docstrings import as_markdown

    given = 'Does.\n\n>>> f(1)   # doctest: +SKIP\n2\n``x``  a row\n      of X\n    "all"  each\n\n``y`` is prose.'
    assert as_markdown(given) == (
        'Does.\n\n\n```python\nf(1)\n```\n\n2\n\n- `x`: a row\n    of X\n    - `"all"`: each\n\n\n``y`` is prose.'
    )


def test_every_command_is_on_the_page():
    pytest.importorskip("typer")
    from leaftrace._views.cli.commands import app

    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"^\$ leaftrace (\w+) --help$", page, re.MULTILINE)) == commands


def test_commands_are_run():
    page = "```console\n$ pip install x\n$ leaftrace \\\n    --version\n```\n"
    assert with_output(page) == page.replace(
        "--version\n", f"--version\nleaftrace {lt.__version__}\n"
    )
    with pytest.raises(RuntimeError, match=r"line 3.*\n.*exit code 2"):
        with_output("\n\n```console\n$ leaftrace explain nothing.cbm\n```\n")


# A browser requests these by itself; a link needs a click.
REQUEST = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)[^>]*\ssrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link[^>]*rel=["']?(?:stylesheet|preload|preconnect|icon|dns-prefetch)[^>]*href=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|@import\s+[^;]*//[^;]+|url\(["']?(?:https?:)?//[^)]+"""
)


@pytest.mark.parametrize(
    "asks",
    [
        '<script src="https://a.b/c.js">',
        "<link rel=stylesheet href=//a.b/c.css>",
        "url(https://a.b/c.woff)",
    ],
)
def test_requests_are_recognised(asks):
    assert REQUEST.search(asks)
    assert not REQUEST.search(
        '<a href="https://a.b/">x</a> <script src="assets/c.js"> url(data:image/svg+xml,x)'
    )


def test_site(tmp_path):
    pytest.importorskip("mkdocs", reason="the documentation needs the group `docs`")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    env = {**os.environ, "LEAFTRACE_DOCS_CODE": "0"}  # the code is tested above
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 10
    for file in [*pages, *tmp_path.rglob("*.css")]:
        assert not REQUEST.findall(file.read_text(encoding="utf-8")), file.name
    maths = (tmp_path / "mathematics.html").read_text(encoding="utf-8")
    assert maths.count("<math") > 50
    assert "arithmatex" not in maths
    reference = list((tmp_path / "api").glob("*.html"))
    assert len(reference) > 5
    for file in reference:
        text = file.read_text(encoding="utf-8")
        assert "&gt;&gt;&gt;" not in text
        assert "doctest" not in text
    # Types of arguments and of what a function returns are shown.
    text = re.sub(
        r"<[^>]+>|\s", "", (tmp_path / "api" / "actions.html").read_text(encoding="utf-8")
    )
    assert "removal_impact(tracer:Tracer,rows:Any," in text
    assert ")-&gt;RemovalImpact" in text
