"""The package: exported names, what an import loads, and the order of its modules."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import leaftrace as lt

SOURCE = Path(lt.__file__).parent
NAMES = {
    "Acquisition", "AllPoints", "Clean", "EnsembleInfluence", "Estimate", "Explorer", "FastLeafInfluence",
    "FastLeafRefit", "Fidelity", "FidelityError", "FidelityWarning", "Fix", "Gate", "GroupEffects", "IndexWarning",
    "Influence", "InvalidInput", "LabelNoise", "LeafInfluence", "LeafRefit", "LeaftraceError", "MembersTracer",
    "Mismatch", "NoiseFloor", "RefittedModel", "RemovalCurve", "DataValues", "data_values", "InfluentialSet",
    "influential_set", "RemovalImpact", "Report", "Retrain", "RetrainedModel", "SinglePoint", "SourceValues",
    "source_values", "StructureInfluence",
    "TopKLeaves", "Tracer", "UnsupportedModel",
    "__version__", "acquire", "baselines", "clean", "ensemble_influence", "estimate", "explore", "fix", "gate", "goals",
    "group_effects", "label_noise", "mismatch", "plot", "record_catboost", "removal_curve", "removal_impact",
    "report",
}  # fmt: skip

# model -> Ensemble -> Trace -> method -> Influence -> view: a module imports only from those of its own entry and of
# the entries before it. The NumPy twins of the kernels compute with the losses, so these come first.
ORDER = [
    "_data", "_model.losses", "_model.general_losses", "_model.kernels", "_model", "goals", "_adapters",
    "_engine.node_slopes", "_engine.pooled_leaves", "_engine.leaf_equations", "_engine.unknown_limits",
    "_engine.chain_sums", "_engine.steps",
    "_engine.linear_steps",
    "_engine.diagnosis", "_engine.fidelity",
    "_engine.rounding_noise", "_engine.replay", "_engine.linear_replay", "_engine.refit", "_engine.jumps",
    "_engine.placed_rows", "_engine.row_effects", "_engine.step_derivatives",
    "_engine.free_memory", "_engine.settings", "_engine.retrainings", "_engine.workspace", "_engine.less_memory",
    "_engine.queries", "_engine.leaf_queries", "_engine.subset_training",
    "_engine.methods", "_engine.whole_refits", "_engine.scored_pass", "_engine.backward", "_engine.coupled_matrices",
    "_engine.coupled_passes", "_engine.linear_passes",
    "_engine.split_bins", "_engine.kept_choices", "_engine.soft_splits", "_engine.leaf_space",
    "_engine.costs", "_engine.large_changes",
    "_engine.forward_block", "_engine.forward", "_engine.removals", "_engine.refit_point", "_engine.engine",
    "_engine.many_refits", "_engine.refits_elsewhere",
    "_engine.candidates", "_engine.label_slopes", "_tracer", "_tracer.cluster", "dask", "spark", "baselines",
    "_actions", "integrations.cleanlab", "_views.column_use", "_views.report", "plot", "_views", "integrations",
    "_views.cli",
]  # fmt: skip
MODULES = {
    ".".join(p.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): p
    for p in SOURCE.rglob("*.py")
}
INSIDE = sorted(
    set(MODULES) - {"__init__", "__main__", "_engine"}
)  # _engine/__init__.py has a docstring only


def test_exported_names():
    assert set(lt.__all__) == NAMES
    assert all(hasattr(lt, name) for name in NAMES)


def test_errors_have_one_root():
    for error in (lt.UnsupportedModel, lt.FidelityError, lt.InvalidInput):
        assert issubclass(error, lt.LeaftraceError)
    assert issubclass(lt.InvalidInput, ValueError)


def place(module):
    """Return the position of a module in ORDER: that of the longest entry it belongs to."""
    entries = [e for e in ORDER if module == e or module.startswith(f"{e}.")]
    return ORDER.index(max(entries, key=len)) if entries else None


def imports_of(module):
    """Yield our own modules that a module imports, without `leaftrace.` in front."""
    path = MODULES[module]
    package = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            base = ".".join(part for part in base if part)
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                yield inner if inner in MODULES or not base else base


@pytest.mark.parametrize("module", INSIDE)
def test_imports_point_one_way(module):
    for imported in set(imports_of(module)) - {"__version__", "_engine"}:
        assert place(imported) is not None, imported
        assert place(imported) <= place(module), imported


def test_every_module_has_its_place():
    assert [m for m in INSIDE if place(m) is None] == []
    assert [e for e in ORDER if not any(m == e or m.startswith(f"{e}.") for m in MODULES)] == []


def test_only_adapters_know_a_booster():
    """Only adapters import a booster, except for the demonstration, which trains a model."""
    boosters = {"catboost", "xgboost", "lightgbm", "sklearn"}
    for module in set(INSIDE) - {"_views.cli.demo"}:
        if not module.startswith("_adapters"):
            assert not boosters & {
                name.partition(".")[0] for name in libraries_of(MODULES[module])
            }, module


def libraries_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def test_import_brings_in_nothing_but_numpy():
    code = (
        "import sys, leaftrace; heavy = {'catboost', 'pandas', 'sklearn', 'scipy', 'matplotlib', 'tqdm', 'xgboost', "
        "'lightgbm', 'pyarrow', 'narwhals'} & set(sys.modules); print(sorted(heavy))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_import_loads_few_modules():
    """Importing leaftrace loads few modules besides NumPy's, so it takes hardly longer than NumPy."""
    code = "import sys, numpy; before = set(sys.modules); import leaftrace; print(len(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 110


def test_without_the_native_module(tmp_path):
    """The package works without the native module, as installed with LEAFTRACE_PURE=1."""
    shutil.copytree(
        SOURCE, tmp_path / "leaftrace", ignore=shutil.ignore_patterns("_native*", "__pycache__")
    )
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]}; import leaftrace; "
        "from leaftrace._model.kernels import is_native; print(is_native(), leaftrace.__file__)"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["False", str(tmp_path / "leaftrace" / "__init__.py")]


def test_twins_by_environment():
    code = "from leaftrace._model.kernels import is_native; print(is_native())"
    env = {**os.environ, "LEAFTRACE_KERNELS": "numpy"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert out.stdout.strip() == "False"
    bad = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**env, "LEAFTRACE_KERNELS": "cuda"},
    )
    assert "it can be 'native' (the default) or 'numpy'" in bad.stderr


def test_dask_is_found_when_asked_for():
    code = (
        "import sys; sys.modules['distributed'] = None\nimport leaftrace as lt\n"
        "from leaftrace import *\n"
        "try:\n    lt.dask\nexcept ImportError as error:\n    print(error)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "leaftrace.dask needs distributed; do: pip install 'leaftrace[dask]'\n"


# First words of a docstring that is a fragment, not a sentence about what the thing gives or does.
FRAGMENTS = {"Of", "With", "As", "By", "So", "What", "Where"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_docstrings_say_what_a_thing_gives(module):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        doc = ast.get_docstring(node) if isinstance(node, kinds) else None
        if doc:
            assert doc.split()[0].strip(":,") not in FRAGMENTS, doc.splitlines()[0]


def test_files_are_short():
    lengths = {m: len(p.read_text(encoding="utf-8").splitlines()) for m, p in MODULES.items()}
    assert {m: n for m, n in lengths.items() if n > 400} == {}
