# make demo   translate two models and compare them with plain PyTorch
# make test   the test-suite                    make bench  the measurements of benchmarks/
# make lint   ruff and mypy                     make zoo    real models, from ../shared/zoo
# make docs   the documentation, in build/docs
# make kernels   every kernel compiled for GPUs, without one
# make cpython   CPython's own tests, each function translated
# make fuzz   N random programs, compared with plain Python
#
# Everything runs in $(VENV), made with $(PYTHON) on first use; a stamp file says what is installed there.

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
JOBS   ?= 2
N      ?= 2000
SEED   ?= 1
ZOO    ?= ../shared/zoo

BIN := $(VENV)/bin
RUN := $(BIN)/python
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: all install demo kernels test test-debug cpython fuzz bench lint docs zoo clean
all: test

# ---- the environment: torch, then this package and the tools, then what the zoo needs ----

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -qq --upgrade pip "setuptools>=77" wheel
	$(RUN) -m pip install -qq $(TORCH) numpy
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml setup.py $(wildcard sot/*.c sot/*.cpp sot/*.h)
	$(RUN) -m pip install -qq --no-build-isolation --editable ".[test,lint,demo,bench]"
	touch $@

# Kept apart: beside a CPU build of torch torchvision imports only as the zoo does it.
$(VENV)/zoo/.installed: $(VENV)/.installed
	$(RUN) -m pip install -qq --upgrade --target $(VENV)/zoo --no-deps torchvision==0.28.0 timm torch-geometric
	$(RUN) -m pip install -qq einops pillow aiohttp xxhash psutil tqdm requests pyparsing jinja2 \
	    safetensors huggingface_hub scipy pyyaml torchdiffeq transformers
	touch $@

install: $(VENV)/.installed

# ---- what to run ----

demo: install
	$(RUN) examples/demo.py

test: install
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) --dist worksteal -q $(ARGS)

# The hook built so that it counts what it keeps alive, in a copy of the package.
test-debug: install
	rm -rf build/debug
	SOT_HOOK_DEBUG=1 $(RUN) setup.py -q build --build-base build/debug --build-lib build/debug/lib
	PYTHONPATH=build/debug/lib OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/test_hook*.py $(ARGS)

cpython: install
	OMP_NUM_THREADS=1 $(RUN) tests/cpython.py --jobs $(JOBS) $(ARGS)

fuzz: install
	cd tests && OMP_NUM_THREADS=1 $(abspath $(RUN)) -m fuzzing $(N) --seed $(SEED) --jobs $(JOBS)

kernels: install
	OMP_NUM_THREADS=1 $(RUN) benchmarks/compile_kernels.py $(ARGS)

bench: install
	$(RUN) benchmarks/run.py $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: install
	$(RUN) -m pip install -qq --no-build-isolation --editable ".[docs]"
	$(RUN) -m sphinx -W -q -b html docs build/docs
	@echo "build/docs/index.html"

# Finished cases are kept in build/zoo: a run that was stopped goes on. ARGS: --modes eval, --filter '^timm/', ...
zoo: $(VENV)/zoo/.installed
	PYTHONPATH=$(abspath $(VENV)/zoo) $(RUN) benchmarks/zoo.py --zoo $(ZOO) $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info sot/*.so
