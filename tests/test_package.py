"""The package as a user meets it: names, imports, one direction of flow."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import leaftrace as lt

SOURCE = Path(lt.__file__).parent
NAMES = {
    "Acquisition", "AllPoints", "Clean", "EnsembleInfluence", "Estimate", "FastLeafInfluence", "FastLeafRefit",
    "Fidelity", "FidelityError", "FidelityWarning", "Fix", "GroupEffects", "Influence", "InvalidInput",
    "LabelNoise", "LeafInfluence", "LeafRefit", "LeaftraceError", "Mismatch", "RefittedModel", "RemovalCurve",
    "RemovalImpact", "Report", "Retrain", "RetrainedModel", "SinglePoint", "TopKLeaves", "Tracer", "UnsupportedModel",
    "__version__", "acquire", "baselines", "clean", "ensemble_influence", "fix", "goals", "group_effects",
    "label_noise", "mismatch", "plot", "record_catboost", "removal_curve", "removal_impact", "report",
}  # fmt: skip

# model -> Ensemble -> Trace -> method -> Influence -> view: a module imports only from those before it.
ORDER = [
    "_arrays", "_errors", "_files", "_progress", "_leafcache", "_parted", "_losses", "_losses_general", "_base",
    "_frames", "_tables", "_inputs", "_goal", "goals", "_twins", "_kernels", "_ensemble", "_adapters", "_fidelity",
    "_steps", "_replay", "_effects", "_workspace", "_queries", "_methods", "_adjoint", "_leafspace", "_costs",
    "_forward", "_removals", "_altered", "_grouping", "_influence", "_neighbours", "_engine", "_tracer", "dask",
    "baselines", "_actions", "_report", "plot", "_cli",
]  # fmt: skip


def test_exported_names():
    assert set(lt.__all__) == NAMES
    assert all(hasattr(lt, name) for name in NAMES)


def test_errors_have_one_root():
    for error in (lt.UnsupportedModel, lt.FidelityError, lt.InvalidInput):
        assert issubclass(error, lt.LeaftraceError)
    assert issubclass(lt.InvalidInput, ValueError)


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > (path.parent != SOURCE):  # a package's own parts aside
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (name.partition(".")[0] for name in names)


@pytest.mark.parametrize("module", ORDER)
def test_imports_point_one_way(module):
    path = SOURCE / f"{module}.py"
    files = [path] if path.exists() else sorted((SOURCE / module).glob("*.py"))
    allowed = set(ORDER[: ORDER.index(module)]) | {"_native", "__version__", module}
    for file in files:
        assert set(imports_of(file)) <= allowed, file.name


def test_every_module_has_its_place():
    files = {p.stem for p in SOURCE.glob("*.py")} | {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    assert files - {"__init__", "__main__"} == set(ORDER)


def test_only_the_adapter_knows_a_booster():
    boosters = {"catboost", "xgboost", "lightgbm", "sklearn"}
    for file in SOURCE.glob("*.py"):
        assert not boosters & {name.partition(".")[0] for name in libraries_of(file)}, file.name


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
    """Besides NumPy's: our own files and a few of the standard library's. It keeps the import as short as NumPy's."""
    code = "import sys, numpy; before = set(sys.modules); import leaftrace; print(len(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 100


def test_without_the_native_module(tmp_path):
    """As installed with LEAFTRACE_PURE=1."""
    shutil.copytree(SOURCE, tmp_path / "leaftrace", ignore=shutil.ignore_patterns("_native*", "__pycache__"))
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]}; import leaftrace; "
        "from leaftrace._kernels import is_native; print(is_native(), leaftrace.__file__)"
    )
    out = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", str(tmp_path / "leaftrace" / "__init__.py")]


def test_twins_by_environment():
    code = "from leaftrace._kernels import is_native; print(is_native())"
    env = {"LEAFTRACE_KERNELS": "numpy", "PATH": ""}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert out.stdout.strip() == "False"
    bad = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**env, "LEAFTRACE_KERNELS": "cuda"}
    )
    assert "it can be 'native' (the default) or 'numpy'" in bad.stderr


def test_dask_is_found_when_asked_for():
    code = (
        "import sys; sys.modules['distributed'] = None\nimport leaftrace as lt\n"
        "from leaftrace import *\n"
        "try:\n    lt.dask\nexcept ImportError as error:\n    print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "leaftrace.dask needs distributed; do: pip install 'leaftrace[dask]'\n"
