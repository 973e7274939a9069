//! The real program as a child: what the demo shows is what `bimetal` does, in processes of its own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::interrupt;
use crate::api::Status;
use crate::client;
use crate::paths::{self, CONFIG_DIR, RUN_DIR};

/// The group's name.
pub(crate) const GROUP: &str = "demo";
const START: Duration = Duration::from_secs(30);

/// A folder in which the program lives, apart from everything else on this machine.
pub(crate) struct World {
    program: PathBuf,
    pub(crate) dir: PathBuf,
    daemon: Option<Child>,
}

impl World {
    pub(crate) fn new(dir: PathBuf) -> Result<World> {
        let program = std::env::current_exe().context("the program cannot find itself")?;
        let world = World { program, dir, daemon: None };
        // What is said is about a variable that is not the user's to set here.
        if paths::check_run_socket(&world.run_state("control.sock")).is_err() {
            bail!("the path {} is too long for the sockets of a daemon; take a shorter --dir", world.dir.display());
        }
        Ok(world)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(&self.program);
        c.args(args).env(CONFIG_DIR, self.dir.join("etc")).env(RUN_DIR, self.dir.join("run"));
        c.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).current_dir(&self.dir).process_group(0);
        c
    }

    /// Runs `bimetal ARGS` and gives what it prints.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        let out = self.command(args).output().context("the program cannot be started")?;
        if !out.status.success() {
            bail!("bimetal {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn run_state(&self, file: &str) -> PathBuf {
        self.dir.join("run").join(GROUP).join(file)
    }

    /// The socket on which the volume is served.
    pub(crate) fn nbd_socket(&self) -> PathBuf {
        self.run_state("nbd.sock")
    }

    /// Starts the daemon, and tells how long it took until it served.
    pub(crate) fn start(&mut self) -> Result<Duration> {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("daemon.log"))?;
        let begun = Instant::now();
        let child = self.command(&["serve", GROUP]).stdout(Stdio::null()).stderr(log).spawn();
        let child = self.daemon.insert(child.context("the daemon cannot be started")?);
        // The socket is there a little before the exports are; an answer means that all is.
        let socket = self.dir.join("run").join(GROUP).join("control.sock");
        let answers = || -> Result<bool> {
            Ok(client::connect(&socket)?.is_some_and(|daemon| daemon.get::<Status>("/v1/status").is_ok()))
        };
        while !answers()? {
            interrupt::check()?;
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended ({status}): {}", tail(&self.dir.join("daemon.log")));
            }
            if begun.elapsed() > START {
                bail!("the daemon does not serve after {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(begun.elapsed())
    }

    /// `kill -9` of the daemon.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut child = self.daemon.take().context("no daemon is running")?;
        child.kill().context("the daemon cannot be killed")?;
        child.wait()?;
        Ok(())
    }

    /// What the daemon says of itself.
    pub(crate) fn status(&self) -> Result<Status> {
        let daemon = client::connect(&self.run_state("control.sock"))?.context("the daemon is gone")?;
        daemon.get("/v1/status")
    }

    /// `bimetal stop`.
    pub(crate) fn stop(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.run(&["stop", GROUP])?;
        if let Some(mut child) = self.daemon.take() {
            child.wait()?;
        }
        Ok(begun.elapsed())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_string()
}
