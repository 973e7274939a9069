#!/bin/bash
# ublk devices with real file systems: they hold what is written over both tiers, discards reach the group, devices come
# and go, and whoever serves them may die at any moment without anybody noticing.
#
#   ublk.sh PROGRAM     $UBLK_PARTS: which parts; $UBLK_DEATHS: deaths of the daemon under a mounted file system
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
mnt=/run/mnt log=$BIMETAL_RUN_DIR/serve.log
mkdir -p $mnt

sums() { (cd $mnt && find . -type f -exec md5sum {} + | sort -k 2 | md5sum); }
# The volume's device is served by the daemon that runs now.
device_is_served() { "$bimetal" status tank --json | grep -q '"peer": "/dev/ublkb'; }
# What chunks of volumes take, each counted once.
mapped_bytes() { "$bimetal" status tank --json | sed -n 's/^ *"\(fast\|slow\)_bytes": \([0-9]*\).*/\2/p' | awk '{s += $1} END {print s}'; }
free_slots() { "$bimetal" status tank --json | sed -n 's/^ *"free_slots": \([0-9]*\).*/\1/p' | awk '{s += $1} END {print s}'; }

# The daemon dies, and the next one takes over.
succeed() {
    local pid
    pid=$(daemon_pid tank)
    kill -9 "$pid"
    serve
    until_true 60 device_is_served
}

without_driver() {
    local dev
    dev=$("$bimetal" attach tank/main 2>/run/why) && case $dev in /dev/nbd*) ok "without the driver it is the kernel's NBD client" ;;
        *) failed "without the driver it is $dev" ;; esac
    check "and it is said why" grep -q "no ublk driver" /run/why
    "$bimetal" detach tank/main >&2
    refused "attach --via ublk without the driver" "no ublk driver" "$bimetal" attach tank/main --via ublk
}

# Make, fill past the fast tier, unmount, detach, attach again, compare, check; then discards.
cycle() {
    local fs=$1 options=$2 check=$3 dev sum free before
    dev=$("$bimetal" attach tank/main --via ublk) || { failed "$fs: attach"; return; }
    case $dev in /dev/ublkb*) ;; *) failed "$fs: attached as '$dev'"; return ;; esac
    free=$(free_slots)
    mkfs.$fs $options "$dev" >&2 && mount "$dev" $mnt || { failed "$fs: mkfs and mount"; return; }
    refused "$fs: detach while mounted" "mounted at $mnt" "$bimetal" detach tank/main
    for i in 1 2 3 4 5; do
        head -c 40M /dev/urandom >$mnt/f$i
    done
    # Not sharing the blocks of f1, which XFS would do: they are to be free when it is removed.
    cp --reflink=never $mnt/f1 $mnt/copy && rm $mnt/f2 && head -c 10M /dev/urandom >$mnt/f6
    sync
    sum=$(sums)
    umount $mnt || failed "$fs: umount"
    check "$fs: detach" "$bimetal" detach tank/main
    check "$fs: no device is left" no_devices
    dev=$("$bimetal" attach tank/main) || { failed "$fs: attach again"; return; }
    check "$fs: ublk is the first choice" [ "${dev#/dev/ublkb}" != "$dev" ]
    check "$fs: its own check is clean" $check "$dev"
    mount "$dev" $mnt || { failed "$fs: mount again"; return; }
    check "$fs: every file is as it was, over both tiers" [ "$sum" = "$(sums)" ]
    before=$(mapped_bytes)
    rm $mnt/f[1345] || failed "$fs: rm"
    check "$fs: fstrim gives back what files had" until_true 30 trimmed_to $((before - 155 * 1024 * 1024))
    umount $mnt
    blkdiscard -f "$dev"
    check "$fs: after a discard of all, all slots are free" until_true 30 freed_since "$free" 0
    check "$fs: what was discarded reads as zeros" cmp -s -n 16M "$dev" /dev/zero
    "$bimetal" detach tank/main >&2
}
# XFS gives room back some time after its files are gone. Free slots would not tell: a chunk may have one on each tier.
trimmed_to() { sync; fstrim $mnt && [ "$(mapped_bytes)" -le "$1" ]; }
freed_since() { [ "$(free_slots)" -ge $(($1 + $2)) ]; }

# Flush, FUA, zeroing, odd ranges, limits.
requests() {
    local dev
    dev=$("$bimetal" attach tank/main --via ublk)
    check "direct writes and reads agree" fio --name=direct --filename="$dev" --direct=1 --rw=randwrite --bsrange=4k-1m \
        --size=64M --io_size=24M --iodepth=16 --ioengine=libaio --verify=crc32c --minimal
    head -c 1M /dev/urandom >/run/pattern
    dd if=/run/pattern of="$dev" bs=64k oflag=direct,sync status=none
    check "zeroing zeroes its range" fallocate_zero "$dev"
    check "flushes reach the members" blockdev --flushbufs "$dev"
    check "sectors are the volume's" [ "$(blockdev --getss "$dev")" = 4096 ]
    check "the size is the volume's" [ "$(blockdev --getsize64 "$dev")" = "$(volume_size)" ]
    "$bimetal" detach tank/main >&2
}
volume_size() {
    "$bimetal" status tank --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["volumes"][0]["size_bytes"])'
}
fallocate_zero() {
    fallocate -z -o 8192 -l 40960 "$1" && cmp -s -n 8192 "$1" /run/pattern && cmp -s -i 8192:0 -n 40960 "$1" /dev/zero &&
        cmp -s -i 49152 -n 999424 "$1" /run/pattern
}

# Create and delete, again and again; then the daemon dies while it does so.
come_and_go() {
    local i died=0
    for i in 1 2 3 4 5 6; do
        "$bimetal" attach tank/main >&2 && "$bimetal" detach tank/main >&2 || failed "attach and detach, round $i"
    done
    check "devices come and go" no_devices
    for i in $(seq 12); do
        { "$bimetal" attach tank/main --no-start; "$bimetal" detach tank/main; } >&2 2>&1 &
        sleep "0.$((RANDOM % 8))$((RANDOM % 10))"
        kill -9 "$(daemon_pid tank)" && died=$((died + 1))
        wait $!
        serve
        until_true 60 serves || failed "the daemon starts after its death, round $i"
        timeout 60 "$bimetal" attach tank/main >&2 || failed "attach after a death, round $i"
        timeout 60 "$bimetal" detach tank/main >&2 || failed "detach after a death, round $i"
        no_devices || failed "a device is left after a death, round $i"
    done
    check "the daemon died $died times while it made or removed a device, and none is left" [ $died = 12 ]
}

# Deaths under a mounted file system with fio's verification on it.
deaths() {
    local dev fio i served=0 before
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt || { failed "mkfs and mount before the deaths"; return; }
    head -c 30M /dev/urandom >$mnt/kept
    sum=$(sha1sum <$mnt/kept)
    before=$(errors)
    python3 "$here/ublk_load.py" $mnt/load /run/stop >&2 &
    fio=$!
    for i in $(seq "$UBLK_DEATHS"); do
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
        succeed && served=$((served + 1)) || { failed "the device is served again after death $i"; break; }
        kill -0 $fio 2>/dev/null || { failed "the load gave up at death $i"; break; }
        # Reads come from the device, not from memory.
        echo "survived death $i after $SECONDS s" >&2
        [ $((i % 5)) = 0 ] && echo 3 >/proc/sys/vm/drop_caches
    done
    touch /run/stop
    check "fio verified every write through $served deaths of the daemon" wait $fio
    echo 3 >/proc/sys/vm/drop_caches
    check "what was written before is as it was" [ "$sum" = "$(sha1sum <$mnt/kept)" ]
    check "no I/O error reached the file system" [ "$before" = "$(errors)" ]
    check "unmount" timeout 120 umount $mnt
    check "the file system is clean" fsck.ext4 -fn "$dev"
    check "detach" "$bimetal" detach tank/main
}

# Orderly ends of the daemon while a file system is mounted, and orphans.
ends() {
    local dev writer
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt
    refused "stop while mounted gives up and names the holder" "mounted at $mnt" "$bimetal" stop tank --timeout 2
    head -c 8M /dev/urandom >$mnt/kept && sync
    sum=$(sums)
    # The holder is gone for a moment only: the stop that is still wished is taken back by a forced one, as for an upgrade.
    check "stop --force leaves the device to the next daemon" "$bimetal" stop tank --force --timeout 30
    refused "detach --all keeps a device that is in use" "mounted at $mnt" "$bimetal" detach --all
    (head -c 4M /dev/urandom >$mnt/late && sync -f $mnt) &
    writer=$!
    sleep 1
    check "a write waits for the next daemon" kill -0 $writer
    serve
    check "the next daemon takes the device over" until_true 60 device_is_served
    check "what was written between the daemons is there" wait $writer
    echo 3 >/proc/sys/vm/drop_caches
    rm $mnt/late
    check "every file is as it was" [ "$sum" = "$(sums)" ]
    umount $mnt
    kill -9 "$(daemon_pid tank)"
    until_true 20 sh -c "! $bimetal status tank --json | grep -q '\"serving\"'"
    check "detach --all removes a device that nobody serves" "$bimetal" detach --all
    check "and nothing is left of it" no_devices
    serve
    until_true 60 serves
    check "an orphan that is gone is not attached" sh -c "! $bimetal detach tank/main"
    dev=$("$bimetal" attach tank/main)
    mount "$dev" $mnt
    kill -9 "$(daemon_pid tank)"
    sleep 1
    check "detach --all --force removes a device in use" timeout 60 "$bimetal" detach --all --force
    umount -l $mnt
    check "and nothing is left of that" until_true 20 no_devices
    serve
    until_true 60 serves
}

# Two devices, both in use, survive their daemon; none is made a second time.
two() {
    local a b pid mnt2=/run/mnt2 before
    mkdir -p $mnt2
    "$bimetal" volume create tank/second --size 64MiB >&2 || { failed "two: a second volume"; return; }
    a=$("$bimetal" attach tank/main --via ublk) && b=$("$bimetal" attach tank/second --via ublk) ||
        { failed "two: attach"; return; }
    mkfs.ext4 -q "$a" && mkfs.ext4 -q "$b" && mount "$a" $mnt && mount "$b" $mnt2 || { failed "two: mkfs and mount"; return; }
    echo main >$mnt/name && echo second >$mnt2/name && sync
    before=$(errors)
    kill -9 "$(daemon_pid tank)"
    (echo late >$mnt/late && sync -f $mnt) & local first=$!
    (echo late >$mnt2/late && sync -f $mnt2) & local second=$!
    serve
    check "both devices are served again" until_true 60 served 2
    check "what waited in the first is written" timeout 60 tail --pid=$first -f /dev/null
    check "what waited in the second is written" timeout 60 tail --pid=$second -f /dev/null
    echo 3 >/proc/sys/vm/drop_caches
    check "and read" timeout 20 sh -c "[ \$(cat $mnt/name $mnt/late $mnt2/name $mnt2/late | tr '\n' ' ' | tr -d ' ') = mainlatesecondlate ]"
    check "attach finds the first device" [ "$("$bimetal" attach tank/main)" = "$a" ]
    check "attach finds the second device" [ "$("$bimetal" attach tank/second)" = "$b" ]
    check "there are two devices" [ "$(devices)" = 2 ]
    refused "another way beside ublk" "already attached" "$bimetal" attach tank/main --via nbd
    check "every thread may do what the daemon may" all_threads_alike
    check "no I/O error reached the file systems" [ "$before" = "$(errors)" ]
    umount $mnt $mnt2
    "$bimetal" detach tank >&2 || failed "two: detach"
    # At the same time.
    "$bimetal" attach tank/main >/run/a 2>&2 & first=$!
    "$bimetal" attach tank/second >/run/b 2>&2 & second=$!
    check "two are attached at the same time" wait $first
    check "and the other one" wait $second
    "$bimetal" detach tank >&2
    together main second main second
    check "the same through the API, some of the same volume" [ "$(cat /run/together)" = "200 200 200 200" ]
    check "and each volume has one device" [ "$(devices)" = 2 ]
    "$bimetal" attach tank/main >&2 && "$bimetal" attach tank/second >&2 && "$bimetal" detach tank >&2
    check "none is left of two" no_devices
    "$bimetal" volume delete tank/second --yes >&2
}
all_threads_alike() { [ "$(grep -h CapEff /proc/"$(daemon_pid tank)"/task/*/status | sort -u | wc -l)" = 1 ]; }
# POST /v1/attach for all volumes named, at the same time; the status codes go to /run/together.
together() {
    python3 - "$@" >/run/together <<'P'
import socket, sys, threading
codes = [None] * len(sys.argv[1:])
def ask(i, volume):
    body = b'{"volume":"%s"}' % volume.encode()
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect('/run/bimetal/tank/control.sock')
    s.sendall(b'POST /v1/attach HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n'
              b'content-length: %d\r\n\r\n' % len(body) + body)
    codes[i] = s.makefile('rb').readline().split()[1].decode()
threads = [threading.Thread(target=ask, args=x) for x in enumerate(sys.argv[1:])]
[t.start() for t in threads]; [t.join() for t in threads]
print(' '.join(map(str, codes)))
P
}

# Clients of the API that hang up while a device is mounted take nothing away.
hang_up() {
    local dev before
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt || { failed "hang_up: mkfs and mount"; return; }
    before=$(errors)
    timeout 120 python3 - >&2 <<'P'
import socket, time
body = b'{"volume":"main"}'
request = (b'POST /v1/attach HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n'
           % len(body) + body)
for i in range(200):
    s = socket.socket(socket.AF_UNIX); s.connect('/run/bimetal/tank/control.sock'); s.sendall(request)
    if i % 3: time.sleep(0.0005 * (i % 7))
    s.close()
    time.sleep(0.01)
P
    sleep 1
    check "a mounted device stays when clients of the API hang up" [ -b "$dev" ]
    check "and works" timeout 20 sh -c "echo x >$mnt/x && sync -f $mnt"
    check "no I/O error was caused by them" [ "$before" = "$(errors)" ]
    umount $mnt
    "$bimetal" detach tank/main >&2
    # A command that is killed, or any other client, leaves a device that is known all the same.
    together main
    check "a device that no command has written down is known" until_true 10 sh -c "\"$bimetal\" status tank --json | grep -q '\"device\": \"/dev/ublkb'"
    check "and is detached" "$bimetal" detach tank/main
    check "and gone" no_devices
}

# Devices that are open, but not mounted.
opened() {
    local dev opener sum
    dev=$("$bimetal" attach tank/main --via ublk)
    head -c 4M /dev/urandom >/run/data
    open_and_write "$dev"; opener=$!
    refused "detach of an open device" "is open in process $opener" "$bimetal" detach tank/main
    check "it is there" [ -b "$dev" ]
    refused "stop names who has it open" "is open in process $opener" timeout 40 "$bimetal" stop tank --timeout 4
    check "the status says why" sh -c "\"$bimetal\" status tank | grep -q 'is open in process $opener'"
    check "stop --force does not wait" timeout 60 "$bimetal" stop tank --force --timeout 40
    serve
    check "the device was left to the next daemon" until_true 60 device_is_served
    kill $opener
    check "stop when it was closed" timeout 60 "$bimetal" stop tank --timeout 40
    check "nothing is left of the open device" no_devices
    serve
    until_true 60 serves
    dev=$("$bimetal" attach tank/main --via ublk)
    check "what was in the page cache is there" cmp -n 4194304 "$dev" /run/data
    # Written and closed at once, detached in the next moment.
    head -c 4M /dev/urandom >/run/data
    (exec 7<>"$dev"; cat /run/data >&7; kill -9 $BASHPID)
    check "detach after a writer was killed" "$bimetal" detach tank/main
    dev=$("$bimetal" attach tank/main --via ublk)
    check "what it wrote is there" cmp -n 4194304 "$dev" /run/data
    # Removed under an opener, by force.
    open_and_write "$dev"; opener=$!
    check "detach --force does not wait for who has it open" timeout 60 "$bimetal" detach tank/main --force
    kill -0 $opener || failed "the opener is gone"
    check "and it can be attached again meanwhile" timeout 60 "$bimetal" attach tank/main
    dev=$("$bimetal" attach tank/main)
    check "with what was written" cmp -n 4194304 "$dev" /run/data
    kill -9 "$(daemon_pid tank)"
    kill $opener
    serve
    check "a start does not mind it" until_true 60 device_is_served
    "$bimetal" detach tank/main >&2
    check "no device is left of the open ones" until_true 10 no_devices
}
open_and_write() {
    rm -f /run/opened
    sh -c "exec 7<>$1; cat /run/data >&7; touch /run/opened; exec sleep 1000" &
    until_true 20 [ -e /run/opened ]
}

# File systems that are mounted where nobody sees them: in a container, or unmounted lazily and still in use.
elsewhere() {
    local dev holder pid seen="in use where it cannot be seen from here"
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" || { failed "elsewhere: mkfs"; return; }
    unshare -m sh -c "mount $dev $mnt && echo kept >$mnt/kept && touch /run/there && exec sleep 1000" &
    holder=$!
    until_true 20 [ -e /run/there ] || { failed "elsewhere: mount"; return; }
    refused "detach of what is mounted in another namespace" "$seen" "$bimetal" detach tank/main
    refused "stop names it" "$seen" timeout 60 "$bimetal" stop tank --timeout 8
    kill -9 "$(daemon_pid tank)"
    until_true 20 sh -c "! $bimetal status tank --json | grep -q '\"serving\"'"
    refused "detach --all without a daemon" "$seen" "$bimetal" detach --all
    serve
    until_true 60 device_is_served
    kill $holder
    check "detach when it is gone" until_true 20 "$bimetal" detach tank/main
    dev=$("$bimetal" attach tank/main --via ublk)
    check "its file system is clean" fsck.ext4 -fn "$dev"
    mount "$dev" $mnt && exec 7>$mnt/late || failed "elsewhere: mount again"
    check "what was written there is there" grep -q kept $mnt/kept
    umount -l $mnt
    head -c 4M /run/data >&7 2>/dev/null || head -c 4M /dev/zero >&7
    refused "detach of what was unmounted lazily" "$seen" "$bimetal" detach tank/main
    exec 7>&-
    check "detach when the program has ended" until_true 20 "$bimetal" detach tank/main
    others
}

# A record whose device has the number of another group's by now.
others() {
    local dev other pid
    truncate -s 96M /run/other.fast /run/other.slow
    "$bimetal" create other --fast /run/other.fast --slow /run/other.slow --yes >&2 || { failed "others: create"; return; }
    dev=$("$bimetal" attach tank/main --via ublk)
    other=$("$bimetal" attach other/main --via ublk) || { failed "others: attach"; return; }
    kill -9 "$(daemon_pid tank)"
    until_true 20 sh -c "! $bimetal status tank --json | grep -q '\"serving\"'"
    sed -i "s#\"$dev\"#\"$other\"#" $BIMETAL_RUN_DIR/tank/attachments.json
    refused "detach of a device that is gone" "another.s by now" "$bimetal" detach tank/main --force
    check "what has its number now is left alone" timeout 20 dd if="$other" of=/dev/null bs=64k count=1 iflag=direct status=none
    "$bimetal" stop other --timeout 40 >&2 || failed "others: stop"
    serve
    until_true 60 device_is_served || failed "others: the next daemon"
    "$bimetal" detach tank/main >&2 || failed "others: detach"
}

# Volumes whose device waits for the next daemon are not changed without one.
offline() {
    local dev size
    "$bimetal" volume create tank/second --size 64MiB >&2
    dev=$("$bimetal" attach tank/second --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt && echo kept >$mnt/kept && sync || { failed "offline: mkfs and mount"; return; }
    "$bimetal" stop tank --force --timeout 40 >&2
    refused "delete without a daemon" "attached as $dev.*mounted at $mnt.*not deleted" "$bimetal" volume delete tank/second --yes
    refused "resize without a daemon" "not resized" "$bimetal" volume resize tank/second 32MiB
    refused "rename without a daemon" "not renamed" "$bimetal" volume rename tank/second third
    serve
    check "and the next daemon goes on" until_true 60 device_is_served
    check "with all that is mounted" sh -c "echo more >$mnt/more && sync -f $mnt"
    umount $mnt
    "$bimetal" stop tank --timeout 40 >&2
    serve
    until_true 60 serves
    dev=$("$bimetal" attach tank/second --via ublk)
    # Made smaller by force, it is not taken over.
    "$bimetal" volume resize tank/second 32MiB --force >&2 || blkdiscard -f "$dev"
    "$bimetal" volume resize tank/second 32MiB --force >&2 || failed "offline: shrink by force"
    kill -9 "$(daemon_pid tank)"
    serve
    until_true 60 serves
    check "a device larger than its volume is not taken over" until_true 20 grep -q "what lies beyond would be lost" "$log"
    refused "and no second one is made" "a second one would destroy" "$bimetal" attach tank/second
    "$bimetal" volume resize tank/second 64MiB >&2
    kill -9 "$(daemon_pid tank)"
    serve
    check "with its size back it is" until_true 60 device_is_served
    "$bimetal" detach tank/second >&2
    "$bimetal" volume delete tank/second --yes >&2
}

# A folder for the files on a device of the group itself.
own_ground() {
    local dev
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt && mkdir $mnt/folder || { failed "own_ground: mkfs and mount"; return; }
    "$bimetal" stop tank --force --timeout 40 >&2
    refused "files on the group's own device" "which this daemon serves itself" timeout 60 "$bimetal" serve tank --fuse $mnt/folder
    serve
    check "and the next daemon starts" until_true 60 device_is_served
    umount $mnt
    "$bimetal" detach tank/main >&2
}

# Another user's device, of which the kernel tells nobody who does not name its file. It stays for the rest of the guest's life.
unprivileged() {
    local dev
    dev=$("$bimetal" attach tank/main --via ublk)
    mkfs.ext4 -q "$dev" && mount "$dev" $mnt || { failed "unprivileged: mkfs and mount"; return; }
    check "stop --force leaves the device to the next daemon" "$bimetal" stop tank --force --timeout 30
    chmod 666 /dev/ublk-control
    python3 "$here/unprivileged_ublk.py" >&2 || { echo "skipped: another user's ublk device cannot be made here"; umount -l $mnt; return; }
    refused "delete of a volume whose device waits" "waits for the next daemon" "$bimetal" volume delete tank/main --yes
    refused "rename of it" "waits for the next daemon" "$bimetal" volume rename tank/main other
    serve
    check "beside another user's device ours is taken over" until_true 60 device_is_served
    check "and works" timeout 60 sh -c "echo kept >$mnt/kept && sync -f $mnt"
    umount $mnt
    check "and is detached" "$bimetal" detach tank/main
    dev=$("$bimetal" attach tank/main) || failed "unprivileged: attach"
    check "ublk is the first choice all the same" [ "${dev#/dev/ublkb}" != "$dev" ]
    check "detach --all leaves the other one alone" "$bimetal" detach --all
    check "which is there still" [ "$(devices)" = 1 ]
    foreign=1
}

foreign=0
check "create" "$bimetal" create tank --fast /dev/vda --slow /dev/vdb --volume main:400MiB --yes
serve
until_true 60 serves || failed "the daemon starts"
files() {
    cycle ext4 "-q -E nodiscard" "fsck.ext4 -fn"
    command -v mkfs.xfs >/dev/null && cycle xfs "-q -f -K" "xfs_repair -n" || echo "skipped: mkfs.xfs is not installed"
}

for part in $UBLK_PARTS; do
    if [ "$part" = without_driver ]; then
        echo 'install ublk_drv /bin/false' >/etc/modprobe.d/without-ublk.conf
        without_driver
        rm /etc/modprobe.d/without-ublk.conf
        continue
    fi
    modprobe ublk_drv || { echo "skipped: the guest's kernel has no ublk_drv"; break; }
    $part
done
check "stop" "$bimetal" stop tank
check "bimetal check" "$bimetal" check tank
check "no device of ours is left at the end" [ "$(devices)" = "$foreign" ]
cat "$log" >&2
echo "done"
