//! The demo on a mounted ext4: for root, on a machine with FUSE and loop devices or the kernel's NBD client.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::attach::Via;
use bimetal_host::probe::mounts::{self, Mount};
use bimetal_volume::buf::BufMut;

use super::disk::Disk;
use super::nbd::Nbd;
use super::process::{World, GROUP};
use super::show::Show;
use crate::paths;

/// `O_DIRECT`, so that a read is answered by the volume and not by the page cache. The value is that of x86-64 and
/// most others; aarch64 has its own.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
/// Bytes of one direct read of a whole file: the kernel cuts it into many requests at a time.
const READ: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether this machine can do it, or why not.
pub(crate) fn possible() -> Result<(), String> {
    if !paths::is_root() {
        return Err("that needs root".into());
    }
    let ways = ways();
    if ways.iter().all(|(_, way)| way.is_err()) {
        let why = ways.into_iter().filter_map(|(via, way)| Some(format!("{via}: {}", way.err()?)));
        return Err(why.collect::<Vec<_>>().join("; "));
    }
    for tool in ["mkfs.ext4", "filefrag", "mount", "umount"] {
        let found = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"].iter().any(|d| Path::new(d).join(tool).exists());
        if !found {
            return Err(format!(
                "there is no {tool} (package {})",
                if tool.contains("mount") { "mount" } else { "e2fsprogs" }
            ));
        }
    }
    Ok(())
}

/// Ways to a device that dies with its daemon, as the crash of the demo has it. A ublk device would only wait.
fn ways() -> Vec<(Via, Result<(), String>)> {
    bimetal_host::attach::ways().into_iter().filter(|(via, _)| *via != Via::Ublk).collect()
}

/// An ext4 on the attached volume.
pub(crate) struct Mounted {
    at: PathBuf,
    device: String,
    files: Vec<File>,
    /// Beside the file system, to ask for the tiers of ranges.
    nbd: Nbd,
}

impl Mounted {
    pub(crate) fn new(world: &World, show: &mut Show) -> Result<Mounted> {
        show.line("$ bimetal attach demo/main");
        let at = world.dir.join("mnt");
        std::fs::create_dir_all(&at)?;
        let nbd = Nbd::connect(&world.nbd_socket(), "main")?;
        // From here on nothing may fail without taking the device away.
        let device = attach(world)?;
        show.line(&device);
        show.line(&format!("$ mkfs.ext4 {device} && mount {device} mnt"));
        let mut mounted = Mounted { at, device, files: Vec::new(), nbd };
        let made = tool("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", &mounted.device]);
        if let Err(e) = made.and_then(|_| mounted.mount()) {
            mounted.leave(world)?;
            return Err(e);
        }
        Ok(mounted)
    }

    fn mount(&self) -> Result<()> {
        let at = self.at.display().to_string();
        tool("mount", &["-t", "ext4", "-o", "noatime,noinit_itable", &self.device, &at]).map(|_| ())
    }

    fn unmount(&self) -> Result<()> {
        let at = self.at.display().to_string();
        patiently(|| tool("umount", &[&at]))
    }

    fn path(&self, file: usize) -> PathBuf {
        self.at.join(format!("file-{file:02}"))
    }

    fn is_mounted(&self) -> bool {
        let is_it = |mount: &Mount| mount.source == Path::new(&self.device);
        mounts::all().is_ok_and(|all| all.iter().any(is_it))
    }

    /// Where the file's blocks lie on the volume: offset and length in bytes.
    fn extents(&self, file: usize) -> Result<Vec<(u64, u64)>> {
        let text = tool("filefrag", &["-e", "-b4096", &self.path(file).display().to_string()])?;
        Ok(parse_filefrag(&text))
    }
}

fn attach(world: &World) -> Result<String> {
    let via = ways().into_iter().find(|(_, way)| way.is_ok()).map_or(Via::Fuse, |(via, _)| via).to_string();
    Ok(world.run(&["attach", "--no-start", "--via", &via, GROUP])?.trim().to_string())
}

/// Tries again for a while: whoever looks at all devices of the machine opens ours for a moment, too.
fn patiently(mut step: impl FnMut() -> Result<String>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match step() {
            Ok(_) => return Ok(()),
            Err(e) if begun.elapsed() > PATIENCE => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn tool(name: &str, args: &[&str]) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new(name)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .with_context(|| format!("{name} cannot be started"))?;
    if !out.status.success() {
        bail!("{name} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Lines like `   0:        0..   16383:      34816..     51199:  16384:  ...`, in blocks of 4096.
fn parse_filefrag(text: &str) -> Vec<(u64, u64)> {
    let number = |s: &str| s.trim().trim_end_matches('.').parse::<u64>().ok();
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let start = number(fields.get(2)?.split("..").next()?)?;
            let len = number(fields.get(3)?)?;
            Some((start * 4096, len * 4096))
        })
        .collect()
}

/// Reads past the page cache.
fn read_direct(file: &mut File, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut buf = BufMut::new(len as usize);
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut buf)?;
    Ok(buf.to_vec())
}

impl Disk for Mounted {
    fn add(&mut self, size: u64) -> Result<usize> {
        let number = self.files.len();
        let file = File::options().read(true).write(true).create(true).truncate(true).open(self.path(number))?;
        let _ = size;
        self.files.push(file);
        Ok(number)
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.files[file].write_all_at(data, offset)?)
    }

    fn sync(&mut self, file: usize) -> Result<()> {
        self.files[file].flush()?;
        Ok(self.files[file].sync_all()?)
    }

    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut direct = File::options().read(true).custom_flags(O_DIRECT).open(self.path(file))?;
        read_direct(&mut direct, offset, len)
    }

    fn read_all(&mut self, file: usize, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut direct = File::options().read(true).custom_flags(O_DIRECT).open(self.path(file))?;
        let size = direct.metadata()?.len();
        for offset in (0..size).step_by(READ as usize) {
            each(offset, &read_direct(&mut direct, offset, READ.min(size - offset))?);
        }
        Ok(())
    }

    fn tiers(&mut self, file: usize, at: u64, len: u64) -> Result<(u64, u64)> {
        let (mut fast, mut slow, mut skip, mut left) = (0, 0, at, len);
        for (offset, extent) in self.extents(file)? {
            let before = extent.min(skip);
            let part = (extent - before).min(left);
            (skip, left) = (skip - before, left - part);
            if part > 0 {
                let (f, s) = self.nbd.tiers(offset + before, part)?;
                (fast, slow) = (fast + f, slow + s);
            }
        }
        Ok((fast, slow))
    }

    fn reconnect(&mut self, world: &World) -> Result<()> {
        // The daemon died, so the device is dead: unmount, take it down, attach again, and let ext4 recover.
        let count = self.files.len();
        self.files.clear();
        self.unmount()?;
        patiently(|| world.run(&["detach", GROUP]))?;
        self.device = attach(world)?;
        self.mount()?;
        for i in 0..count {
            self.files.push(File::options().read(true).write(true).open(self.path(i))?);
        }
        self.nbd = Nbd::connect(&world.nbd_socket(), "main")?;
        Ok(())
    }

    fn leave(&mut self, world: &World) -> Result<()> {
        self.files.clear();
        if self.is_mounted() {
            self.unmount()?;
        }
        patiently(|| world.run(&["detach", GROUP]))
    }
}

#[cfg(test)]
mod tests {
    use super::parse_filefrag;

    #[test]
    fn extents_are_read() {
        let text = "\
Filesystem type is: ef53
File size of /mnt/a is 67108864 (16384 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..    8191:      34816..     43007:   8192:
   1:     8192..   16383:      51200..     59391:   8192:      43008: last,eof
/mnt/a: 2 extents found
";
        assert_eq!(parse_filefrag(text), [(34816 * 4096, 8192 * 4096), (51200 * 4096, 8192 * 4096)]);
    }
}
