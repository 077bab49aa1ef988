# make demo   set everything up and show what leaftrace does
# make test   set everything up and run the tests
# make fuzz MINUTES=60  random models and damaged files against the oracle, with fresh seeds (two processes)
# make docs   build the documentation into site/; all its code is run
# make dist   build the source distribution and, from it, a wheel; try the wheel in an empty environment
# make test-oldest  the same with the oldest supported versions of the boosters
# make asan   build the kernels with AddressSanitizer and UBSan and run the tests of the kernels (needs GCC)
# make support  train and trace a model for every option of every library and write docs/support.md
# make bench  measure against the peers and write docs/benchmarks.md (about ten minutes, needs the Adult data)
# make paper  reproduce the paper at small sizes (about ten minutes, needs the data of LEAFTRACE_DATA)
# make paper-full  at its own sizes, and write docs/paper.md (hours; goes on where it stopped)
# make actions  measure the actions on real data and write docs/actions.md (half an hour, needs the data of LEAFTRACE_DATA)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

OLDEST := .venv-oldest
FRESH := build/fresh
ASAN := build/asan

MINUTES ?= 60
PROCESSES ?= 2

.PHONY: demo test fuzz docs dist test-oldest asan support bench actions paper paper-full lint types check clean
.DEFAULT_GOAL := test

# The environment is made anew when what it is made of changes; Python files are used in place. The demo needs few
# packages, so it does not wait for the others.
$(VENV)/demo: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/native/*)
	@$(PYTHON) -c "import sys; sys.exit('leaftrace needs Python 3.11 or newer; this is ' + sys.version.split()[0] + '. Try: make PYTHON=python3.12') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group demo
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: $(CURDIR)/site/index.html"

dist: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group release
	rm -rf dist $(FRESH)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m build --no-isolation --outdir dist .
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip install --quiet --constraint constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[report,sklearn,frames]"
	cd $(FRESH) && bin/python $(CURDIR)/tools/smoke.py
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
		tests/engine/test_structure.py tests/engine/test_structure_candidates.py tests/adapters/test_contract.py

support: $(VENV)/ready
	$(BIN)/python tools/support.py

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
	rm -rf $(VENV) $(OLDEST) build dist site
