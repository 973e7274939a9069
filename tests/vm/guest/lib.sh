# For the scripts that run in the guest: verdicts, and a group on two disks.
set -u
bimetal=$1
export BIMETAL_RUN_DIR BIMETAL_CONFIG_DIR

ok() { echo "ok $*"; }
failed() { echo "FAILED $*"; }

# check NAME COMMAND...: the command must succeed. If it does not, the verdict tells what it said.
check() {
    local name=$1
    shift
    local said=/run/said.$$
    if "$@" >$said 2>&1; then ok "$name"; else failed "$name; it said: $(tail -n 5 $said | cut -c 1-500)"; fi
    cat $said >&2
}

# refused NAME WORDS COMMAND...: the command must fail, and say something that matches WORDS.
refused() {
    local name=$1 words=$2 said
    shift 2
    if said=$("$@" 2>&1); then
        failed "$name: it was not refused; it said: $said"
    elif grep -Eq -- "$words" <<<"$said"; then
        ok "$name"
        echo "$name: $said" >&2
    else
        failed "$name: refused, but in other words: $said"
    fi
}

# until SECONDS COMMAND...: waits until the command succeeds.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

# The process that serves a group.
daemon_pid() { "$bimetal" status "$1" --json | sed -n 's/^ *"pid": \([0-9]*\).*/\1/p'; }

# A number of `status --json`, by name (first match).
number() { "$bimetal" status "$1" --json | sed -n "s/^ *\"$2\": \([0-9]*\).*/\1/p" | head -n 1; }

# A daemon of the group tank in the background, which says what it says to the file $log.
serve() { "$bimetal" serve tank </dev/null >>"$log" 2>&1 & }
serves() { "$bimetal" status tank --json | grep -q '"state": "serving"'; }

# ublk devices: how many there are, and whether the daemon of tank serves so many.
devices() { ls /sys/class/ublk-char 2>/dev/null | wc -l; }
no_devices() { [ "$(devices)" = 0 ]; }
served() { [ "$("$bimetal" status tank --json | grep -c '"peer": "/dev/ublkb')" = "$1" ]; }

# I/O errors that the kernel has noted. It notes none of those that `--force` is meant to cause before this is asked.
errors() { dmesg | grep -c -E 'I/O error|invalid error|critical .* error|EXT4-fs error|XFS .*(error|shutdown)'; }
