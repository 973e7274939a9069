//! A member that leaves is watched until it is empty. It gets empty without anybody watching, while the group is open.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::signals::Signals;
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use bimetal_volume::options::OpenOptions;

use super::pace::Pace;
use super::{named, with_group};
use crate::api;
use crate::output::Output;
use crate::progress::Progress;
use crate::runstate;
use crate::size::approx;

const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// The same without a daemon, where a look costs nothing.
const LOOK_AGAIN_HERE: Duration = Duration::from_millis(50);
/// A daemon that answers none of so many questions is not asked again.
const SILENT: u32 = 10;

/// Returns when the member is empty, or gone.
pub(super) fn until_empty(group: &str, m: &api::Member, output: Output) -> Result<()> {
    let eye = Eye::new(group, m, output);
    match runstate::daemon(group)? {
        Some(_) => at_the_daemon(eye),
        None => here(eye),
    }
}

/// Who looks, and shows what is seen.
struct Eye {
    group: String,
    member: api::Member,
    pace: Pace,
    progress: Option<Progress>,
}

impl Eye {
    fn new(group: &str, member: &api::Member, output: Output) -> Eye {
        let progress = (!output.json).then(Progress::new);
        Eye { group: group.into(), member: member.clone(), pace: Pace::default(), progress }
    }

    /// What is left on the member. An error if it does not get empty.
    fn look(&mut self, all: &[api::Member], latched: Option<&str>) -> Result<u64> {
        let Some(m) = all.iter().find(|m| m.uuid == self.member.uuid) else { return Ok(0) };
        if !m.is_leaving() {
            bail!("{} is {} again: somebody has cancelled that it leaves", named(m), m.state);
        }
        let left = m.used_bytes();
        if let Some(why) = latched.filter(|_| left > 0) {
            bail!("{} are still on {}, but writes are refused: {why}", approx(left), named(m));
        }
        self.pace.note(Instant::now(), left);
        if let Some(progress) = &mut self.progress {
            progress.show(|| format!("{}: {}", self.pace.words(), named(m)));
        }
        Ok(left)
    }
}

fn at_the_daemon(mut eye: Eye) -> Result<()> {
    let mut silent = 0;
    loop {
        let gone = "the daemon has ended meanwhile; the member goes on leaving when the group is served again";
        let daemon = runstate::daemon(&eye.group)?.context(gone)?;
        match daemon.get::<api::Status>("/v1/status") {
            Ok(status) if eye.look(&status.members, status.latched.as_deref())? == 0 => return Ok(()),
            Ok(_) => silent = 0,
            Err(why) if silent == SILENT => return Err(why),
            Err(_) => silent += 1,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Opens the group for as long as it takes. An interruption stops it in order.
fn here(mut eye: Eye) -> Result<()> {
    let (group, member) = (eye.group.clone(), eye.member.clone());
    let left = with_group(&group, Access::SERVE, OpenOptions::default(), |env, open, _| async move {
        let interrupted = interruption(&env)?;
        let seen = empty_here(&env, &open, &mut eye, &interrupted).await;
        drop(eye);
        let stopped = open.stop().await;
        let left = seen?;
        stopped.context("the group could not be stopped in order; its next start recovers it")?;
        Ok(left)
    })?;
    match left {
        0 => Ok(()),
        left => bail!(
            "interrupted: {} are still on {}. It goes on leaving when the group is served, or when this is asked again",
            approx(left),
            named(&member)
        ),
    }
}

async fn empty_here(env: &HostEnv, open: &Group<HostEnv>, eye: &mut Eye, interrupted: &Cell<bool>) -> Result<u64> {
    loop {
        let status = open.status();
        let all: Vec<_> =
            status.members.iter().map(|m| crate::daemon::member_row(&super::places(&eye.member), m)).collect();
        let left = eye.look(&all, status.latched.as_deref())?;
        if left == 0 || interrupted.get() {
            return Ok(left);
        }
        env.sleep(LOOK_AGAIN_HERE).await;
    }
}

/// Becomes true with Ctrl-C.
fn interruption(env: &HostEnv) -> Result<Rc<Cell<bool>>> {
    let signals = Signals::catch(env).context("cannot catch signals")?;
    let interrupted = Rc::new(Cell::new(false));
    let told = interrupted.clone();
    env.spawn(async move {
        if signals.next().await.is_ok() {
            told.set(true);
        }
    });
    Ok(interrupted)
}
