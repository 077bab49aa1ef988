# make demo   set everything up and show what leaftrace does
# make test   set everything up and run the tests
# make bench  measure against the peers and write docs/benchmarks.md (about ten minutes, needs the Adult data)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench lint types check clean
.DEFAULT_GOAL := test

# The environment is made anew when what it is made of changes; Python files are used in place.
$(VENV)/ready: pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/native/*)
	@$(PYTHON) -c "import sys; sys.exit('leaftrace needs Python 3.11 or newer; this is ' + sys.version.split()[0] + '. Try: make PYTHON=python3.12') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(VENV)/ready
	$(BIN)/python examples/demo.py

test: $(VENV)/ready
	$(BIN)/python -m pytest -n auto

bench: $(VENV)/ready
	$(BIN)/python benchmarks/run.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/basedpyright --pythonpath $(BIN)/python

check: lint types test

clean:
	rm -rf $(VENV) build dist
