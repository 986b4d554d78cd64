# Two commands: `make demo` shows what tacit does, `make test` checks it. Both set everything up.
# `make test-all` adds the tests marked slow: real processes, Ray, long attacks, reproductions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-all lint types unit slow format benchmark clean

demo: $(INSTALLED)
	$(BIN)/tacit demo

test: lint types unit

test-all: test slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/basedpyright

unit: $(INSTALLED)
	$(PYTEST) -m 'not slow'

slow: $(INSTALLED)
	$(PYTEST) -m slow

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(INSTALLED)
	$(BIN)/python benchmarks/local_training.py
	$(BIN)/python benchmarks/many_tasks.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
