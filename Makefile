# make demo   translate two models and compare them with plain PyTorch
# make test   the test suite but its slow tests
# make test-slow   the slow tests: those that take over a second, which start processes or compile, and installations
# make test-versioned   tests, also slow ones, of what depends on the version of Python or torch
# make lint   ruff, mypy, C warnings
# make docs   the documentation, in build/docs
# make examples   each example, under a minute
# make zoo    real models, from ../shared/zoo
# make bench  the measurements of benchmarks/
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
# With it each process compiles the sources of the tests again.
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: examples test-all all install demo kernels test test-slow test-versioned test-debug test-sanitized setup-3.14 test-3.14 test-numerical cpython fuzz bench lint docs zoo clean
all: test

# ---- the environment: torch, then this package and the tools, then what the zoo needs ----
# The package is compiled to bytecode, which pip leaves to the first import. Where PYTHONDONTWRITEBYTECODE is set each
# process would compile it again: two seconds.

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -qq --upgrade pip "setuptools>=77" wheel
	$(RUN) -m pip install -qq $(TORCH) numpy
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml setup.py $(wildcard sot/csrc/*/*)
	$(RUN) -m pip install -qq --no-build-isolation --editable ".[test,lint,demo,bench]" $(TORCH)
	$(RUN) -m compileall -q sot sot/backends sot/graph
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

VERSIONED := $(addprefix tests/,bytecode hook guards breaks language builtins)
PYTEST := OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) --dist worksteal -q

test: install
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: install
	$(PYTEST) -m slow $(ARGS)

# Each of examples/ but the demo.
examples: install
	$(RUN) -m pytest -q --durations=0 tests/frontend/test_examples.py -k an_example_runs $(ARGS)

# What Inductor compiles is a matter of its version, and takes as long as all else: `make test-all` runs it.
test-versioned: install
	$(PYTEST) $(VERSIONED) -k "not inductor" $(ARGS)

# The hook built so that it counts what it keeps alive, in a copy of the package.
test-debug: install
	rm -rf build/debug
	SOT_HOOK_DEBUG=1 $(RUN) setup.py -q build --build-base build/debug --build-lib build/debug/lib
	PYTHONPATH=build/debug/lib OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/hook/test_hook*.py $(ARGS)

# The C extension built with AddressSanitizer and UndefinedBehaviorSanitizer, in a copy of the package. Left out is what
# measures memory or waits for an address to come again: the sanitizer keeps what is freed for a while.
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
test-sanitized: install
	rm -rf build/sanitized
	CFLAGS="$(SANITIZERS)" LDFLAGS="$(SANITIZERS)" \
	    $(RUN) setup.py -q build --build-base build/sanitized --build-lib build/sanitized/lib
	PYTHONPATH=build/sanitized/lib OMP_NUM_THREADS=1 PYTHONMALLOC=malloc \
	    LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:use_sigaltstack=0 \
	    $(BIN)/pytest -q -p no:cacheprovider tests/hook tests/guards/test_guard_program.py tests/guards/test_weights.py \
	    -k "not million_calls and not at_the_address_of" $(ARGS)

# The whole suite with CPython 3.14 of Debian's unstable suite, in a folder of its own (as root).
PYTHON_3_14 ?= /var/tmp/python3.14
MAKE_3_14 := env -u MAKEFLAGS ../shared/debian-python.sh 3.14 $(PYTHON_3_14) make PYTHON=python3.14 VENV=/venv TORCH=torch==2.15.0
setup-3.14:
	$(MAKE_3_14) /venv/.torch

test-3.14:
	$(MAKE_3_14) $(or $(TARGET),test) JOBS=$(JOBS) ARGS="$(ARGS)"

# The whole suite everywhere: each CPython that is here, 3.14, the oldest and the newest torch (each in an environment
# of its own, which is removed: several GB).
test-all: test test-slow
	for version in 3.12 3.13; do $(MAKE) test test-slow PYTHON=python$$version VENV=.venv-$$version || exit 1; done
	$(MAKE) test-3.14
	for torch in 2.11.0 2.15.0; do $(MAKE) test VENV=.venv-torch TORCH=torch==$$torch || exit 1; rm -rf .venv-torch; done

# Numerical tests as they are on other processors.
NUMERICAL := tests/triton tests/graph tests/torch_ops
test-numerical: install
	for capability in avx2 default; do ATEN_CPU_CAPABILITY=$$capability OMP_NUM_THREADS=1 \
	    $(RUN) -m pytest -n $(JOBS) -q $(NUMERICAL) $(ARGS) || exit 1; done

cpython: install
	OMP_NUM_THREADS=1 $(RUN) tests/support/cpython.py --jobs $(JOBS) $(ARGS)

fuzz: install
	cd tests && OMP_NUM_THREADS=1 $(abspath $(RUN)) -m fuzzing $(N) --seed $(SEED) --jobs $(JOBS)

kernels: install
	OMP_NUM_THREADS=1 $(RUN) benchmarks/kernels/compile_kernels.py $(ARGS)

bench: install
	$(RUN) benchmarks/run.py $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	for cc in gcc clang; do command -v $$cc >/dev/null || continue; \
	    $$cc -fsyntax-only -std=c11 -O2 -Wall -Wextra -Werror -Wswitch-enum -Isot/csrc \
	        -I$$($(RUN) -c 'import sysconfig; print(sysconfig.get_path("include"))') \
	        sot/csrc/hook/*.c sot/csrc/guards/*.c || exit 1; done

docs: install
	$(RUN) -m pip install -qq --no-build-isolation --editable ".[docs]"
	$(RUN) -m sphinx -W -q -b html docs build/docs
	@echo "build/docs/index.html"

# Finished cases are kept in build/zoo: a run that was stopped goes on. ARGS: --modes eval, --filter '^timm/', ...
zoo: $(VENV)/zoo/.installed
	PYTHONPATH=$(abspath $(VENV)/zoo) $(RUN) benchmarks/zoo.py --zoo $(ZOO) $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info sot/*.so
