#!/bin/bash
# The kernel's NBD client on bimetal with real file systems; and how a daemon stops while one is mounted.
. "$(dirname "$0")/lib.sh"
mnt=/run/mnt
mkdir -p $mnt

holds() { "$bimetal" status tank | grep -q "mounted at $mnt"; }
sums() { (cd $mnt && find . -type f -exec md5sum {} + | sort -k 2 | md5sum); }

check "create" "$bimetal" create tank --fast /dev/vda --slow /dev/vdb --yes

# Make, fill past the fast tier, unmount, detach, attach again, compare, check.
cycle() {
    local fs=$1 options=$2 check=$3 dev sum
    dev=$("$bimetal" attach tank/main --via nbd) || { failed "$fs: attach"; return; }
    case $dev in /dev/nbd*) ;; *) failed "$fs: attached as '$dev'"; return ;; esac
    mkfs.$fs $options "$dev" >&2 && mount "$dev" $mnt || { failed "$fs: mkfs and mount"; return; }
    refused "$fs: detach while mounted" "mounted at $mnt" "$bimetal" detach tank/main
    for i in 1 2 3 4 5; do
        head -c 40M /dev/urandom >$mnt/f$i
    done
    cp $mnt/f1 $mnt/copy && rm $mnt/f2 && head -c 10M /dev/urandom >$mnt/f6
    sync
    sum=$(sums)
    umount $mnt || failed "$fs: umount"
    check "$fs: detach" "$bimetal" detach tank/main
    dev=$("$bimetal" attach tank/main --via nbd) || { failed "$fs: attach again"; return; }
    check "$fs: its own check is clean" $check "$dev"
    mount "$dev" $mnt || { failed "$fs: mount again"; return; }
    check "$fs: every file is as it was, over both tiers" [ "$sum" = "$(sums)" ]
    umount $mnt
    "$bimetal" stop tank >&2 || failed "$fs: stop"
    check "$fs: bimetal check" "$bimetal" check tank
    dev=$("$bimetal" attach tank/main --via nbd)
    mount "$dev" $mnt
    check "$fs: every file is as it was, after a restart" [ "$sum" = "$(sums)" ]
    umount $mnt
    blkdiscard -f "$dev"
    "$bimetal" detach tank/main >&2
}

cycle ext4 "-q -E nodiscard" "fsck.ext4 -fn"
command -v mkfs.xfs >/dev/null && cycle xfs "-q -f" "xfs_repair -n" || echo "skipped: mkfs.xfs is not installed"
command -v mkfs.btrfs >/dev/null && cycle btrfs "-q -f" "btrfs check" || echo "skipped: mkfs.btrfs is not installed"

# A program that has it open has written what is in the page cache only.
dev=$("$bimetal" attach tank/main --via nbd)
exec 9<>"$dev"
head -c 1M /dev/urandom >&9
refused "nbd: detach while a program has it open" "is open in process $$" "$bimetal" detach tank/main 9>&-
check "nbd: what that program wrote arrives" sync "$dev"
exec 9>&-
check "nbd: detach when it is closed" "$bimetal" detach tank/main

# `stop` while mounted: refused, the holder named; then SIGTERM keeps serving until the release.
dev=$("$bimetal" attach tank/main --via nbd)
mkfs.ext4 -q "$dev" && mount "$dev" $mnt
head -c 8M /dev/urandom >$mnt/kept && sync
refused "stop while mounted gives up and names the holder" "mounted at $mnt" "$bimetal" stop tank --timeout 2
check "it still serves" dd if=/dev/urandom of=$mnt/more bs=64k count=16 conv=fsync status=none
check "status names the holder" holds
umount $mnt
check "it stops when the file system is unmounted" until_true 20 sh -c "! $bimetal status tank --json | grep -q serving"

dev=$("$bimetal" attach tank/main --via nbd)
mount "$dev" $mnt
check "files written while a stop was wished are there" cmp -s <(head -c 1M $mnt/more) $mnt/more
pid=$(daemon_pid tank)
kill -TERM "$pid"
sleep 2
check "SIGTERM while mounted: the daemon lives" kill -0 "$pid"
check "SIGTERM while mounted: it serves writes" dd if=/dev/urandom of=$mnt/after bs=64k count=16 conv=fsync status=none
check "SIGTERM while mounted: the holder is named" holds
sum=$(sums)
kill -TERM "$pid"
check "a second SIGTERM ends it" until_true 30 sh -c "! kill -0 $pid"
umount $mnt 2>/dev/null || umount -l $mnt
check "after the second SIGTERM the group was stopped in order" sh -c "$bimetal check tank | grep -q 'was stopped in order'"
nbd-client -d "$dev" >/dev/null 2>&1
dev=$("$bimetal" attach tank/main --via nbd) || failed "attach after the second SIGTERM"
mount "$dev" $mnt
check "what was synced before the second SIGTERM is there" [ "$sum" = "$(sums)" ]
umount $mnt
check "the file system is clean after it" fsck.ext4 -fn "$dev"

# A file system that is mounted where nobody sees it, and a number that was given to somebody else.
unshare -m sh -c "mount $dev $mnt && touch /run/there && exec sleep 1000" &
holder=$!
until_true 20 [ -e /run/there ]
refused "detach of what is mounted in another namespace" "cannot be seen from here" "$bimetal" detach tank/main
refused "stop names it" "cannot be seen from here" "$bimetal" stop tank --timeout 8
kill $holder
check "it stops when that is gone" until_true 30 sh -c "! $bimetal status tank --json | grep -q '\"state\": \"stopping\"'"
dev=$("$bimetal" attach tank/main --via nbd) || failed "attach after the other namespace"
nbd-client -d "$dev" >&2
truncate -s 64M /run/other.fast
truncate -s 96M /run/other.slow
"$bimetal" create other --fast /run/other.fast --slow /run/other.slow --yes >&2
"$bimetal" serve other </dev/null >/run/other.log 2>&1 &
check "another group is served" until_true 20 [ -S "$BIMETAL_RUN_DIR/other/nbd.sock" ]
nbd-client -unix "$BIMETAL_RUN_DIR/other/nbd.sock" "$dev" -name main >&2
refused "detach of a device that is another's now" "is another's by now" "$bimetal" detach tank/main
check "that one stays connected" [ "$(blockdev --getsize64 "$dev")" -gt 0 ]
nbd-client -d "$dev" >&2
check "stop of the other group" "$bimetal" stop other

# A device that nobody has written down: made by hand here, as by an attach that was killed before it could.
unwritten() { nbd-client -unix "$BIMETAL_RUN_DIR/tank/nbd.sock" "$dev" -block-size 4096 -name main >&2; }
unwritten
check "a device that nobody has written down is shown" sh -c "$bimetal status tank | grep -q $dev"
check "attach makes no second one" [ "$("$bimetal" attach tank/main --via nbd)" = "$dev" ]
check "detach takes it away" "$bimetal" detach tank/main
check "it is gone" [ "$(blockdev --getsize64 "$dev")" = 0 ]
unwritten
mount "$dev" $mnt
refused "stop waits for its file system" "mounted at $mnt" "$bimetal" stop tank --timeout 2
umount $mnt
check "it stops when that is unmounted" until_true 20 sh -c "! $bimetal status tank --json | grep -q '\"state\": \"stopping\"'"
check "and has taken the device away" [ "$(blockdev --getsize64 "$dev")" = 0 ]
echo "done"
