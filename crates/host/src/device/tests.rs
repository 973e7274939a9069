use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::{Duration, Instant as Wall};

use bimetal_volume::env::Env;

use super::*;
use crate::probe::loops;
use crate::reactor::Reactor;

fn file_of(size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("temp file");
    file.as_file().set_len(size).expect("room");
    file
}

fn open(env: &HostEnv, file: &tempfile::NamedTempFile) -> HostDevice {
    HostDevice::File(FileDevice::open_here(env, file.path(), Access::SERVE).expect("opens"))
}

fn filled(len: usize, byte: u8) -> Buf {
    let mut buf = BufMut::new(len);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn what_is_written_is_read_and_a_discard_frees_it() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_of((1 << 20) + 1000);
    let path = file.path().to_owned();
    reactor.block_on(async move {
        let device = open(&env, &file);
        assert_eq!(device.size(), 1 << 20);
        device.write(65536, filled(131_072, 9)).await.expect("written");
        device.sync().await.expect("synced");
        let (buf, result) = device.read(61440, BufMut::new(16384)).await;
        result.expect("read");
        assert!(buf[..4096].iter().all(|b| *b == 0) && buf[4096..].iter().all(|b| *b == 9));
        let blocks = std::fs::metadata(&path).expect("there").blocks();
        match device.discard(65536, 131_072).await {
            Ok(()) => assert!(std::fs::metadata(&path).expect("there").blocks() < blocks),
            Err(DeviceError::Unsupported) => eprintln!("skipped: no hole punching on this file system"),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn a_file_is_where_it_was_opened_until_it_is_moved_removed_or_replaced() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let dir = tempfile::tempdir().expect("a folder");
    let (path, other) = (dir.path().join("here"), dir.path().join("there"));
    let make = |path: &std::path::Path| File::create(path).and_then(|f| f.set_len(1 << 20)).expect("made");
    make(&path);
    reactor.block_on(async move {
        let device = HostDevice::File(FileDevice::open_here(&env, &path, Access::SERVE).expect("opens"));
        let is_there = async || device.is_at_its_name().await.expect("asked");
        assert!(is_there().await);
        std::fs::rename(&path, &other).expect("moved");
        assert!(!is_there().await, "nothing is there");
        make(&path);
        assert!(!is_there().await, "another file is there");
        std::fs::remove_file(&path).and_then(|()| std::fs::hard_link(&other, &path)).expect("linked");
        assert!(is_there().await, "the same file again");
    });
}

#[test]
fn a_file_cut_short_is_an_error_and_beyond_its_first_size_there_are_zeros() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_of((1 << 20) - 1000);
    reactor.block_on(async move {
        let device = open(&env, &file);
        let (buf, result) = device.read((1 << 20) - 8192, filled(8192, 3).try_unfreeze().expect("alone")).await;
        result.expect("zeros behind the end");
        assert!(buf.iter().all(|b| *b == 0));
        file.as_file().set_len(4096).expect("cut");
        let (_, result) = device.read(65536, BufMut::new(4096)).await;
        assert_eq!(result, Err(DeviceError::Io(libc::EIO)));
    });
}

#[test]
fn a_dropped_write_still_happens() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_of(1 << 20);
    reactor.block_on(async move {
        let device = open(&env, &file);
        let buf = filled(65536, 5);
        {
            let mut write = Box::pin(device.write(0, buf.clone()));
            std::future::poll_fn(|cx| {
                assert!(write.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        let mut buf = buf.try_unfreeze().expect_err("the operation still owns a handle");
        // It gives it back when the kernel has written it, however slow the machine is.
        while let Err(still_shared) = buf.try_unfreeze() {
            buf = still_shared;
            env.sleep(Duration::from_millis(1)).await;
        }
        let (read, result) = device.read(0, BufMut::new(65536)).await;
        result.expect("read");
        assert!(read.iter().all(|b| *b == 5));
    });
}

#[test]
fn a_second_server_is_refused_by_name() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_of(1 << 20);
    let first = open(&env, &file);
    let error = FileDevice::open_here(&env, file.path(), Access::SERVE).err().expect("refused");
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    FileDevice::open_here(&env, file.path(), Access::PEEK).expect("looking is allowed");
    drop(first);
    let one = FileDevice::open_here(&env, file.path(), Access::INSPECT).expect("free again");
    FileDevice::open_here(&env, file.path(), Access::INSPECT).expect("two may look");
    drop(one);
}

#[test]
fn refusals_are_in_words() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let missing =
        FileDevice::open_here(&env, "/nonexistent/x".as_ref(), Access::SERVE).err().expect("refused").to_string();
    assert!(missing.contains("truncate"), "{missing}");
    let kind = FileDevice::open_here(&env, "/".as_ref(), Access::SERVE).err().expect("refused").to_string();
    assert!(kind.contains("a directory"), "{kind}");
    let kind = FileDevice::open_here(&env, "/dev/null".as_ref(), Access::SERVE).err().expect("refused").to_string();
    assert!(kind.contains("character device"), "{kind}");
}

#[test]
fn a_full_file_system_is_told_apart() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: no /dev/full");
        return;
    }
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    reactor.block_on(async move {
        let full = File::options().write(true).open("/dev/full").expect("opens");
        let device = HostDevice::File(FileDevice::for_test(&env, full.into(), 1 << 20));
        assert_eq!(device.write(0, filled(4096, 1)).await, Err(DeviceError::NoSpace));
    });
}

/// A loop device that goes with the test.
struct Loop(std::path::PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = crate::attach::loop_device::detach(&self.0);
    }
}

#[test]
fn a_block_device_is_taken_alone_and_takes_discards() {
    if !crate::attach::tools::is_root() || !std::path::Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: making a block device needs root and loop devices");
        return;
    }
    let file = file_of(8 << 20);
    let device = match crate::attach::loop_device::attach(file.path(), 4096, false) {
        Ok(path) => Loop(path),
        Err(error) => {
            eprintln!("skipped: no loop device here: {error}");
            return;
        }
    };
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let path = device.0.clone();
    reactor.block_on(async move {
        let open = |access| FileDevice::open_here(&env, &path, access);
        let block = HostDevice::File(open(Access::SERVE).expect("opens"));
        assert_eq!((block.size(), block.sector_sizes().0), (8 << 20, 4096));
        for access in [Access::SERVE, Access::INSPECT] {
            let error = open(access).err().expect("refused");
            assert!(matches!(error, OpenError::Busy { .. }), "{error}");
        }
        open(Access::PEEK).expect("looking is allowed");
        block.write(1 << 20, filled(1 << 20, 6)).await.expect("written");
        block.sync().await.expect("synced");
        let before = std::fs::metadata(file.path()).expect("there").blocks();
        assert!(block.traits().discard, "loop devices over files take discards");
        block.discard(1 << 20, 1 << 20).await.expect("discarded");
        assert!(std::fs::metadata(file.path()).expect("there").blocks() < before);
        let used = crate::probe::usage::of(file.path());
        assert!(matches!(used, Some(crate::probe::usage::Use::Loop { .. })), "{used:?}");
    });
    drop(device);
}

#[test]
fn a_loop_device_is_in_use_if_its_file_is_a_member_or_another_loop_device_over_it_is_held() {
    if !crate::attach::tools::is_root() || !std::path::Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: making a block device needs root and loop devices");
        return;
    }
    let file = file_of(8 << 20);
    let other_name = file.path().with_extension("link");
    std::fs::hard_link(file.path(), &other_name).expect("a second name");
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let made = [file.path(), &other_name].map(|name| crate::attach::loop_device::attach(name, 512, false).map(Loop));
    std::fs::remove_file(&other_name).expect("removed");
    let [Ok(first), Ok(second)] = made else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    let (one, two) = (first.0.clone(), second.0.clone());
    reactor.block_on(async move {
        let open = |path, access| FileDevice::open_here(&env, path, access).map(|_| ()).map_err(|e| e.to_string());
        open(&one, Access::SERVE).expect("nobody uses the other");
        let used = crate::probe::usage::of(&one).expect("not to be made a new member").to_string();
        assert!(used.contains(&two.display().to_string()), "{used}");
        let held = FileDevice::open_here(&env, &two, Access::SERVE).expect("nobody uses the first");
        let refused = open(&one, Access::SERVE).expect_err("they show the same file");
        assert!(refused.contains(&two.display().to_string()), "{refused}");
        drop(held);
        // A group that is served by the name of the file holds a lock on that.
        let member = std::fs::File::open(file.path()).expect("opens");
        member.lock().expect("locked");
        for access in [Access::SERVE, Access::INSPECT] {
            let refused = open(&one, access).expect_err("the file is used");
            assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
        }
        let used = crate::probe::usage::of(&one).expect("in use").to_string();
        assert!(used.contains(&format!("(pid {})", std::process::id())), "{used}");
        open(&one, Access::PEEK).expect("looking is allowed");
    });
}

#[test]
fn a_loop_device_over_a_loop_device_is_in_use_when_that_is() {
    if !crate::attach::tools::is_root() || !std::path::Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: making a block device needs root and loop devices");
        return;
    }
    let file = file_of(8 << 20);
    let over = |path: &std::path::Path| crate::attach::loop_device::attach(path, 512, false).map(Loop);
    let low = match over(file.path()) {
        Ok(low) => low,
        Err(error) => {
            eprintln!("skipped: no loop device here: {error}");
            return;
        }
    };
    let middle = over(&low.0).expect("a loop device of a loop device");
    let top = over(&middle.0).expect("and a third");
    let beside = over(&low.0).expect("another of the lowest");
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let open =
        |path: &Loop, access| FileDevice::open_here(&env, &path.0, access).map(|_| ()).map_err(|e| e.to_string());
    let name = |device: &Loop| device.0.display().to_string();
    open(&top, Access::SERVE).expect("nobody uses what is below");
    assert_eq!(loops::common(&top.0, &low.0).as_deref(), Some(&*low.0));
    assert_eq!(loops::common(&beside.0, &top.0).as_deref(), Some(&*low.0));
    assert_eq!(loops::places_below(&middle.0), [&*low.0, file.path()]);
    let used = crate::probe::usage::of(&low.0).expect("others are made of it").to_string();
    assert!(used.contains("as a loop device"), "{used}");
    let hold = |device: &Loop| OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.0).expect("held");
    // As a mount holds it, or a member.
    for below in [&low, &middle] {
        let holder = hold(below);
        for access in [Access::SERVE, Access::INSPECT] {
            let refused = open(&top, access).expect_err("what it shows is used");
            assert!(refused.contains(&format!("made of {}", name(below))), "{refused}");
        }
        let used = crate::probe::usage::of(&top.0).expect("in use").to_string();
        assert!(used.contains(&format!("made of {}", name(below))), "{used}");
        open(&top, Access::PEEK).expect("looking is allowed");
        drop(holder);
    }
    for (device, held) in [(&top, &beside), (&low, &top), (&beside, &middle)] {
        let holder = hold(held);
        let refused = open(device, Access::SERVE).expect_err("both show the same");
        assert!(refused.contains(&format!("as {}, which is made of", name(held))), "{refused}");
        drop(holder);
    }
    open(&top, Access::SERVE).expect("all is let go");
    drop((top, middle, beside));
}

/// MB/s of sequential requests of `len` with `depth` in flight for about `ms` of modelled time.
fn sequential(model: &str, len: usize, depth: usize, total: usize, write: bool) -> f64 {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_in_memory(1 << 30);
    let spec = emulated::ModelSpec::parse(model).expect("model");
    let below = FileDevice::open_here(&env, file.path(), Access::SERVE).expect("opens");
    let device = HostDevice::Emulated(EmulatedDevice::new(&env, below, &spec));
    reactor.block_on(async move {
        let next = Rc::new(Cell::new(0usize));
        let running = Rc::new(Cell::new(depth));
        let start = Wall::now();
        for _ in 0..depth {
            let (device, next, running) = (device.clone(), next.clone(), running.clone());
            env.spawn(async move {
                while next.get() < total {
                    let at = next.replace(next.get() + len) as u64;
                    if write {
                        device.write(at, filled(len, 1)).await.expect("written");
                    } else {
                        device.read(at, BufMut::new(len)).await.1.expect("read");
                    }
                }
                running.set(running.get() - 1);
            });
        }
        while running.get() > 0 {
            env.sleep(Duration::from_micros(200)).await;
        }
        total as f64 / start.elapsed().as_secs_f64() / 1e6
    })
}

/// A file that is fast wherever the tests run, so that only the model is seen.
fn file_in_memory(size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").or_else(|_| tempfile::NamedTempFile::new());
    let file = file.expect("temp file");
    file.as_file().set_len(size).expect("room");
    file
}

/// Checks a rate: never above the model's, and near it, unless this machine is too busy to tell.
fn keeps(model: &str, wanted: f64, len: usize, depth: usize, total: usize, write: bool) {
    let mut best = 0.0f64;
    // Each takes a fifth of a second: something else that runs for a moment is waited out.
    for _ in 0..20 {
        let rate = sequential(model, len, depth, total, write);
        assert!(rate < wanted * 1.06, "{model}: {rate:.0} MB/s instead of {wanted}");
        best = best.max(rate);
        if best > wanted * 0.9 {
            return;
        }
    }
    let bare = sequential("rate=100G", len, depth, total, write);
    assert!(bare < wanted * 4.0, "{model}: {best:.0} MB/s instead of {wanted}, where the file does {bare:.0}");
    eprintln!("skipped: this machine is too busy to see {wanted} MB/s");
}

#[test]
fn emulated_disks_keep_their_rate() {
    keeps("hdd2012", 177.0, 128 << 10, 1, 32 << 20, false);
    keeps("hdd2012", 177.0, 128 << 10, 8, 32 << 20, false);
    keeps("rate=300M", 300.0, 128 << 10, 1, 48 << 20, false);
    keeps("rate=100M", 100.0, 128 << 10, 4, 16 << 20, true);
    keeps("hdd2012,rate=120M", 120.0, 1 << 20, 2, 24 << 20, true);
}

#[test]
fn an_emulated_disk_seeks_slowly() {
    let reactor = Reactor::new().expect("io_uring");
    let env = reactor.env();
    let file = file_of(1 << 30);
    let spec = emulated::ModelSpec::parse("hdd2012").expect("model");
    let below = FileDevice::open_here(&env, file.path(), Access::SERVE).expect("opens");
    let device = HostDevice::Emulated(EmulatedDevice::new(&env, below, &spec));
    assert!(device.traits().rotational && !device.traits().discard);
    let took = reactor.block_on(async move {
        let start = Wall::now();
        for i in 0..10u64 {
            device.read((i * 7919 * 4096 * 37) % (1 << 30), BufMut::new(4096)).await.1.expect("read");
        }
        start.elapsed()
    });
    assert!(took > Duration::from_millis(60), "ten seeks took only {took:?}");
}
