#!/bin/bash
# Tests on a real kernel, in a throw-away virtual machine.
#
#   tests/vm/run.sh [powercut] [faulty] [cycles] [claimed] [memory] [ublk] [crypt] [family]    all of them by default
#
# BIMETAL_VM          a program with vm-run's interface                [../shared/rig/vm-run beside the checkout]
# BIMETAL_BIN         the program under test                           [target/release/bimetal]
# BIMETAL_FAULTY_BIN  a build with planted faults, for `faulty`: cargo build -p bimetal --features mutants
# BIMETAL_CUTS        power cuts                                       [200]
# BIMETAL_KILLS       deaths of the daemon under a file system, for `ublk`  [100]
# BIMETAL_JOBS        processes that replay them                       [one per processor]
# BIMETAL_KEEP        a folder that gets the recorded logs             [they are deleted]
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${BIMETAL_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/bimetal}
vm=${BIMETAL_VM:-$root/../shared/rig/vm-run}
cuts=${BIMETAL_CUTS:-200}
kills=${BIMETAL_KILLS:-100}
parts=${*:-claimed cycles memory ublk crypt family powercut faulty}

finish() { echo "$1 passed, $2 failed"; [ "$2" = 0 ]; exit; }
skip_all() { echo "skipped: $1"; finish 0 0; }

[ -x "$vm" ] || skip_all "tests in a virtual machine: set BIMETAL_VM to a program with vm-run's interface"
[ "$(id -u)" = 0 ] || skip_all "tests in a virtual machine need root"
[ -x "$bin" ] || { echo "no program at $bin: make build, or set BIMETAL_BIN"; finish 0 1; }
bin=$(readlink -f "$bin")

work=$(mktemp -d --suffix=.bimetal-vm)
running=
stop() { [ -n "$running" ] && kill "$running" 2>/dev/null; wait; rm -rf "$work"; }
trap stop EXIT
trap 'exit 130' INT TERM HUP
# What is tested does not change under the test.
cp "$bin" "$work/bimetal"

# In the guest: guest OPTION... -- COMMAND... Under emulation a kernel sometimes dies while it boots, before anything of
# ours runs (it has not made $work/began yet): then it is booted again, twice at most.
guest() {
    local status try
    for try in 1 2 3; do
        rm -f "$work/began"
        boot "$@"
        status=$?
        [ $status = 123 ] && [ ! -e "$work/began" ] || break
        echo "the guest died while it booted (try $try)" >&2
    done
    return $status
}

boot() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    "$vm" --cpus 2 --rw "$work" --env BIMETAL_RUN_DIR=/run/bimetal --env BIMETAL_CONFIG_DIR=/run/bimetal.etc \
        --env BIMETAL_MUTANT "${options[@]}" -- bash -c 'touch "$0/began"; exec "$@"' "$work" "$@" &
    running=$!
    wait $running
    local status=$?
    running=
    return $status
}

needs() {
    for tool; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; return 1; }
    done
}

MiB=1048576
fast_size=$((40 * MiB)) slow_size=$((128 * MiB))

# power_cuts NAME PROGRAM CUTS SECONDS: a load in the guest, recorded; then cuts, replayed here. Status as replay.py's.
power_cuts() {
    local dir=$work/$1 program=$2 wanted=$3 seconds=$4
    # Not every mark can be used (see replay.py), and of few it may be most that cannot.
    local marks=$((wanted + wanted * 2 / 5 + 4))
    mkdir -p "$dir/replay"
    guest --mem 1G --timeout $((seconds + 400)) --modules nbd,dm-log-writes,ext4 \
        --disk "$dir/fast,size=$fast_size,cache=unsafe" --disk "$dir/slow,size=$slow_size,cache=unsafe" \
        --disk "$dir/fast.log,size=32G,cache=unsafe" --disk "$dir/slow.log,size=32G,cache=unsafe" -- \
        python3 "$here/powercut/guest.py" "$program" "$dir" /dev/vda /dev/vdb /dev/vdc /dev/vdd "$seconds" "$marks" \
        2>"$dir/guest.err" || { echo "the load in the guest failed:"; tail -n 20 "$dir/guest.err"; return 2; }
    env -u BIMETAL_MUTANT python3 "$here/powercut/replay.py" "$work/bimetal" "$dir" "$dir/fast.log" "$dir/slow.log" \
        $fast_size $slow_size "$wanted" "$dir/replay"
    local status=$?
    [ -n "${BIMETAL_KEEP:-}" ] && cp -r --sparse=always "$dir" "$BIMETAL_KEEP"
    rm -rf "$dir"
    return $status
}

passed=0 failed=0
verdict() {
    if [ "$1" = 0 ]; then passed=$((passed + 1)); echo "ok $2"; else failed=$((failed + 1)); echo "FAILED $2"; fi
}

powercut() {
    needs python3 nbdcopy e2fsck debugfs nbd-client dmsetup mkfs.ext4 || return
    power_cuts cuts "$work/bimetal" "$cuts" $((cuts * 9 / 10 + 10))
    verdict $? "$cuts power cuts under load: nothing flushed is missing, the file system is clean"
}

# The test must see a daemon that leaves out syncs.
faulty() {
    needs python3 nbdcopy e2fsck debugfs nbd-client dmsetup mkfs.ext4 || return
    local program=${BIMETAL_FAULTY_BIN:-}
    [ -x "$program" ] || { echo "skipped: power cuts of a faulty daemon: BIMETAL_FAULTY_BIN is not set"; return; }
    cp "$program" "$work/faulty"
    for fault in JournalSyncSkipped C1NoDataSync; do
        BIMETAL_MUTANT=$fault power_cuts "$fault" "$work/faulty" 40 60 >"$work/faulty.out" 2>&1
        local status=$?
        grep -c '^FAILED cut' "$work/faulty.out" | sed "s/^/$fault: cuts at which something is missing: /"
        tail -n 3 "$work/faulty.out" | cut -c 1-400
        [ $status = 1 ] && grep -q '^FAILED cut' "$work/faulty.out"
        verdict $? "power cuts find the fault $fault"
    done
}

# A script in the guest that prints lines `ok ...` and `FAILED ...`, and `done` at its end.
script() {
    local name=$1
    shift
    guest "$@" -- bash "$here/guest/$name.sh" "$work/bimetal" >"$work/$name.out" 2>"$work/$name.err"
    local status=$?
    grep -v '^done$' "$work/$name.out"
    passed=$((passed + $(grep -c '^ok ' "$work/$name.out")))
    failed=$((failed + $(grep -c '^FAILED ' "$work/$name.out")))
    if [ $status = 123 ] && grep -q 'RIP: 0010:io_fallback_tw' "$work/$name.err"; then
        echo "skipped: the rest of this round, because the guest's kernel died in io_uring (io_fallback_tw)"
        return
    fi
    if ! grep -q '^done$' "$work/$name.out"; then
        failed=$((failed + 1))
        echo "FAILED $name: the guest ended too early (status $status)"
    fi
    if grep -q '^FAILED ' "$work/$name.out" || ! grep -q '^done$' "$work/$name.out"; then
        echo "--- what $name said:"
        tail -n 40 "$work/$name.err"
    fi
}

claimed() {
    needs dmsetup mkfs.ext4 || return
    script claimed --mem 768M --timeout 300 --modules nbd,ext4 --disk "$work/c1,size=64M" --disk "$work/c2,size=64M" \
        --disk "$work/c3,size=64M"
    rm -f "$work"/c[123]
}

cycles() {
    needs nbd-client mkfs.ext4 || return
    script cycles --mem 1G --timeout 600 --modules nbd,ext4,xfs,btrfs --disk "$work/y1,size=160M,cache=unsafe" \
        --disk "$work/y2,size=640M,cache=unsafe"
    rm -f "$work"/y[12]
}

memory() {
    needs nbd-client mkfs.ext4 || return
    script memory --mem 512M --timeout 900 --modules nbd,ext4 --disk "$work/m1,size=256M,cache=unsafe" \
        --disk "$work/m2,size=2G,cache=unsafe"
    rm -f "$work"/m[12]
}

ublk() {
    needs fio python3 nbd-client mkfs.ext4 fstrim blkdiscard || return
    ublk_guest 1500 0 without_driver requests files come_and_go ends
    ublk_guest 1500 0 two hang_up opened elsewhere offline own_ground
    ublk_guest 600 0 unprivileged
    # Deaths in rounds, each in a guest of its own: kernels up to 6.12 at least die of them now and then themselves, of a
    # ublk command that they complete twice when its process ends.
    local survived=0 round=0 now
    while [ $survived -lt "$kills" ] && [ $round -lt $((2 + kills / 10)) ]; do
        round=$((round + 1))
        now=$((kills - survived < 20 ? kills - survived : 20))
        ublk_guest $((600 + now * 20)) $now deaths
        survived=$((survived + $(grep -c '^survived death' "$work/ublk.err")))
        grep -q '^FAILED' "$work/ublk.out" && break
    done
    [ $survived -ge "$kills" ]
    verdict $? "file systems on ublk survived $survived deaths of the daemon (wanted: $kills)"
}

# ublk_guest SECONDS DEATHS PART...
ublk_guest() {
    local seconds=$1 deaths=$2
    shift 2
    script ublk --mem 1G --timeout "$seconds" --modules nbd,ext4,xfs --env UBLK_PARTS="$*" --env UBLK_DEATHS="$deaths" \
        --disk "$work/u1,size=160M,cache=unsafe" --disk "$work/u2,size=640M,cache=unsafe"
    rm -f "$work"/u[12]
}

crypt() {
    needs python3 cryptsetup dmsetup losetup mkfs.ext4 fstrim nbd-client || return
    script crypt --mem 1G --timeout 900 --modules nbd,ext4 --disk "$work/k1,size=48M,cache=unsafe" \
        --disk "$work/k2,size=192M,cache=unsafe"
    rm -f "$work"/k[12]
}

family() {
    needs fio python3 mkfs.ext4 || return
    local part try
    for part in locks ends deaths; do
        # A part whose kernel died of what is said at `ublk` is done again.
        for try in 1 2 3 4; do
            script family --mem 1G --timeout 900 --modules nbd,ext4 --env FAMILY_PART=$part --env FAMILY_DEATHS=6 \
                --disk "$work/f1,size=64M,cache=unsafe" --disk "$work/f2,size=640M,cache=unsafe"
            rm -f "$work"/f[12]
            grep -q -e '^done$' -e '^FAILED' "$work/family.out" && break
        done
        grep -q '^done$' "$work/family.out"
        verdict $? "family: $part, to the end"
    done
}

for part in $parts; do
    case $part in
        powercut | faulty | cycles | claimed | memory | ublk | crypt | family) echo "== $part"; $part ;;
        *)
            echo "what is '$part'? powercut, faulty, cycles, claimed, memory, ublk, crypt, family"
            exit 2
            ;;
    esac
done
finish $passed $failed
