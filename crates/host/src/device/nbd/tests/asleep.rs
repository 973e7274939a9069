//! Disks that sleep, or cannot read the block of the lease, when somebody asks who serves them.

use std::time::Duration;

use super::lease::{holder, on_a_member, peek, serve, SIZE, UNUSED};
use super::*;
use bimetal_format::layout;
use bimetal_format::lease::Lease;

use crate::device::nbd::lease::{ask, block_of, challenge, of_this_process, Ground};

/// What a member's own machine sees of it.
struct Disk {
    env: HostEnv,
    device: NbdDevice,
    /// A label takes so long to be read.
    label_takes: Duration,
    /// The block of the lease cannot be read so many times more.
    unread: Cell<u32>,
    /// Nor written.
    unwritten: bool,
    /// To write it takes so long.
    put_takes: Duration,
    /// Who has come when it is written so often, and writes his own over that when he looks.
    comes: Option<(u32, Lease)>,
    puts: Cell<u32>,
}

impl Ground for Disk {
    fn size(&self) -> u64 {
        self.device.size()
    }

    async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        match offset == layout::lease(SIZE) {
            true if self.unread.get() > 0 => {
                self.unread.set(self.unread.get() - 1);
                return (buf, Err(DeviceError::Io(5)));
            }
            true => {}
            false => self.env.sleep(self.label_takes).await,
        }
        self.device.read(offset, buf).await
    }

    async fn put(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        self.env.sleep(self.put_takes).await;
        if self.unwritten {
            return Err(DeviceError::Io(5));
        }
        self.device.write(offset, data).await?;
        self.puts.set(self.puts.get() + 1);
        if let Some((_, other)) = self.comes.filter(|(puts, _)| *puts == self.puts.get()) {
            let (env, device) = (self.env.clone(), self.device.clone());
            self.env.spawn(async move {
                env.sleep(Duration::from_millis(100)).await;
                device.write(offset, block_of(&other).freeze()).await.expect("written");
            });
        }
        Ok(())
    }
}

async fn disk(env: &HostEnv, locator: &NbdLocator) -> Disk {
    let device = peek(env, locator).await;
    let (label_takes, put_takes, unread, puts) = Default::default();
    Disk { env: env.clone(), device, label_takes, unread, unwritten: false, put_takes, comes: None, puts }
}

/// Longer than whoever asks for a member with a clean label waits.
const LONG: Duration = Duration::from_millis(1000);

#[test]
fn a_holder_is_found_however_long_a_label_takes() {
    on_a_member(async |env, locator, _server| {
        let first = serve(&env, &locator).await.expect("nobody has it");
        let sleeps = Disk { label_takes: LONG, ..disk(&env, &locator).await };
        let taken = challenge(&env, &sleeps, &of_this_process(&env), layout::lease(SIZE)).await;
        assert!(taken.is_err(), "the first has taken it back");
        let asked = ask(&env, &sleeps).await;
        assert!(asked.is_err_and(|e| e.to_string().contains("which serves it")), "a disk that sleeps is asked, too");
        first.write(0, pattern(1, 4096)).await.expect("it cost the first nothing");
    });
}

#[test]
fn of_two_who_find_nobody_the_one_that_is_slow_to_say_so_is_refused() {
    on_a_member(async |env, locator, _server| {
        let late = Disk { put_takes: Duration::from_millis(1500), ..disk(&env, &locator).await };
        let (own, result) = (of_this_process(&env), Rc::new(Cell::new(None)));
        let (asked, told) = (env.clone(), result.clone());
        env.spawn(async move {
            let taken = challenge(&asked, &late, &own, layout::lease(SIZE)).await;
            told.set(Some(taken.is_ok()));
        });
        // The first has read by now.
        env.sleep(Duration::from_millis(100)).await;
        let first = serve(&env, &locator).await.expect("nobody has it");
        while result.get().is_none() {
            env.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(result.get(), Some(false), "the first has taken it back");
        first.write(0, pattern(1, 4096)).await.expect("it is the holder");
    });
}

#[test]
fn of_two_who_find_a_dead_holder_only_one_comes_to_serve() {
    on_a_member(async |env, locator, _server| {
        drop(serve(&env, &locator).await.expect("nobody has it"));
        let late = Disk { put_takes: Duration::from_millis(1500), ..disk(&env, &locator).await };
        assert!(holder(&late.device).await.is_some(), "the lease of one that is gone is still there");
        let result = Rc::new(Cell::new(None));
        let (asked, told) = (env.clone(), result.clone());
        env.spawn(async move { told.set(Some(ask(&asked, &late).await.is_ok())) });
        // It has read by now.
        env.sleep(Duration::from_millis(100)).await;
        let first = serve(&env, &locator).await.expect("nobody has it");
        while result.get().is_none() {
            env.sleep(Duration::from_millis(10)).await;
        }
        env.sleep(LONG).await;
        assert_eq!(result.get(), Some(false), "the first has taken it back");
        first.write(0, pattern(2, 4096)).await.expect("it serves");
    });
}

#[test]
fn who_comes_while_somebody_is_slow_to_say_that_he_has_it_is_found() {
    on_a_member(async |env, locator, _server| {
        drop(serve(&env, &locator).await.expect("nobody has it"));
        let other = Lease { group: [1; 16], nonce: 7, boot: [9; 16], namespace: 4, process: 1, began: 3 };
        let late = Duration::from_millis(60);
        let late = Disk { put_takes: late, comes: Some((2, other)), ..disk(&env, &locator).await };
        let asked = ask(&env, &late).await;
        assert!(asked.is_err_and(|e| e.to_string().contains("of another machine")), "that one has looked by now");
    });
}

#[test]
fn who_comes_while_somebody_waits_for_a_label_after_the_last_look_is_found() {
    on_a_member(async |env, locator, _server| {
        drop(serve(&env, &locator).await.expect("nobody has it"));
        let sleeps = Disk { label_takes: LONG, ..disk(&env, &locator).await };
        let result = Rc::new(Cell::new(None));
        let (asked, told) = (env.clone(), result.clone());
        env.spawn(async move { told.set(Some(ask(&asked, &sleeps).await.is_ok())) });
        // It has read a label three times: before it writes the block, before it looks and, still, after that.
        env.sleep(LONG * 2 + LONG / 4).await;
        let first = serve(&env, &locator).await.expect("who looks at nothing answers nothing");
        assert_eq!(result.get(), None, "it waits for the label");
        while result.get().is_none() {
            env.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(result.get(), Some(false), "the first has it");
        first.write(UNUSED, pattern(1, 4096)).await.expect("it serves");
    });
}

#[test]
fn a_holder_is_found_although_its_block_cannot_be_read_at_first() {
    on_a_member(async |env, locator, _server| {
        let first = serve(&env, &locator).await.expect("nobody has it");
        let rotten = Disk { unread: Cell::new(2), ..disk(&env, &locator).await };
        assert!(ask(&env, &rotten).await.is_err(), "the first has taken it back");
        first.write(0, pattern(1, 4096)).await.expect("it cost the first nothing");
        drop(first);
        let rotten = Disk { unread: Cell::new(2), ..disk(&env, &locator).await };
        ask(&env, &rotten).await.expect("nobody has it any more");
        assert_eq!(holder(&rotten.device).await, None, "nobody has to be waited for");
    });
}

#[test]
fn a_block_that_can_neither_be_read_nor_written_keeps_nobody_out_for_ever() {
    on_a_member(async |env, locator, _server| {
        let rotten = Disk { unread: Cell::new(u32::MAX), unwritten: true, ..disk(&env, &locator).await };
        let began = env.now();
        ask(&env, &rotten).await.expect("who serves it has given it up by then");
        assert!(env.now().since(began) >= Duration::from_millis(700));
    });
}
