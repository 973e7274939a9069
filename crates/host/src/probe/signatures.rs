//! What else lives on a device: file systems, RAID, encryption, partition tables.
//!
//! A table of our own, of magic numbers and where they stand. (libblkid knows more, but it is a C library with another
//! idea of certainty: it stays silent when it finds two things at once. Here whatever is found is told.)

use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device, DeviceError};

/// Bytes looked at from the start, and from the end.
const HEAD: u64 = (1 << 20) + 8192;
/// The last two labels of ZFS, on a device whose size is no multiple of theirs.
const TAIL: u64 = 768 << 10;

/// The parts of a device where signatures stand.
pub struct Sample {
    size: u64,
    head: Vec<u8>,
    /// The last bytes, up to `size`.
    tail: Vec<u8>,
}

impl Sample {
    /// Reads the parts of any device.
    pub async fn read<D: Device>(device: &D) -> Result<Sample, DeviceError> {
        let size = device.size();
        let (buf, result) = device.read(0, BufMut::new(size.min(HEAD) as usize)).await;
        result?;
        let head = buf.to_vec();
        let len = size.min(TAIL);
        let (buf, result) = device.read(size - len, BufMut::new(len as usize)).await;
        result?;
        Ok(Sample { size, head, tail: buf.to_vec() })
    }

    /// With what lies behind the last whole block of the device.
    pub fn with_rest(mut self, rest: &[u8]) -> Sample {
        self.size += rest.len() as u64;
        self.tail.extend_from_slice(rest);
        self
    }

    /// From a whole image.
    pub fn of_image(image: &[u8]) -> Sample {
        let (head, tail) = (image.len().min(HEAD as usize), image.len().min(TAIL as usize));
        Sample { size: image.len() as u64, head: image[..head].to_vec(), tail: image[image.len() - tail..].to_vec() }
    }

    /// The `len` bytes at `offset`, if they were read.
    fn at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let tail_start = self.size - self.tail.len() as u64;
        let (part, from) = if offset + len as u64 <= self.head.len() as u64 {
            (&self.head, offset)
        } else {
            (&self.tail, offset.checked_sub(tail_start)?)
        };
        part.get(from as usize..from as usize + len)
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    /// Everything that was recognised, each thing once.
    pub fn signatures(&self) -> Vec<&'static str> {
        let mut found: Vec<&'static str> = Vec::new();
        let mut add = |name| {
            if !found.contains(&name) {
                found.push(name);
            }
        };
        for (name, offset, magic) in FIXED {
            if self.has(*offset, magic) {
                add(*name);
            }
        }
        for check in CHECKS {
            check(self).into_iter().for_each(&mut add);
        }
        found
    }
}

impl Sample {
    /// What keeps all that it is recognised by at the end of its devices, and its data from their first byte on. Each leg of such a
    /// mirror shows what the mirror shows.
    pub fn mirror(&self) -> Option<&'static str> {
        [raid_at_end, drbd, fake_raid].into_iter().find_map(|check| check(self))
    }
}

/// Name, offset from the start, magic bytes.
const FIXED: &[(&str, u64, &[u8])] = &[
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x10040, b"_BHRfS_M"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("a ReFS file system", 3, b"ReFS\0\0\0\0"),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS encrypted volume", 0x4000, b"SKUL\xba\xbe"),
    ("a LUKS encrypted volume", 0x8000, b"SKUL\xba\xbe"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("a member of an MD RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("a member of an MD RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    ("a bcache device", 4096 + 24, BCACHE),
    ("a bcachefs file system", 4096 + 24, BCACHEFS),
    ("a snapshot of the device mapper", 0, b"SnAp"),
    ("a UBI image", 0, b"UBI#"),
    ("a VDO device", 0, b"dmvdo001"),
    ("a dm-integrity device", 0, b"integrt\0"),
    ("a dm-verity device", 0, b"verity\0\0"),
    ("a Stratis device", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a Stratis device", 4608 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a Ceph BlueStore", 0, b"bluestore block device"),
    ("an APFS container", 32, b"NXSB"),
    ("an HFS file system", 1024, b"H+\x00\x04"),
    ("an HFS file system", 1024, b"HX\x00\x05"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("a JFS file system", 32768, b"JFS1"),
    ("a ReiserFS file system", 65536 + 52, b"ReIsEr"),
    ("a Reiser4 file system", 65536, b"ReIsEr4"),
    ("a GFS2 file system", 65536, b"\x01\x16\x19\x70"),
    ("an OCFS2 file system", 8192, b"OCFSV2"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("a UDF file system", 32769, b"BEA01"),
    ("a VMFS file system", 0x10_0000, b"\x0d\xd0\x01\xc0"),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 4096 - 10, b"SWAP-SPACE"),
    ("swap space", 16384 - 10, b"SWAPSPACE2"),
    ("swap space", 65536 - 10, b"SWAPSPACE2"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
];

const BCACHE: &[u8] = &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];

type Check = fn(&Sample) -> Option<&'static str>;

/// What a magic number at a fixed place is not enough for.
const CHECKS: &[Check] = &[
    ext,
    ufs,
    hfs,
    core_storage,
    partition_table,
    apple_map,
    sun_label,
    backup_gpt,
    raid_at_end,
    zfs,
    drbd,
    fake_raid,
    nilfs,
    hibernated,
];

/// ext2, ext3 and ext4 have a short magic number; the block size beside it must make sense too.
fn ext(s: &Sample) -> Option<&'static str> {
    let log_block_size = u32::from_le_bytes(s.at(1024 + 24, 4)?.try_into().ok()?);
    (s.has(1024 + 56, b"\x53\xef") && log_block_size <= 6).then_some("an ext2, ext3 or ext4 file system")
}

/// UFS1 and UFS2, of machines of either byte order, with the superblock where one of the two keeps it.
fn ufs(s: &Sample) -> Option<&'static str> {
    let magics = [0x0001_1954_u32, 0x1954_0119];
    let at = |offset: u64| {
        let found = s.at(offset + 1372, 4).and_then(|bytes| bytes.try_into().ok());
        found.is_some_and(|m| magics.contains(&u32::from_le_bytes(m)) || magics.contains(&u32::from_be_bytes(m)))
    };
    [0, 8192, 65536, 256 << 10].into_iter().any(at).then_some("a UFS file system")
}

/// The first HFS has a magic of two bytes; the size of its blocks and the length of its name must make sense too.
fn hfs(s: &Sample) -> Option<&'static str> {
    let block = u32::from_be_bytes(s.at(1024 + 20, 4)?.try_into().ok()?);
    let name = s.at(1024 + 36, 1)?[0];
    let sane = block != 0 && block % 512 == 0 && (1..=27).contains(&name);
    (s.has(1024, b"BD") && sane).then_some("an HFS file system")
}

/// CoreStorage (FileVault 2, Fusion Drive): a magic of two bytes, the kind of its checksum, and the size of its blocks.
fn core_storage(s: &Sample) -> Option<&'static str> {
    let block = u32::from_le_bytes(s.at(96, 4)?.try_into().ok()?);
    let sane = block.is_power_of_two() && (512..=1 << 20).contains(&block);
    (s.has(88, b"CS\x01\0\0\0") && sane).then_some("a CoreStorage volume")
}

/// Apple's own partition table: its entries begin in the second block, whose size the first one tells.
fn apple_map(s: &Sample) -> Option<&'static str> {
    let block = u64::from(u16::from_be_bytes(s.at(2, 2)?.try_into().ok()?));
    let sizes = [512, 1024, 2048, 4096];
    let described = s.has(0, b"ER") && sizes.contains(&block) && [512, block].iter().any(|at| s.has(*at, b"PM"));
    let entry = s.has(512, b"PM") && s.has(512 + 48, b"Apple_");
    (described || entry).then_some("an Apple partition table")
}

/// Sun's label has a magic of two bytes, and all of its words give zero by exclusive or.
fn sun_label(s: &Sample) -> Option<&'static str> {
    let sum = s.at(0, 512)?.chunks_exact(2).fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]]);
    (s.has(508, b"\xda\xbe") && sum == [0, 0]).then_some("a Sun partition table")
}

/// An MBR counts when it has a partition: boot sectors of file systems end the same way.
fn partition_table(s: &Sample) -> Option<&'static str> {
    let sector = s.at(0, 512)?;
    let entries = || sector[446..510].chunks_exact(16);
    let sane = entries().all(|e| e[0] & 0x7f == 0);
    let used = entries().any(|e| e[4] != 0 && e[12..16] != [0; 4]);
    (sector[510..] == [0x55, 0xaa] && sane && used).then_some("an MBR partition table")
}

fn backup_gpt(s: &Sample) -> Option<&'static str> {
    let found = [512, 4096].iter().any(|n| s.size.checked_sub(*n).is_some_and(|at| s.has(at, b"EFI PART")));
    found.then_some("a GPT partition table")
}

/// MD metadata 0.90 and 1.0 stand near the end.
fn raid_at_end(s: &Sample) -> Option<&'static str> {
    let old = (s.size & !0xffff).checked_sub(0x1_0000);
    let new = (s.size / 512).checked_sub(16).map(|sectors| (sectors & !7) * 512);
    let magic = [b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc"];
    let found = [old, new].into_iter().flatten().any(|at| magic.iter().any(|m| s.has(at, *m)));
    found.then_some("a member of an MD RAID")
}

/// ZFS keeps a ring of uberblocks in the second half of each 256 KiB label; a few of them at least are in use. Two labels are at the
/// start, and two at the end.
fn zfs(s: &Sample) -> Option<&'static str> {
    let magic = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];
    let end = s.size & !((256 << 10) - 1);
    let labels = [Some(0), Some(256 << 10), end.checked_sub(512 << 10), end.checked_sub(256 << 10)];
    let found = labels
        .into_iter()
        .flatten()
        .any(|label| (0..128u64).any(|i| magic.iter().any(|m| s.has(label + (128 << 10) + i * 1024, m))));
    found.then_some("a member of a ZFS pool")
}

/// Internal metadata of DRBD begins 4 KiB before the end.
fn drbd(s: &Sample) -> Option<&'static str> {
    let magic = u32::from_be_bytes(s.at(s.size.checked_sub(4096)? + 60, 4)?.try_into().ok()?);
    (0x8374_026a..=0x8374_026d).contains(&magic).then_some("a DRBD device")
}

/// RAID of a mainboard: Intel's, or the common disk data format.
fn fake_raid(s: &Sample) -> Option<&'static str> {
    let end = |back, magic: &[u8]| s.size.checked_sub(back).is_some_and(|at| s.has(at, magic));
    let found = end(1024, b"Intel Raid ISM Cfg Sig. ") || end(512, b"\xde\x11\xde\x11");
    found.then_some("a member of a mainboard's RAID")
}

/// Swap space that holds what was in the memory of a machine: it is told at the end of the first page, of whatever size.
fn hibernated(s: &Sample) -> Option<&'static str> {
    let magics: [&[u8]; 4] = [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001"];
    let at = |page: u64| magics.iter().any(|magic| s.has(page - 10, magic));
    [4, 8, 16, 32, 64].into_iter().any(|kib| at(kib << 10)).then_some("swap space with a machine that is hibernated")
}

/// NILFS2 has a magic of two bytes; the header size beside it must fit.
fn nilfs(s: &Sample) -> Option<&'static str> {
    let bytes = u16::from_le_bytes(s.at(1024 + 8, 2)?.try_into().ok()?);
    (s.has(1024 + 6, b"\x34\x34") && (64..=1024).contains(&bytes)).then_some("a NILFS2 file system")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn image_with(offset: usize, magic: &[u8]) -> Vec<u8> {
        let mut image = vec![0u8; 4 << 20];
        image[offset..offset + magic.len()].copy_from_slice(magic);
        image
    }

    #[test]
    fn empty_and_random_devices_carry_nothing() {
        assert!(Sample::of_image(&[]).signatures().is_empty());
        assert!(Sample::of_image(&vec![0; 5 << 20]).signatures().is_empty());
        let mut seed = 88172645463325252u64;
        let random: Vec<u8> = (0..3 << 20)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        assert!(Sample::of_image(&random).signatures().is_empty());
        for len in [1, 511, 512, 4095, 4096, 70_000] {
            Sample::of_image(&random[..len]).signatures();
        }
    }

    #[test]
    fn every_fixed_signature_is_found() {
        for (name, offset, magic) in FIXED {
            let found = Sample::of_image(&image_with(*offset as usize, magic)).signatures();
            assert!(found.contains(name), "{name} at {offset}: {found:?}");
            assert_eq!(Sample::of_image(&image_with(*offset as usize, magic)).mirror(), None, "{name} at {offset}");
        }
    }

    #[test]
    fn signatures_at_the_end_are_found() {
        let size = 4 << 20;
        for (offset, magic, name) in [
            (size - 512, &b"EFI PART"[..], "a GPT partition table"),
            (size - 0x1_0000, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
            (size - 8192, b"\xfc\x4e\x2b\xa9", "a member of an MD RAID"),
            (size - 4096 + 60, b"\x83\x74\x02\x6b", "a DRBD device"),
            (size - 1024, b"Intel Raid ISM Cfg Sig. ", "a member of a mainboard's RAID"),
        ] {
            let found = Sample::of_image(&image_with(offset, magic));
            assert_eq!(found.signatures(), [name]);
            assert_eq!(found.mirror(), (name != "a GPT partition table").then_some(name));
        }
        let zfs = image_with((128 << 10) + 5 * 1024, &0x00ba_b10c_u64.to_le_bytes());
        assert_eq!(Sample::of_image(&zfs).signatures(), ["a member of a ZFS pool"]);
    }

    #[test]
    fn the_labels_of_zfs_at_the_end_are_found() {
        for rest in [0, 4096, 200 << 10] {
            for back in [512 << 10, 256 << 10] {
                let mut image = image_with((4 << 20) - back + (128 << 10) + 3 * 1024, &0x00ba_b10c_u64.to_be_bytes());
                image.resize((4 << 20) + rest, 0);
                assert_eq!(Sample::of_image(&image).signatures(), ["a member of a ZFS pool"], "{back} {rest}");
            }
        }
    }

    #[test]
    fn ufs_and_hibernated_machines_are_found() {
        for at in [8192, 65536] {
            for magic in [b"\x54\x19\x01\0", b"\0\x01\x19\x54", b"\x19\x01\x54\x19", b"\x19\x54\x01\x19"] {
                let found = Sample::of_image(&image_with(at + 1372, magic)).signatures();
                assert_eq!(found, ["a UFS file system"], "{magic:x?} at {at}");
            }
        }
        for (page, magic) in [(4096, "S1SUSPEND"), (4096, "ULSUSPEND"), (16384, "S2SUSPEND"), (65536, "LINHIB0001")] {
            let found = Sample::of_image(&image_with(page - 10, magic.as_bytes())).signatures();
            assert_eq!(found, ["swap space with a machine that is hibernated"], "{magic}");
        }
    }

    /// What has a magic number of two bytes counts only with what else must stand there.
    #[test]
    fn short_magic_numbers_do_not_count_alone() {
        let found = |pieces: &[(usize, &[u8])]| {
            let mut image = vec![0u8; 4 << 20];
            pieces.iter().for_each(|(at, bytes)| image[*at..at + bytes.len()].copy_from_slice(bytes));
            Sample::of_image(&image).signatures()
        };
        let none: [&str; 0] = [];
        let block: (usize, &[u8]) = (1024 + 20, &[0, 0, 2, 0]);
        let name: (usize, &[u8]) = (1024 + 36, &[4]);
        assert_eq!(found(&[(1024, b"BD"), block, name]), ["an HFS file system"]);
        assert_eq!(found(&[(1024, b"BD"), name]), none);
        assert_eq!(found(&[(1024, b"BD"), block]), none);
        assert_eq!(found(&[(0, b"ER\x02\0"), (512, b"PM")]), ["an Apple partition table"]);
        assert_eq!(found(&[(0, b"ER\x08\0"), (2048, b"PM")]), ["an Apple partition table"]);
        assert_eq!(found(&[(512, b"PM"), (560, b"Apple_partition_map")]), ["an Apple partition table"]);
        assert_eq!(found(&[(0, b"ER\x02\0")]), none);
        assert_eq!(found(&[(512, b"PM")]), none);
        assert_eq!(found(&[(508, b"\xda\xbe"), (510, b"\xda\xbe")]), ["a Sun partition table"]);
        assert_eq!(found(&[(508, b"\xda\xbe\x12\x34")]), none);
        assert_eq!(found(&[(88, b"CS\x01\0\0\0\x02\0\0\x10\0\0")]), ["a CoreStorage volume"]);
        assert_eq!(found(&[(88, b"CS")]), none);
    }

    #[test]
    fn a_boot_sector_without_partitions_is_no_table() {
        let mut image = image_with(510, b"\x55\xaa");
        assert!(Sample::of_image(&image).signatures().is_empty());
        image[446 + 4] = 0x83;
        image[446 + 12] = 9;
        assert_eq!(Sample::of_image(&image).signatures(), ["an MBR partition table"]);
    }

    /// What the tools make is recognised; tools that are not here are named.
    #[test]
    fn what_mkfs_makes_is_recognised() {
        let dir = tempfile::tempdir().expect("temp dir");
        for (tool, args, size, word) in [
            ("mkfs.ext4", &["-q", "-F"][..], 16u64, "ext4"),
            ("mkfs.ext2", &["-q", "-F"], 16, "ext2"),
            ("mkfs.xfs", &["-q", "-f"], 512, "XFS"),
            ("mkfs.btrfs", &["-q", "-f"], 256, "btrfs"),
            ("mkfs.vfat", &[], 16, "FAT"),
            ("mkfs.ntfs", &["-q", "-F", "-f"], 16, "NTFS"),
            ("mkfs.exfat", &[], 16, "exFAT"),
            ("mkfs.f2fs", &["-q", "-f"], 128, "F2FS"),
            ("mkswap", &["-q"], 16, "swap"),
            (
                "cryptsetup",
                &[
                    "-q",
                    "luksFormat",
                    "--type",
                    "luks2",
                    "--pbkdf",
                    "pbkdf2",
                    "--pbkdf-force-iterations",
                    "1000",
                    "--key-file",
                    "/etc/hostname",
                ],
                32,
                "LUKS",
            ),
        ] {
            let path = dir.path().join(tool);
            std::fs::File::create(&path).and_then(|f| f.set_len(size << 20)).expect("room");
            let mut command = Command::new(tool);
            let path_var = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
            command.env("PATH", path_var).args(args).arg(&path).stdin(Stdio::null());
            match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
                Ok(status) if status.success() => {}
                _ => {
                    eprintln!("skipped: {tool} is not installed or does not work here");
                    continue;
                }
            }
            let found = Sample::of_image(&std::fs::read(&path).expect("image")).signatures();
            assert!(found.iter().any(|f| f.contains(word)), "{tool}: {found:?}");
        }
    }
}
