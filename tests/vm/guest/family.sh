#!/bin/bash
# ublk devices of encrypted volumes: when their daemon has died they wait until somebody types the passphrase, and
# whoever uses them notices nothing but that; locked is locked.
#
#   family.sh PROGRAM     $FAMILY_PART: deaths, ends or locks; $FAMILY_DEATHS: deaths of the daemon, for `deaths`
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
mnt=/run/mnt plain=/run/plain log=$BIMETAL_RUN_DIR/serve.log
mkdir -p $mnt $plain

modprobe ublk_drv || { echo "skipped: the guest's kernel has no ublk_drv"; echo "done"; exit; }
printf 'correct horse' >/run/pass
printf 'battery' >/run/wrong

unlock() { "$bimetal" family unlock tank/private --passphrase-file "${1-/run/pass}"; }
# Something is written through the mount at $1, and durable, within 30 seconds.
works() { timeout 30 sh -c "echo $RANDOM >$1/works && sync -f $1"; }
gone() { "$bimetal" status tank --json | grep -q '"state": "not running"'; }
die() { kill -9 "$(daemon_pid tank)" && until_true 20 gone; }
# A daemon after the one before: it serves the plain volume's device at once.
next() { serve; until_true 60 served 1; }
kept() { [ "$sum" = "$(sha1sum <$mnt/kept)" ]; }
read_some() { timeout 30 dd if="$dev" of=/dev/null bs=64k skip=500 count=16 iflag=direct status=none; }

# What is asked of a group with a device that waits for the passphrase.
questions() {
    refused "attach, while the device waits" "locked.*family unlock" "$bimetal" attach tank/home
    refused "attach by NBD, while the device waits" "locked.*family unlock" "$bimetal" attach tank/home --via nbd
    refused "a wrong passphrase" "wrong passphrase" unlock /run/wrong
    refused "detach, while the device waits" "$dev is mounted at $mnt" "$bimetal" detach tank/home
    check "status says what is locked" sh -c "\"$bimetal\" status tank | grep -q \"Family 'private' is locked\""
    check "the log says that the device waits" grep -q "$dev of 'home' waits until its family is unlocked" "$log"
    refused "a volume whose device waits is not deleted" "attached as $dev" "$bimetal" volume delete tank/home --yes
    refused "nor made smaller" "there is data" "$bimetal" volume resize tank/home 64MiB
    check "the device waits all the same" served 1
}

# Deaths under mounted file systems, with a load on the encrypted one that notices every lost write.
deaths() {
    local load writer i waited=0 wanted=0 served=0
    python3 "$here/ublk_load.py" $mnt/load /run/stop >&2 &
    load=$!
    for i in $(seq "$FAMILY_DEATHS"); do
        sleep "1.$((RANDOM % 10))"
        die || { failed "the daemon dies, death $i"; break; }
        if [ $((i % 3)) = 0 ]; then
            # The passphrase comes at once: the command starts the daemon, too.
            unlock >&2 || failed "unlock at once, death $i"
        else
            next || failed "the device of the plain volume is served, death $i"
            (echo $i >$mnt/late && sync -f $mnt) &
            writer=$!
            [ $i = 1 ] && questions
            # It dies again before anybody came with the passphrase.
            [ $i = 2 ] && { die && next || failed "the device of the plain volume is served after two deaths"; }
            sleep 2
            wanted=$((wanted + 1))
            served 1 && kill -0 $writer && works $plain && waited=$((waited + 1))
            unlock >&2 || failed "unlock, death $i"
            timeout 60 tail --pid=$writer -f /dev/null || { failed "what waited is written, death $i"; break; }
            wait $writer || failed "what waited had no error, death $i"
        fi
        until_true 60 served 2 && works $mnt && served=$((served + 1)) || { failed "it goes on, death $i"; break; }
        kill -0 $load 2>/dev/null || { failed "the load gave up at death $i"; break; }
        echo 3 >/proc/sys/vm/drop_caches
    done
    check "$waited times what was written waited for the passphrase, while a plain volume was served" \
        [ $waited = $wanted ]
    touch /run/stop
    check "fio verified every write through $served deaths of the daemon" wait $load
}

# Orderly ends: the next daemon does not have the key either.
ends() {
    local writer
    check "stop --force leaves the devices" timeout 60 "$bimetal" stop tank --force --timeout 40
    check "the next daemon serves the plain one" next
    (head -c 1M /dev/urandom >$mnt/late && sync -f $mnt) & writer=$!
    sleep 2
    check "what is written to the other one waits" kill -0 $writer
    # A stop waits for whoever waits for the passphrase, which can be given all the same.
    refused "stop, while a device waits" "mounted at $mnt" timeout 60 "$bimetal" stop tank --timeout 3
    refused "attach, while the stop waits" "being stopped" timeout 60 "$bimetal" attach tank/plain
    check "unlock, while the stop waits" unlock
    check "what waited is written" timeout 60 tail --pid=$writer -f /dev/null
    check "without an error" wait $writer
    echo 3 >/proc/sys/vm/drop_caches
    check "what was written before is as it was" kept
    check "unmount for the stop" timeout 60 umount $mnt $plain
    check "the daemon ends when all is released" until_true 30 gone
    serve
    until_true 60 serves || failed "the daemon after the stop"
    refused "attach, locked by the end of the daemon" "locked.*family unlock tank/private" "$bimetal" attach tank/home
    unlock >&2
    dev=$("$bimetal" attach tank/home --via ublk) && mount "$dev" $mnt || failed "attach and mount after the stop"
    other=$("$bimetal" attach tank/plain --via ublk) && mount "$other" $plain || failed "the plain one after the stop"
    check "all is there after it" kept
}

# Locked, in order and by force.
locks() {
    refused "family lock, while a volume is mounted" "in use.*$dev" "$bimetal" family lock tank/private
    umount $mnt
    refused "family lock, while a volume is attached" "in use.*$dev" "$bimetal" family lock tank/private
    check "detach" "$bimetal" detach tank/home
    check "family lock" "$bimetal" family lock tank/private
    refused "attach, locked" "locked.*family unlock tank/private" "$bimetal" attach tank/home
    refused "attach by NBD, locked" "locked.*family unlock tank/private" "$bimetal" attach tank/home --via nbd
    check "the plain volume goes on" works $plain
    check "only its device is there" [ "$(devices)" = 1 ]
    check "unlock" unlock
    dev=$("$bimetal" attach tank/home --via ublk) && mount "$dev" $mnt || failed "attach and mount"
    check "with the passphrase all is there" kept
    check "no I/O error reached a file system until here" [ "$before" = "$(errors)" ]
    # By force, under a file system: errors, as announced, and the device comes back with the key.
    check "family lock --force" timeout 60 "$bimetal" family lock tank/private --force
    refused "what is not in memory cannot be read" "Input/output error" read_some
    check "the plain volume goes on after it" works $plain
    umount $mnt || umount -l $mnt
    check "unlock again" unlock
    check "the device works again" read_some
    fsck.ext4 -fy "$dev" >&2
    mount "$dev" $mnt || failed "mount after a lock by force"
    check "all is there after a lock by force" kept
    before=$(errors)
}

check "create" "$bimetal" create tank --fast /dev/vda --slow /dev/vdb --volume plain:64MiB --yes
serve
until_true 60 serves || failed "the daemon starts"
check "family create" "$bimetal" family create tank/private --cost light --passphrase-file /run/pass
check "volume create" "$bimetal" volume create tank/home --size 400MiB --family private
dev=$("$bimetal" attach tank/home --via ublk) && other=$("$bimetal" attach tank/plain --via ublk) || failed "attach"
mkfs.ext4 -q "$dev" && mkfs.ext4 -q "$other" && mount "$dev" $mnt && mount "$other" $plain || failed "mkfs and mount"
head -c 30M /dev/urandom >$mnt/kept && sync
sum=$(sha1sum <$mnt/kept)
before=$(errors)

$FAMILY_PART
echo 3 >/proc/sys/vm/drop_caches
check "what was written before is as it was" kept
check "no I/O error reached a file system" [ "$before" = "$(errors)" ]
check "unmount" timeout 120 umount $mnt $plain
check "the file system is clean" fsck.ext4 -fn "$dev"
check "detach" "$bimetal" detach tank
check "family lock" "$bimetal" family lock tank/private
refused "attach, locked" "locked.*family unlock tank/private" "$bimetal" attach tank/home
check "stop" "$bimetal" stop tank
check "bimetal check" "$bimetal" check tank
check "no device is left" no_devices
cat "$log" >&2
echo "done"
