"""Pages and settings of the repository agree with its files: the map of the code, cited files, versions."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src" / "leaftrace", ROOT / "src" / "native")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = ("benchmarks", "examples", "experiments", "src", "tests", "tools")

HEADING = re.compile(r"^#{2,} ", re.MULTILINE)
FOLDER = re.compile(r"`(src/\S*)`")
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
# A file of ours in running text. `cases_<library>.py` is a pattern, not a file.
CITED = re.compile(r"(?<![\w/.<>*{}-])((?:[\w.-]+/)*\w+\.(?:py|hpp|cpp))\b(?![\w-])")


def listed():
    """Files that the map names: rows of a table, under the folder in the heading above it."""
    for section in HEADING.split(GUIDE):
        title, _, body = section.partition("\n")
        folder = FOLDER.match(title)
        if folder:
            yield from (ROOT / folder[1] / name for name in ROW.findall(body))


def has_code(path):
    """Whether a file defines something; an `__init__.py` that only imports need not be on the map."""
    if path.name != "__init__.py":
        return True
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)


def files(folder, *endings):
    return sorted(path for path in folder.rglob("*") if path.suffix in endings)


def shown(paths):
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test_every_module_is_on_the_map():
    code = {p for folder in SOURCES for p in files(folder, ".py", ".hpp", ".cpp") if has_code(p)}
    assert shown(code - set(listed())) == []


def test_the_map_names_only_files_that_exist():
    assert shown(path for path in listed() if not path.is_file()) == []


def test_the_map_names_a_file_once():
    found = list(listed())
    assert shown(path for path in set(found) if found.count(path) > 1) == []


PAGES = [*sorted(ROOT.glob("*.md")), *files(ROOT / "docs", ".md")]
TEXTS = [*PAGES, *files(ROOT / "src", ".py", ".hpp", ".cpp")]
# By every ending of its path: `steps.py`, `_engine/steps.py`, ...
ENDINGS = {
    "/".join(path.relative_to(ROOT).parts[-k:])
    for folder in CODE
    for path in files(ROOT / folder, ".py", ".hpp", ".cpp")
    for k in range(1, len(path.relative_to(ROOT).parts) + 1)
}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_cited_files_exist(page):
    cited = set(CITED.findall(page.read_text(encoding="utf-8")))
    assert sorted(cited - ENDINGS) == []


LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Those of docs/ are checked by mkdocs."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_versions_agree():
    with open(ROOT / "pyproject.toml", "rb") as file:
        version = tomllib.load(file)["project"]["version"]
    module = (ROOT / "src" / "leaftrace" / "__init__.py").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in module
    assert f"\nversion: {version}\n" in citation
    assert f"\n## {version} (" in changes


def test_the_hook_runs_the_pinned_ruff():
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pinned = re.search(r"^ruff==(\S+)$", constraints, re.MULTILINE)
    assert f"/ruff-pre-commit\n    rev: v{pinned[1]}\n" in hooks


def test_actions_are_pinned_by_commit():
    """A tag can be moved to other code, a commit cannot."""
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        used = re.findall(r"uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert used
        assert [u for u in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", u)] == []


def test_supported_pythons_are_tested():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: Python :: 3." in c]
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert f"python: {json.dumps(named)}\n" in workflow
    assert project["requires-python"] == f">={named[0]}"
