# Two commands: `make demo` and `make test`. Both make .venv when it is not there.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := .venv/.installed
WORKERS ?= 2
# Without compiled bytecode every process takes three times as long to import torch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-lowest docs lint lock clean

setup: $(STAMP)

# uv installs the locked packages in a fraction of pip's time; pip is enough where uv cannot be had.
$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "smallvit needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 1; }
	if $(BIN)/python -m pip install -q uv; then \
	  $(BIN)/python -m uv pip install -q --python $(BIN)/python --require-hashes -r requirements.lock; \
	else \
	  $(BIN)/python -m pip install -q --require-hashes -r requirements.lock; \
	fi
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

demo: setup
	$(BIN)/smallvit demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The lowest versions that pyproject.toml names, in an environment of their own: what versions can touch is tested, that is models, readers,
# exports, budgets and the training loop. Data sets of Hugging Face come last, for they need a newer numpy.
LOWEST_INSTALL := $(BIN)/python -m uv pip install -q --python .venv-lowest --resolution lowest-direct
LOWEST_TESTS := $(addprefix tests/,shipping/test_export.py contracts/test_exports.py contracts/test_models.py contracts/test_objectives.py contracts/test_auxiliaries.py models \
  $(addprefix data/,test_images.py test_rasters.py test_memory.py test_tables.py test_sources.py) \
  $(addprefix training/,test_budget.py test_loop.py test_checkpoint.py test_muon.py test_pieces.py test_logs.py) evaluation estimators tuning runs/test_ray.py)
LOWEST_PYTEST := .venv-lowest/bin/python -m pytest -q -n $(WORKERS) -m "not slow and not browser"

test-lowest: setup
	$(BIN)/python -m uv venv -q --clear .venv-lowest
	$(LOWEST_INSTALL) -e '.[onnx,ray,tensorboard,tune,wandb]' 'pytest>=8.3' 'pytest-timeout>=2.3' 'pytest-xdist>=3.6' 'hypothesis>=6.120'
	$(LOWEST_PYTEST) $(LOWEST_TESTS)
	$(LOWEST_INSTALL) -e '.[hf,onnx,tune]'
	$(LOWEST_PYTEST) tests/data/test_hugging_face.py tests/data/test_memory.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: setup
	$(BIN)/python -m uv pip compile -q --upgrade --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --python-version 3.11 --all-extras --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .venv-lowest site .pytest_cache .mypy_cache .ruff_cache
