//! 4 KiB random reads through `HostDevice`: requests per second and CPU time per request, to be compared with
//! `fio --ioengine=io_uring --direct=1 --rw=randread --bs=4k`. Usage: `random_read LOCATOR [DEPTH] [SECONDS]`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bimetal_host::device::Access;
use bimetal_host::{HostDevice, Locator, Reactor};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device, Env};

/// User and system time of the process with all its kernel workers, in microseconds.
fn cpu_us() -> u64 {
    // SAFETY: a rusage of zeros is valid, and the pointer to it for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let locator = Locator::parse(&args.next().ok_or("usage: random_read LOCATOR [DEPTH] [SECONDS]")?)?;
    let depth: usize = args.next().map_or(Ok(32), |a| a.parse())?;
    let seconds: u64 = args.next().map_or(Ok(5), |a| a.parse())?;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let done = Rc::new(Cell::new(0u64));
    let count = done.clone();
    let (start, cpu) = (Instant::now(), cpu_us());
    reactor.block_on(async move {
        let device = HostDevice::open(&env, &locator, Access::PEEK).await?;
        let blocks = device.size() / 4096;
        for _ in 0..depth {
            let (device, count, mut seed) = (device.clone(), count.clone(), env.random() | 1);
            env.spawn(async move {
                let mut buf = BufMut::new(4096);
                loop {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let result;
                    (buf, result) = device.read(seed % blocks * 4096, buf).await;
                    if let Err(error) = result {
                        eprintln!("read failed: {error}");
                        return;
                    }
                    count.set(count.get() + 1);
                }
            });
        }
        env.sleep(Duration::from_secs(seconds)).await;
        Ok::<_, bimetal_host::device::OpenError>(())
    })?;
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_us() - cpu);
    let n = done.get();
    println!("{:.0} IOPS, {:.2} us CPU per request", n as f64 / took, cpu as f64 / n as f64);
    Ok(())
}
