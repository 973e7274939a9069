#!/bin/bash
# Memory pressure with dirty pages on our own device: more dirty data than memory, and processes that want the memory.
. "$(dirname "$0")/lib.sh"
mnt=/run/mnt limit=400
mkdir -p $mnt

check "create" "$bimetal" create tank --fast /dev/vda --slow /dev/vdb --yes
dev=$("$bimetal" attach tank/main --via nbd) || failed "attach"
mkfs.ext4 -q -E nodiscard "$dev" && mount "$dev" $mnt || failed "mkfs and mount"
pid=$(daemon_pid tank)
check "the daemon's memory is locked" sh -c "[ \$(sed -n 's/^VmLck:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status) -gt 0 ]"
check "the daemon is an I/O flusher (no such warning)" sh -c "! grep -q 'I/O flusher' $BIMETAL_RUN_DIR/tank/log"

# Let everything become dirty before anybody has to wait.
echo 80 >/proc/sys/vm/dirty_ratio
echo 70 >/proc/sys/vm/dirty_background_ratio
total=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
files=4 each=$((total / 3))

# Takes and touches memory, gives it back, again and again.
hog() {
    python3 -c '
import sys, time
size = int(sys.argv[1]) << 20
while True:
    b = bytearray(size)
    b[::4096] = b"x" * len(b[::4096])
    time.sleep(0.5)
    del b
' "$1"
}
hog $((total / 4)) &
hog=$!
write() { timeout $limit dd if=/dev/zero of="$mnt/f$1" bs=1M count=$each status=none && timeout $limit sync -f "$mnt/f$1"; }
begun=$SECONDS
writers=()
for i in $(seq $files); do
    write "$i" &
    writers+=($!)
done
peak=0
while kill -0 "${writers[@]}" 2>/dev/null; do
    dirty=$(awk '/^(Dirty|Writeback):/ {s += $2} END {print int(s / 1024)}' /proc/meminfo)
    [ "$dirty" -gt $peak ] && peak=$dirty
    sleep 0.5
done
good=0
for w in "${writers[@]}"; do
    wait "$w" || good=1
done
took=$((SECONDS - begun))
check "$files writers of $((files * each)) MiB in a machine of $total MiB end within $limit s (took $took s)" [ $good = 0 ]
echo "$((files * each)) MiB written in $took s, at most $peak MiB dirty at a time, with $((total / 4)) MiB taken and given back" >&2
check "dirty pages were a good part of memory (at most $peak MiB)" [ $peak -gt $((total / 8)) ]
check "the daemon lives and answers" "$bimetal" status tank
check "it is the same daemon" [ "$pid" = "$(daemon_pid tank)" ]
kill $hog
wait $hog 2>/dev/null
check "the writers were not killed for memory" sh -c "! dmesg 2>/dev/null | grep -q 'Out of memory: Killed process .*(dd)\|Killed process .*(bimetal)'"
check "unmount" timeout $limit umount $mnt
check "the file system is clean" timeout $limit fsck.ext4 -fn "$dev"
check "stop" "$bimetal" stop tank
echo "done"
