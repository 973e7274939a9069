#!/bin/bash
# A device that something else uses is refused, in words, as a new member and as a known one.
. "$(dirname "$0")/lib.sh"
a=/dev/vda b=/dev/vdb c=/dev/vdc
mkdir -p /run/mnt

create() { "$bimetal" create "other$BASHPID" --fast "$1" --slow "$2" --yes --force; }

mkfs.ext4 -q $a && mount $a /run/mnt
refused "a mounted device" "mounted on /run/mnt" create $a $b
refused "a mounted device as the slow member" "mounted on /run/mnt" create $b $a
umount /run/mnt
refused "a device with a file system, without --force" "ext4" "$bimetal" create other --fast $a --slow $b --yes

dmsetup create onit --table "0 2048 linear $a 0"
refused "a device under a device-mapper device" "dm-[0-9]+|onit" create $a $b
dmsetup remove onit

mkswap $a >&2 && swapon $a
refused "a device that is swapped to" "swap" create $a $b
swapoff $a

if modprobe -a btrfs loop && command -v mkfs.btrfs >/dev/null && truncate -s 200M /dev/shm/x && l=$(losetup -f --show /dev/shm/x); then
    mkfs.btrfs -q "$l" >&2 && mount "$l" /run/mnt
    refused "a device mounted with btrfs" "/run/mnt|in use|mounted" create "$l" $b
    umount /run/mnt
    losetup -d "$l"
fi

addpart $a 1 2048 100000
mkfs.ext4 -q -F ${a}1 && mount ${a}1 /run/mnt
refused "a disk with a mounted partition" "vda1.*mounted|mounted.*vda1|partition" create $a $b
umount /run/mnt
delpart $a 1
wipefs -aq $a

check "devices that nothing uses are taken" "$bimetal" create tank --fast $a --slow $b --yes --force
refused "a member of a group, without --force" "member of the Bimetal group 'tank'" \
    "$bimetal" create another --fast $c --slow $a --yes
before=$(cat $a $b | md5sum)
dmsetup create onit --table "0 2048 linear $b 2048"
refused "serve while a member is under a device-mapper device" "dm-[0-9]+|onit|in use" "$bimetal" serve tank
dmsetup remove onit
check "members that were refused are unchanged" [ "$before" = "$(cat $a $b | md5sum)" ]

"$bimetal" serve tank >&2 &
check "the group serves when its members are free" until_true 20 "$bimetal" status tank
refused "a member that is being served, in another group" "is in use by bimetal|open in process [0-9]* .*bimetal" create $c $a
refused "a second daemon of the group" "served|running|process" "$bimetal" serve tank
refused "mkfs on a member that is being served" "in use|busy" mkfs.ext4 -q -F $a
check "stop" "$bimetal" stop tank
wait
echo "done"
