# make run, make test: the two commands of the README. What they install is decided in scripts/setup.sh;
# a second call finds it done and starts at once.
.DEFAULT_GOAL := help
.PHONY: help run test test-long setup lint bench spreads oracle accuracy ratchet report clean

PY := .venv/bin/python
# lets a pytest option through: make test ARGS="-k memory"
ARGS ?=
PYTEST = $(PY) -m pytest -n 2 --dist loadgroup

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

run: ## Start the app (on another port: make run PORT=8600)
	@bash scripts/setup.sh run
	@$(PY) -m streamlit run app.py $(if $(PORT),--server.port $(PORT))

test: ## Lint, check types and run the tests: what CI runs
	@bash scripts/setup.sh test
	@$(MAKE) --no-print-directory lint
	$(PYTEST) -m "not slow" $(ARGS)

test-long: ## All tests, the slow ones too
	@bash scripts/setup.sh test
	$(PYTEST) $(ARGS)

setup: ## Make .venv with everything that developing needs, and install no system packages for tests
	@bash scripts/setup.sh venv

lint: ## Style and types
	@bash scripts/setup.sh venv
	$(PY) -m ruff check .
	$(PY) -m mypy

spreads: ## Derive the bands' widths from the measured runs, by kind of run, also with each source left out
	@bash scripts/setup.sh venv
	$(PY) -m tests.spreads

bench: ## Time the import and one evaluation; fails when over budget
	@bash scripts/setup.sh venv
	$(PY) -m tests.bench

oracle: ## Closed forms against traces of 500 random configurations (10 minutes; make oracle ARGS="--count 50")
	@bash scripts/setup.sh venv
	$(PY) -m tests.oracle --count 500 $(ARGS)

accuracy: ## How far predictions are from measured runs, with each framework and family left out
	@bash scripts/setup.sh run
	$(PY) -m planner evidence --leave-out

ratchet: ## Write the accuracy baseline of the tests; refused when a figure got worse
	@bash scripts/setup.sh run
	$(PY) -m planner.evidence.ratchet tests/evidence/accuracy_baseline.json $(ARGS)

report: ## The capacity report of a case: make report CASE=case.json
	@bash scripts/setup.sh run
	@test -n "$(CASE)" || { echo 'Name a case file: make report CASE=case.json'; exit 2; }
	@mkdir -p out
	$(PY) -m planner report "$(CASE)" --pdf out/report.pdf --html out/report.html

clean: ## Remove caches, build output and out/ (not .venv)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist out test-artifacts
	find . -path ./.venv -prune -o -name __pycache__ -type d -print | xargs rm -rf
