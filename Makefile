# Two commands: `make demo` shows what tacit does, `make test` checks it. Both set everything up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types unit format benchmark clean

demo: $(INSTALLED)
	$(BIN)/tacit demo

test: lint types unit

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/basedpyright

unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

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
