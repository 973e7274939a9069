#!/bin/bash
# What members hold of an encrypted volume is what dm-crypt would have written: a reader that knows the format from its
# description alone takes the blocks off the members, cryptsetup opens the header, and the kernel decrypts. Of two
# volumes: `home` is encrypted from its beginning, `was` was plain and is encrypted while a file system on it is in use.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
mnt=/run/mnt
members="/dev/vda /dev/vdb"
mkdir -p $mnt

if ! modprobe -a dm-crypt loop || ! dmsetup targets | grep -q '^crypt '; then
    echo "skipped: the guest's kernel has no dm-crypt"
    echo "done"
    exit
fi

printf 'correct horse' >/run/pass
sums() { (cd $mnt && find . -type f -exec md5sum {} + | sort -k 2 | md5sum); }
python() { PYTHONDONTWRITEBYTECODE=1 python3 "$@"; }
# field NAME: a number of the reader's JSON, on standard input.
field() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

check "create" "$bimetal" create tank --fast /dev/vda --slow /dev/vdb --sector 512 --volume was:24MiB --yes
check "family create" "$bimetal" family create tank/private --cost light --passphrase-file /run/pass
check "volume create" "$bimetal" volume create tank/home --size 80MiB --family private

# What was plain, in use while it is encrypted.
dev=$("$bimetal" attach tank/was) || failed "attach"
mkfs.ext4 -q -b 1024 "$dev" && mount "$dev" $mnt || failed "mkfs and mount"
head -c 6M /dev/urandom >$mnt/before && sync
"$bimetal" volume encrypt tank/was --family private --yes --wait >&2 & encrypting=$!
for i in 1 2 3 4 5 6; do
    head -c 1234567 /dev/urandom >$mnt/meanwhile$i && sync -f $mnt
done
rm $mnt/meanwhile[24]
check "a plain volume is encrypted while it is in use" wait $encrypting
head -c 1M /dev/urandom >$mnt/after && fstrim $mnt
sum=$(sums)
umount $mnt || failed "umount"

dev=$("$bimetal" attach tank/home) || failed "attach"
load=$(python "$here/crypt_load.py" "$dev" /run/shadow 7) || failed "load"
echo "home: $load, through $dev"
check "export-header" "$bimetal" family export-header tank/private /run/exported
"$bimetal" detach tank >&2 || failed "detach"
check "stop" "$bimetal" stop tank
check "bimetal check" "$bimetal" check tank

# The key, by cryptsetup, from the header as it lies on the members.
check "the reader finds the header on the members" python "$here/crypt_reader.py" header private /run/header $members
check "it is the one that was exported" cmp /run/header /run/exported
check "cryptsetup opens it" cryptsetup luksDump --batch-mode --key-file /run/pass --dump-volume-key --volume-key-file \
    /run/family.key /run/header

for volume in home was; do
    python "$here/crypt_reader.py" volume $volume /run/family.key /run/$volume $members >/run/$volume.json ||
        failed "$volume: the reader"
    echo "$volume: chunks on the fast tier $(field fast </run/$volume.json), on the slow tier" \
        "$(field slow </run/$volume.json), with a kept copy $(field copies </run/$volume.json), with blocks that are" \
        "not valid $(field partial </run/$volume.json); valid blocks $(field valid </run/$volume.json)"
done
check "home lies on both tiers, some of its chunks in part" [ "$(field fast </run/home.json)" -gt 0 -a \
    "$(field slow </run/home.json)" -gt 0 -a "$(field partial </run/home.json)" -gt 0 ]
"$bimetal" dump tank --json >/run/dump.json
same_map() {
    python - <<'E'
import json
dump = [e for e in json.load(open("/run/dump.json"))["entries"]]
for volume in ("home", "was"):
    theirs = [[e["chunk"], e["member"], e["slot"], int(str(e["mask"]), 0)] for e in dump if e["volume"] == volume]
    assert sorted(theirs) == json.load(open(f"/run/{volume}.json"))["entries"], volume
E
}
check "bimetal dump has the same map" same_map

refused "attach while the family is locked" "locked" "$bimetal" attach tank/home
check "family unlock" "$bimetal" family unlock tank/private --passphrase-file /run/pass

# crypt VOLUME KEY [OPTION]: a dm-crypt device on what the reader found, compared; the numbers become variables.
crypt() {
    local volume=$1 key=$2 options=${3-2 sector_size:4096 iv_large_sectors} loop shadow=
    [ $volume = home ] && shadow=/run/shadow
    loop=$(losetup -r -f --show /run/$volume) || return
    compared=0 different=0 invalid=0 nonzero=0 wrong=0
    if dmsetup create --readonly plain --table \
        "0 $(blockdev --getsz "$loop") crypt aes-xts-plain64 $key 0 $loop 0 $options"; then
        eval "$(python "$here/crypt_compare.py" /dev/mapper/plain "$dev" /run/$volume.valid $shadow)"
        dmsetup remove --retry plain
    fi
    losetup -d "$loop"
}

for volume in home was; do
    dev=$("$bimetal" attach tank/$volume) || failed "attach"
    key=$(cat /run/$volume.key)
    crypt $volume "$key"
    echo "$volume: compared $compared blocks, $different differ; of $invalid that are not valid $nonzero do not read as zeros"
    check "$volume: dm-crypt reads all valid blocks as they are served" \
        [ "$compared" -gt 1000 -a "$compared" = "$(field valid </run/$volume.json)" -a "$different" = 0 ]
    check "$volume: all others read as zeros" [ "$invalid" -gt 0 -a "$nonzero" = 0 ]
    if [ $volume = home ]; then
        check "home: what is served is what was written" [ "$compared" -gt 0 -a "$wrong" = 0 ]
    fi
    # The comparison can fail: another key, and sectors that are counted in another way.
    crypt $volume "$(tr 0123456789abcdef 123456789abcdef0 <<<"$key")"
    check "$volume: under another key all blocks differ ($different of $compared)" \
        [ "$compared" -gt 0 -a "$different" = "$compared" ]
    crypt $volume "$key" "1 sector_size:4096"
    check "$volume: with other numbers of sectors they do ($different of $compared)" \
        [ "$compared" -gt 0 -a "$different" -ge $((compared - 1)) ]
done
mount -o ro "$dev" $mnt && check "was: every file is as it was" [ "$sum" = "$(sums)" ]
umount $mnt
"$bimetal" detach tank >&2
check "family lock" "$bimetal" family lock tank/private
check "stop" "$bimetal" stop tank
echo "done"
