# make demo   set everything up and show what leaftrace does
# make test   set everything up and run the tests
# make fuzz MINUTES=60  random models and damaged files against the oracle, with fresh seeds (two processes)
# make docs   build the documentation into site/; all its code is run
# make dist   build the source distribution and, from it, a wheel; try the wheel in an empty environment
# make test-oldest  the same with the oldest supported versions of the boosters
# make test-integrations  the tests in tests/integrations against the real packages, in an environment of their own
# make test-opendataval  the converter to OpenDataVal against the real package, in an environment of its own
# make test-spark35  the tests of Spark on Spark 3.5, in an environment of its own (needs Java 17)
# make asan   build the kernels with AddressSanitizer and UBSan and run the tests of the kernels (needs GCC)
# make support  train and trace a model for every option of every library and write docs/support.md
# make compare  measure beside SHAP, cleanlab, pyDVL, CatBoost and others, and write docs/comparison.md (two minutes)
# make bench  measure against the peers and write docs/benchmarks.md (about ten minutes, needs the Adult data)
# make paper  reproduce the paper at small sizes (about a quarter of an hour, needs the data of LEAFTRACE_DATA)
# make paper-full  at its own sizes, and write docs/paper.md (hours; goes on where it stopped)
# make actions  measure the actions on real data and write docs/actions.md (40 minutes, needs the data of LEAFTRACE_DATA)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

OLDEST := .venv-oldest
INTEGRATIONS := .venv-integrations
OPENDATAVAL := .venv-opendataval
SPARK35 := .venv-spark35
COMPARE := .venv-compare
FRESH := build/fresh
ASAN := build/asan

MINUTES ?= 60
PROCESSES ?= 2

.PHONY: demo test fuzz docs dist test-oldest test-integrations test-opendataval test-spark35 asan support compare bench actions paper paper-full lint types check clean
.DEFAULT_GOAL := test

# The environment is made anew when what it is made of changes; Python files are used in place. The demo needs few
# packages, so it does not wait for the others. They are installed while the kernels are compiled, and Python compiles
# only those of their files that it imports (--no-compile).
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

$(VENV)/demo: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/native/*)
	@$(PYTHON) -c "import sys; sys.exit('leaftrace needs Python 3.11 or newer; this is ' + sys.version.split()[0] + '. Try: make PYTHON=python3.12') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip scikit-build-core nanobind cmake ninja
	$(MAKE) --no-print-directory --jobs=2 $(VENV)/packages $(VENV)/kernels
	@touch $@

.PHONY: $(VENV)/packages $(VENV)/kernels
$(VENV)/packages:
	$(INSTALL) --group demo
$(VENV)/kernels:
	PATH="$(CURDIR)/$(BIN):$$PATH" $(INSTALL) --no-build-isolation --no-deps --editable .

$(VENV)/ready: $(VENV)/demo
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --group docs
	@touch $@

demo: $(VENV)/demo
	$(BIN)/python examples/demo.py

test: $(VENV)/ready
	$(BIN)/python -m pytest -n auto

fuzz: $(VENV)/ready
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --processes $(PROCESSES)

docs: $(VENV)/ready
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: $(CURDIR)/site/index.html"

dist: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group release
	rm -rf dist $(FRESH)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m build --no-isolation --outdir dist .
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip install --quiet --constraint constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[lightgbm,sklearn,polars,plot,report,cli]"
	cd $(FRESH) && bin/python $(CURDIR)/tools/smoke.py
	cd $(FRESH) && bin/python $(CURDIR)/tools/try_page.py $(CURDIR)/docs/quickstart.md
	@ls -l dist

# constraints.txt, but for what constraints-oldest.txt pins
$(OLDEST)/ready: pyproject.toml constraints.txt constraints-oldest.txt CMakeLists.txt $(wildcard src/native/*)
	$(PYTHON) -m venv $(OLDEST)
	awk -F== 'FNR == NR { old[tolower($$1)]; next } !(tolower($$1) in old)' constraints-oldest.txt constraints.txt \
		| cat - constraints-oldest.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt scikit-build-core nanobind cmake ninja
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --group dev
	PATH="$(CURDIR)/$(OLDEST)/bin:$$PATH" $(OLDEST)/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

test-oldest: $(OLDEST)/ready
	$(OLDEST)/bin/python -m pytest -n auto -W ignore::DeprecationWarning -W ignore::FutureWarning  # old versions among themselves

# Packages that leaftrace works with, in an environment of their own: some need other versions than constraints.txt, which
# constraints-integrations.txt pins. The kernels are not compiled for it: the NumPy twins give the same answers.
$(INTEGRATIONS)/ready: pyproject.toml constraints.txt constraints-integrations.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	awk -F== 'FNR == NR { own[tolower($$1)]; next } !(tolower($$1) in own)' constraints-integrations.txt constraints.txt \
		| cat - constraints-integrations.txt > $(INTEGRATIONS)/constraints.txt
	$(INTEGRATIONS)/bin/python -m pip install --quiet --constraint $(INTEGRATIONS)/constraints.txt --upgrade pip
	$(INTEGRATIONS)/bin/python -m pip install --quiet --constraint $(INTEGRATIONS)/constraints.txt scikit-build-core nanobind
	$(INTEGRATIONS)/bin/python -m pip install --quiet --constraint $(INTEGRATIONS)/constraints.txt --group integrations
	# pyDVL asks for NumPy 1, which the other packages here are beyond; its results work with NumPy 2.
	$(INTEGRATIONS)/bin/python -m pip install --quiet --no-deps --constraint $(INTEGRATIONS)/constraints.txt pyDVL
	LEAFTRACE_PURE=1 $(INTEGRATIONS)/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

test-integrations: $(INTEGRATIONS)/ready
	$(INTEGRATIONS)/bin/python -m pytest -n auto tests/integrations \
		-W ignore::DeprecationWarning -W ignore::FutureWarning -W ignore::PendingDeprecationWarning  # among themselves

# OpenDataVal needs NumPy 1.25, pandas 1.5 and torch 2.1, so it has an environment of its own.
test-opendataval:
	$(PYTHON) -m venv $(OPENDATAVAL)
	$(OPENDATAVAL)/bin/python -m pip install --quiet opendataval==1.3.0 "transformers<4.40" pytest lightgbm scikit-build-core
	LEAFTRACE_PURE=1 $(OPENDATAVAL)/bin/python -m pip install --quiet --no-build-isolation --no-deps .
	$(OPENDATAVAL)/bin/python -m pytest --noconftest -c /dev/null --rootdir . tests/integrations/test_valuation.py -k opendataval

# constraints.txt has Spark 4; 3.5 is the oldest that is supported. The NumPy twins stand in for the kernels.
$(SPARK35)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(SPARK35)
	$(SPARK35)/bin/python -m pip install --quiet --constraint constraints.txt pandas pyarrow pytest lightgbm xgboost catboost scikit-learn
	$(SPARK35)/bin/python -m pip install --quiet "pyspark==3.5.*"
	@touch $@

test-spark35: $(SPARK35)/ready
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/tests/support LEAFTRACE_KERNELS=numpy $(SPARK35)/bin/python -m pytest \
		--noconftest -c /dev/null --rootdir . tests/engine/test_spark.py tests/engine/test_spark_lost.py

# The sanitizer is loaded before Python, and with it the C++ library whose exceptions it watches. Leaks are not looked
# for: Python itself keeps memory until its end.
asan: $(VENV)/ready
	$(BIN)/cmake -S . -B $(ASAN) -G Ninja -DLEAFTRACE_SANITIZE=ON -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
		-DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)"
	$(BIN)/cmake --build $(ASAN)
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 LEAFTRACE_SANITIZED=$(ASAN) PYTHONPATH=tools \
		$(BIN)/python -m pytest -n auto -p sanitized_kernels tests/engine/test_hostile_kernels.py \
		tests/engine/test_kernels.py tests/engine/test_general_kernels.py tests/engine/test_removals.py \
		tests/engine/test_structure.py tests/engine/test_structure_candidates.py tests/engine/test_choice_kernel.py \
		tests/adapters/test_contract.py

support: $(VENV)/ready $(INTEGRATIONS)/ready
	$(BIN)/python tools/support.py
	$(INTEGRATIONS)/bin/python tools/support_wrappers.py

# pyDVL needs NumPy 1, which no other target does.
$(COMPARE)/ready: pyproject.toml CMakeLists.txt $(wildcard src/native/*)
	$(PYTHON) -m venv $(COMPARE)
	$(COMPARE)/bin/python -m pip install --quiet --upgrade pip
	$(COMPARE)/bin/python -m pip install --quiet --only-binary :all: --group compare
	$(COMPARE)/bin/python -m pip install --quiet --no-deps .
	@touch $@

compare: $(COMPARE)/ready
	$(COMPARE)/bin/python benchmarks/compare.py

bench: $(VENV)/ready
	$(BIN)/python benchmarks/run.py

actions: $(VENV)/ready
	$(BIN)/python experiments/actions.py

paper: $(VENV)/ready
	$(BIN)/python experiments/paper.py --quick

paper-full: $(VENV)/ready
	$(BIN)/python experiments/paper.py --full

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/basedpyright --pythonpath $(BIN)/python

check: lint types test

clean:
	rm -rf $(VENV) $(OLDEST) $(INTEGRATIONS) $(OPENDATAVAL) $(SPARK35) $(COMPARE) build dist site
