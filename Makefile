# Two commands: `make demo` shows what tacit does, `make test` checks it. Both set everything up.
# `make docs` writes the site into build/site; `make pictures` takes its pictures anew.
# `make test-all` adds the tests marked slow: real processes, Ray, long attacks, reproductions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-all lint types unit slow hunt test-gpu format docs pictures benchmark peers clean

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

# On a machine with a GPU and its own PyTorch; see tests/on_gpu.py where nothing can be installed.
test-gpu:
	$(PYTHON) tests/on_gpu.py run

# Property tests with new examples: what they find is pinned by an @example.
hunt: $(INSTALLED)
	TACIT_HUNT=1 $(PYTEST) -m hypothesis

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.make

pictures: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.make.pictures

# Machine, versions, date, commit and ratios go to benchmarks/results, beside those of the last time.
benchmark: $(INSTALLED)
	$(BIN)/python benchmarks/local_training.py
	$(BIN)/python benchmarks/many_tasks.py

# tacit beside pfl-research, Flower, JAX and a plain loop; their environments are made in build/peers.
peers: $(INSTALLED)
	PYTHON=$(PYTHON) benchmarks/peers/make_environments.sh
	$(BIN)/python benchmarks/peers/run.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
