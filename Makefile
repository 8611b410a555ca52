# `make demo` installs what captions and the page need, `make train` adds TensorFlow to the same
# environment, `make test` the rest; `make help` lists all commands.

PYTHON ?= python3
VENV ?= .venv
# Passed on to the command: make train ARGS="--recipe scenes_hard"
ARGS ?=
# Set to 1 to run the slow tests too: make test SLOW=1
SLOW ?=
# Processes that share the tests, file by file; one: make test JOBS=1
JOBS ?= 2

BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed
WEB_STAMP := $(VENV)/.installed-light
DOCS_STAMP := $(VENV)/.installed-docs
DEV_STAMP := $(VENV)/.installed-dev
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check

CHECK_PYTHON := import sys; v = sys.version_info[:2]; \
	sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	"sat_tf needs Python 3.11, 3.12 or 3.13; $(PYTHON) is %d.%d. " % v + \
	"Choose another: make PYTHON=python3.12 ...")

.PHONY: help train serve demo test docs bench lint format install clean
.DEFAULT_GOAL := help

help: ## List these commands.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: $(RUN_STAMP) ## Train a captioner on the built-in scenes (ARGS="--recipe ...").
	$(BIN)/python -m training.train $(ARGS)

# The run that is served, or a published captioner: make serve RUN=flickr8k_soft
RUN ?= runs/scenes_soft
# Where `serving.export_saved_model` writes it: in a run's own folder, or below captioners/.
EXPORT_DIR = $(shell $(BIN)/python -c 'import sys; from sat_tf.inference import published; \
	print(published.output_dir(sys.argv[1]) / "export")' '$(RUN)')

serve: $(RUN_STAMP) ## Export a run (RUN=runs/scenes_soft) and serve it locally on port 8500.
	$(BIN)/python -m serving.export_saved_model --run-dir '$(RUN)'
	$(BIN)/python -m serving.local_server "$(EXPORT_DIR)" $(ARGS)

demo: $(WEB_STAMP) ## Open a page that captions your photographs and shows where it looked.
	$(BIN)/python -m serving.web $(ARGS)

test: $(DEV_STAMP) ## Run the tests (SLOW=1 for all, JOBS=1 in one process, ARGS="tests/sat_tf -x").
	$(BIN)/python -m pytest --durations=10 $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadfile --no-loadscope-reorder) $(if $(filter 1,$(SLOW)),-m "") $(ARGS)

docs: $(DOCS_STAMP) ## Build the site in build/docs, with the notebooks' output (takes minutes).
	@echo "The notebooks are executed, which takes some minutes the first time."
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees \
		-D nb_execution_mode=cache -D live_page=1 $(ARGS) docs build/docs
	@echo "Open build/docs/index.html; for its live page: $(BIN)/python -m http.server -d build/docs"

bench: $(RUN_STAMP) ## Measure this machine (ARGS="--only step").
	$(BIN)/python -m benchmarks.run $(ARGS)

lint: $(DEV_STAMP) ## Check style, formatting and who imports whom.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

format: $(DEV_STAMP) ## Format the code and fix what ruff can fix.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(DEV_STAMP) ## Make the virtual environment, with everything in it.

clean: ## Remove the virtual environment and the caches; runs stay.
	rm -rf $(VENV) .pytest_cache .ruff_cache build *.egg-info
	find sat_tf training serving digits tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps are written last: an interrupted installation is resumed, a changed requirement installed.
# The package is installed editable: `sat-tf` and `import sat_tf` work outside the checkout too.
$(WEB_STAMP): requirements.txt requirements-web.txt setup.py
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found. Choose another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c '$(CHECK_PYTHON)'
	$(PYTHON) -m venv $(VENV) || { echo "Making $(VENV) failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PIP_INSTALL) --editable '.[web]'
	@touch $@

$(RUN_STAMP): requirements.txt $(WEB_STAMP)
	$(PIP_INSTALL) -r requirements.txt
	@touch $@

$(DOCS_STAMP): requirements-docs.txt $(RUN_STAMP)
	$(PIP_INSTALL) -r requirements-docs.txt
	@touch $@

$(DEV_STAMP): requirements-dev.txt requirements-docs.txt requirements-web.txt $(RUN_STAMP)
	$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@
