//! What a 4 KiB request costs in the engine: requests that are always under way, from inside the process, without a server.
//! Usage: `engine_cost memory|ring FAST SLOW [DEPTH] [SECONDS]`, with the two members of an idle group as files.
//!
//! `memory` makes no system call for data: the data zone keeps nothing and answers at the next turn of the loop; only
//! metadata is in the files. `ring` is the group as it is served, on io_uring. Chunks are asked for at random over the whole
//! volume, so that a large map is seldom in the processor's caches. The first line is the loop and its device without an
//! engine, which is in the other figures too. Times are of this thread; io_uring's workers are not in them.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::future::{poll_fn, Future};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant as Clock};

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::LABEL_A;
use bimetal_host::device::Access;
use bimetal_host::memory::LargePages;
use bimetal_host::{HostDevice, Locator, Reactor};
use bimetal_task::Executor;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError, DeviceTraits, Env, Instant};
use bimetal_volume::options::OpenOptions as GroupOptions;
use bimetal_volume::Group;

const BLOCK: u64 = 4096;
const WARM: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// As in the program.
#[global_allocator]
static MEMORY: LargePages = LargePages;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (kind, files) = match args.as_slice() {
        [kind, fast, slow, ..] => (kind.as_str(), [fast, slow]),
        _ => return Err("usage: engine_cost memory|ring FAST SLOW [DEPTH] [SECONDS]".into()),
    };
    let depth = args.get(3).map_or(Ok(64), |a| a.parse())?;
    let measured = Duration::from_secs(args.get(4).map_or(Ok(3), |a| a.parse())?);
    let load = Load { depth, measured };
    match kind {
        "memory" => {
            let env = MemoryEnv::default();
            let members = files.iter().map(|f| MemoryDevice::open(&env, f)).collect::<Result<Vec<_>>>()?;
            env.clone().block_on(load.all(env, members))
        }
        "ring" => {
            let reactor = Reactor::new()?;
            let env = reactor.env();
            let locators = files.iter().map(|f| Locator::parse(f)).collect::<std::result::Result<Vec<_>, _>>()?;
            reactor.block_on(async move {
                let mut members = Vec::new();
                for locator in &locators {
                    members.push(HostDevice::open(&env, locator, Access::SERVE).await?);
                }
                load.all(env, members).await
            })
        }
        _ => Err(format!("'{kind}' is neither memory nor ring").into()),
    }
}

/// Requests that are always under way, and for how long they are counted.
#[derive(Clone, Copy)]
struct Load {
    depth: usize,
    measured: Duration,
}

#[derive(Clone, Copy)]
enum What {
    Read,
    Overwrite,
}

impl Load {
    async fn all<E: Env>(self, env: E, members: Vec<E::Device>) -> Result<()> {
        let fast = members[0].clone();
        let area = fast.size() / 2;
        self.run(&env, "loop and device alone", move |_, at| {
            let fast = fast.clone();
            async move { fast.read(area + at % area, BufMut::new(BLOCK as usize)).await.1.map_err(|e| e.to_string()) }
        })
        .await?;
        let group = Group::open(env.clone(), members, GroupOptions::default()).await?;
        let name = group.status().volumes.first().map(|v| v.name.clone()).ok_or("the group has no volume")?;
        let volume = group.volume(&name).ok_or("the volume is gone")?;
        for (name, what) in [("random reads", What::Read), ("random overwrites", What::Overwrite)] {
            let (volume, data) = (volume.clone(), BufMut::zeroed(BLOCK as usize).freeze());
            self.run(&env, name, move |_, at| {
                let (volume, data) = (volume.clone(), data.clone());
                async move {
                    let at = at % volume.size();
                    match what {
                        What::Read => volume.read(at, BLOCK).await.map(drop),
                        What::Overwrite => volume.write(at, data, WriteFlags::default()).await,
                    }
                    .map_err(|e| e.to_string())
                }
            })
            .await?;
        }
        group.stop().await?;
        Ok(())
    }

    /// Keeps requests under way and prints what one costs.
    async fn run<E: Env, F>(self, env: &E, name: &str, request: impl Fn(u64, u64) -> F + Clone + 'static) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), String>> + 'static,
    {
        let state = Rc::new(State::default());
        for _ in 0..self.depth {
            let (state, request, mut seed) = (state.clone(), request.clone(), env.random() | 1);
            env.spawn(async move {
                while !state.ended.get() {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    if let Err(e) = request(state.done.get(), seed / BLOCK * BLOCK).await {
                        state.error.replace(Some(e));
                        state.ended.set(true);
                    }
                    state.done.set(state.done.get() + 1);
                }
                state.left.set(state.left.get() + 1);
            });
        }
        env.sleep(WARM).await;
        let (done, clock, cpu) = (state.done.get(), Clock::now(), Cpu::now());
        env.sleep(self.measured).await;
        let (done, clock, cpu) = (state.done.get() - done, clock.elapsed(), Cpu::now().since(cpu));
        state.ended.set(true);
        while state.left.get() < self.depth {
            env.sleep(Duration::from_millis(1)).await;
        }
        if let Some(e) = state.error.take() {
            return Err(format!("{name}: {e}").into());
        }
        let each = |us: f64| us / done.max(1) as f64;
        println!(
            "{name:24} {:7.0} kIOPS  {:6.3} us user  {:6.3} us system",
            done as f64 / clock.as_secs_f64() / 1000.0,
            each(cpu.user),
            each(cpu.system)
        );
        Ok(())
    }
}

#[derive(Default)]
struct State {
    done: Cell<u64>,
    left: Cell<usize>,
    ended: Cell<bool>,
    error: RefCell<Option<String>>,
}

/// Processor time of this thread, in microseconds.
#[derive(Clone, Copy)]
struct Cpu {
    user: f64,
    system: f64,
}

impl Cpu {
    fn now() -> Cpu {
        // SAFETY: a rusage of zeros is valid, and the pointer to it for the call.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
        Cpu { user: us(usage.ru_utime), system: us(usage.ru_stime) }
    }

    fn since(self, then: Cpu) -> Cpu {
        Cpu { user: self.user - then.user, system: self.system - then.system }
    }
}

/// A loop of its own: tasks, timers by the clock, and devices that answer at the next turn.
#[derive(Clone, Default)]
struct MemoryEnv(Rc<Loop>);

#[derive(Default)]
struct Loop {
    tasks: Executor,
    started: Cell<Option<Clock>>,
    random: Cell<u64>,
    next_turn: RefCell<Vec<Waker>>,
    timers: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    sleepers: RefCell<std::collections::HashMap<u64, Waker>>,
}

impl MemoryEnv {
    fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.0.tasks.spawn(async move {
            let value = main.await;
            slot.replace(Some(value));
        });
        let mut woken = Vec::new();
        loop {
            self.0.tasks.run_ready(256);
            std::mem::swap(&mut woken, &mut *self.0.next_turn.borrow_mut());
            woken.drain(..).for_each(Waker::wake);
            self.ring();
            if let Some(value) = result.take() {
                return value;
            }
        }
    }

    fn ring(&self) {
        let now = self.now().0;
        while self.0.timers.borrow().peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, n))) = self.0.timers.borrow_mut().pop() else { return };
            let waker = self.0.sleepers.borrow_mut().remove(&n);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready at the next turn.
    fn turn(&self) -> impl Future<Output = ()> {
        let (env, mut asked) = (self.clone(), false);
        poll_fn(move |cx| match std::mem::replace(&mut asked, true) {
            true => Poll::Ready(()),
            false => {
                env.0.next_turn.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
    }
}

impl Env for MemoryEnv {
    type Device = MemoryDevice;

    fn now(&self) -> Instant {
        let start = self.0.started.get().unwrap_or_else(|| {
            let now = Clock::now();
            self.0.started.set(Some(now));
            now
        });
        Instant(start.elapsed().as_nanos() as u64)
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        let (env, at, mut number) = (self.clone(), self.now().plus(d).0, None);
        poll_fn(move |cx| {
            if env.now().0 >= at {
                return Poll::Ready(());
            }
            let n = *number.get_or_insert_with(|| {
                let n = env.random();
                env.0.timers.borrow_mut().push(Reverse((at, n)));
                n
            });
            env.0.sleepers.borrow_mut().insert(n, cx.waker().clone());
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.tasks.spawn(task);
    }

    fn random(&self) -> u64 {
        let next = self.0.random.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0.random.set(next);
        next ^ (next >> 29)
    }

    fn unix_seconds(&self) -> u64 {
        1_800_000_000
    }
}

/// A member whose metadata is in a file and whose data zone keeps nothing.
#[derive(Clone)]
struct MemoryDevice {
    env: MemoryEnv,
    file: Rc<File>,
    size: u64,
    data: std::ops::Range<u64>,
}

impl MemoryDevice {
    fn open(env: &MemoryEnv, path: &str) -> Result<MemoryDevice> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let mut bytes = vec![0; LABEL_SIZE];
        file.read_exact_at(&mut bytes, LABEL_A)?;
        let label = Label::decode(&bytes, LABEL_A).map_err(|e| format!("{path}: {e}"))?;
        let layout = label.layout();
        let data = layout.slots..layout.slots + layout.slot_count * bimetal_format::CHUNK;
        Ok(MemoryDevice { env: env.clone(), file: Rc::new(file), size, data })
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn traits(&self) -> DeviceTraits {
        DeviceTraits { discard: false, rotational: false }
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, std::result::Result<(), DeviceError>) {
        self.env.turn().await;
        if self.data.contains(&offset) {
            return (buf, Ok(()));
        }
        let done = self.file.read_exact_at(&mut buf, offset);
        (buf, done.map_err(|e| DeviceError::Io(e.raw_os_error().unwrap_or(libc::EIO))))
    }

    async fn write(&self, offset: u64, buf: Buf) -> std::result::Result<(), DeviceError> {
        self.env.turn().await;
        if self.data.contains(&offset) {
            return Ok(());
        }
        self.file.write_all_at(&buf, offset).map_err(|e| DeviceError::Io(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    async fn sync(&self) -> std::result::Result<(), DeviceError> {
        self.env.turn().await;
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> std::result::Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
}
