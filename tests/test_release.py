"""What is released: extras that have everything the pages import, a recipe and workflows that agree."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools" / "site"))
from blocks import BLOCK  # noqa: E402

with open(ROOT / "pyproject.toml", "rb") as file:
    PROJECT = tomllib.load(file)["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Packages by the names of their modules, where these differ.
PACKAGES = {"sklearn": "scikit-learn"}
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[([^]]*)\])?")


def packages_of(requirements):
    """Return the names of all packages that these requirements bring, with our own extras resolved."""
    found = set()
    for requirement in requirements:
        name, extras = REQUIREMENT.match(requirement).groups()
        if name == "leaftrace":
            found |= packages_of(r for extra in extras.split(",") for r in EXTRAS[extra])
        else:
            found.add(name.lower())
    return found


def test_all_has_what_the_pages_import():
    """`pip install "leaftrace[all]"` is enough for the code of every page."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    used = {
        module
        for page in pages
        for kind, code in BLOCK.findall(page.read_text(encoding="utf-8"))
        if kind == "python"
        for module in IMPORT.findall(code)
    }
    outside = used - set(sys.stdlib_module_names) - {"leaftrace"}
    assert {"polars", "sklearn", "catboost"} <= outside  # or nothing would be compared
    have = packages_of(EXTRAS["all"]) | packages_of(PROJECT["dependencies"])
    assert sorted(PACKAGES.get(m, m) for m in outside if PACKAGES.get(m, m) not in have) == []


def test_conda_recipe_agrees():
    recipe = (ROOT / "tools" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{PROJECT["version"]}"' in recipe
    for requirement in (*PROJECT["dependencies"], f"python {PROJECT['requires-python']}"):
        assert requirement.replace(">=", " >=").replace("  ", " ") in recipe
    lowest = {name: r for extra in EXTRAS.values() for r in extra for name in [r.split(">")[0]]}
    constrained = re.search(r"run_constraints:\n((?: +- .*\n)+)", recipe)[1]
    for line in constrained.splitlines():
        name, bound = line.strip(" -").split()
        assert lowest[name] == f"{name}{bound}"


def test_only_the_release_may_publish():
    """The right to publish is that of one job, on tags, in an environment of its own."""
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    assert workflow.count("id-token: write") == 1
    job = workflow.partition("\n  publish:")[2]
    assert "needs: [wheels, sdist]" in job
    assert "startsWith(github.ref, 'refs/tags/v')" in job
    assert "environment:" in job
    assert "id-token: write" in job
    assert "secrets." not in workflow
