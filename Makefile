# `make help` lists what there is. Everything works in a fresh clone; what is missing is installed (as root) or named.

CARGO ?= cargo
SEEDS ?= 20000
PREFIX ?= /usr
DESTDIR ?=
BIMETAL = $(or $(CARGO_TARGET_DIR),target)/release/bimetal

.PHONY: help build demo test vm-test sim sweep mutants lint bench install setup

help:
	@echo "make build          the program, optimised: target/release/bimetal"
	@echo "make demo           see it work on two files, about a minute, no privileges needed"
	@echo "make test           all tests; says at the end what was skipped and why"
	@echo "make vm-test        tests on a real kernel in a virtual machine (BIMETAL_VM): power cuts, file systems, memory, dm-crypt"
	@echo "make sim SEEDS=n    n random runs of the simulator, each with crashes [$(SEEDS)]"
	@echo "make sweep          directed scenarios with a crash at every step"
	@echo "make mutants        planted bugs: each must be caught by the simulator"
	@echo "make lint           formatting, clippy, licences of dependencies (if cargo-deny is there)"
	@echo "make bench          the scripts in bench/"
	@echo "make install        to DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)"

setup:
	@.ci/setup build

build: setup
	$(CARGO) build --release --locked -p bimetal

demo:
	@.ci/setup demo
	@$(CARGO) build --release --locked -p bimetal
	@$(BIMETAL) demo $(DEMO)

test:
	@.ci/setup test
	@.ci/test

vm-test: build
	@BIMETAL_BIN=$(BIMETAL) tests/vm/run.sh

sim: setup
	$(CARGO) run --release --locked -p bimetal-sim --bin sim -- run --seeds $(SEEDS)

sweep: setup
	$(CARGO) run --release --locked -p bimetal-sim --bin sim -- sweep

mutants: setup
	$(CARGO) run --release --locked -p bimetal-sim --bin sim --features mutants -- mutants

lint: setup
	@.ci/lint

bench: build
	@$(CARGO) build --release --locked -p bimetal-export --example fuse_memory --example serve_memory
	@$(CARGO) build --release --locked -p bimetal-format -p bimetal-host --example full_map --example engine_cost
	@for script in bench/iops.py bench/servers.py bench/encryption.py bench/fuse.py bench/fill.py bench/scale.py bench/mover.py bench/evacuate.py bench/growth.py bench/flush.py bench/engine.py; do echo "== $$script"; BIMETAL_BIN=$(BIMETAL) python3 "$$script" || exit 1; done

install: build
	install -D -m 755 $(BIMETAL) $(DESTDIR)$(PREFIX)/bin/bimetal
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/bimetal@.service packaging/bimetal-attach@.service
	install -D -m 644 packaging/61-bimetal.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/61-bimetal.rules
	sed -i 's#/usr/\(bin\|share\)/#$(PREFIX)/\1/#g' $(DESTDIR)$(PREFIX)/lib/systemd/system/bimetal@.service \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/bimetal-attach@.service $(DESTDIR)$(PREFIX)/lib/udev/rules.d/61-bimetal.rules
	install -D -m 644 packaging/bimetal.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/bimetal.conf
	install -D -m 644 packaging/bimetal.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/bimetal.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/bimetal README.md CHANGELOG.md
	install -D -m 644 packaging/README.md $(DESTDIR)$(PREFIX)/share/doc/bimetal/packaging/README.md
