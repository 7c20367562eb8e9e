# make book   the HTML book in _build/html        make test   the tests
# make lint   ruff                                make bench  timings
# make data   the stored results, as far as they are missing
# make reproduce   all stored results anew, and a comparison
# make pdf    the book as one PDF in _build (needs Chromium)
# make clean  forget what was built (the environment in .venv stays)

PYTHON ?= python3
BIN := .venv/bin
ENV := .venv/.made
HOME_PAGE := _build/html/book/home.html
# What the pages have computed for the claims is not computed again by the tests of the same code.
export ATTN_LIB_EVIDENCE := $(CURDIR)/_build/evidence

.PHONY: book pdf test lint bench data reproduce clean
.DEFAULT_GOAL := book

# The environment is made again only when the pins or the package metadata change.
$(ENV): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is `$(PYTHON) --version 2>&1`."; \
	  echo "If a newer one is installed, name it: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Without the collector of garbage, which would search all the pages that Sphinx has loaded, again and again, in vain.
JUPYTER_BOOK := $(BIN)/python -c 'import gc; gc.disable(); from jupyter_book.cli.main import main; main()'

# A failed build drops what Sphinx remembers of the pages, so that the next one warns again; executed cells are kept.
book: $(ENV)
	$(BIN)/python tools/forget_stale.py
	$(BIN)/python tools/execute_pages.py
	$(JUPYTER_BOOK) build . --quiet --nitpick --warningiserror --keep-going || { rm -rf _build/.doctrees; exit 1; }
	@echo "The home page of the book: $(CURDIR)/$(HOME_PAGE)"

pdf: book
	$(BIN)/python tools/print_book.py

# Two processes, one thread each; the tests of a file stay together and share what they have computed. In the order of
# the files: those of the claims, the longest when there is no evidence yet, begin early.
test: $(ENV)
	$(BIN)/python tools/forget_stale.py evidence
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(ENV)
	$(BIN)/ruff check .

# Alone on the machine, about 8 minutes. Writes benchmarks/results.json, which the page on performance reads, and the
# table of the README.
bench: $(ENV)
	mkdir -p _build
	$(BIN)/python -m pytest benchmarks --benchmark-json=_build/benchmarks.json
	$(BIN)/python benchmarks/report.py _build/benchmarks.json

# Finished parts are kept in .cache/data: an interrupted run goes on.
data: $(ENV)
	$(BIN)/python book/data/all.py
	$(BIN)/python book/data/home_figure.py

reproduce: $(ENV)
	$(BIN)/python book/data/all.py --anew

clean:
	rm -rf _build
