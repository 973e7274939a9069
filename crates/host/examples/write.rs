//! Writes of 128 KiB through `HostDevice`, one after the other on the device, so many at a time: MiB per second and CPU time per
//! write. For members behind servers: `nbdkit memory 1G`, and this beside another build. It overwrites what is there. Usage:
//! `write LOCATOR [DEPTH] [SECONDS]`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bimetal_host::device::Access;
use bimetal_host::{HostDevice, Locator, Reactor};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device, Env};

const LEN: usize = 128 << 10;

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
    let locator = Locator::parse(&args.next().ok_or("usage: write LOCATOR [DEPTH] [SECONDS]")?)?;
    let depth: u64 = args.next().map_or(Ok(16), |a| a.parse())?;
    let seconds: u64 = args.next().map_or(Ok(5), |a| a.parse())?;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let (done, next) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let count = done.clone();
    let (start, cpu) = (Instant::now(), cpu_us());
    reactor.block_on(async move {
        let device = HostDevice::open(&env, &locator, Access::SERVE).await?;
        let places = device.size() / LEN as u64;
        let data = BufMut::zeroed(LEN).freeze();
        for _ in 0..depth {
            let (device, count, next, data) = (device.clone(), count.clone(), next.clone(), data.clone());
            env.spawn(async move {
                loop {
                    let place = next.replace(next.get() + 1) % places;
                    if let Err(error) = device.write(place * LEN as u64, data.clone()).await {
                        eprintln!("write failed: {error}");
                        return;
                    }
                    count.set(count.get() + 1);
                }
            });
        }
        env.sleep(Duration::from_secs(seconds)).await;
        Ok::<_, bimetal_host::device::OpenError>(())
    })?;
    let (took, cpu, n) = (start.elapsed().as_secs_f64(), cpu_us() - cpu, done.get());
    let mib = (n * LEN as u64) as f64 / f64::from(1 << 20);
    println!("{:.0} MiB/s, {:.1} us of CPU each", mib / took, cpu as f64 / n.max(1) as f64);
    Ok(())
}
