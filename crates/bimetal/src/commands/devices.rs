//! `bimetal devices`: what could become a member, and what could not, and why.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use serde::Serialize;

use crate::output::{table, Output};
use crate::size::approx;
use crate::{api, former, members};

#[derive(Serialize)]
struct Answer {
    schema: u32,
    devices: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    path: String,
    model: String,
    size_bytes: u64,
    rotational: bool,
    /// `fast` or `slow`, by what the kernel says of the device.
    suggested_tier: &'static str,
    /// Empty: it can be taken.
    used: String,
}

pub(crate) fn run(output: Output) -> Result<()> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let devices = reactor.block_on(async move {
        let mut rows = Vec::new();
        for path in members::block_devices() {
            rows.push(row(&env, &path).await);
        }
        rows
    });
    let answer = Answer { schema: api::SCHEMA, devices };
    output.show(&answer, || words(&answer.devices))
}

fn words(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No block devices are visible here. Files can be members too: truncate -s 8G FILE makes one.\n".into();
    }
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let kind = if r.rotational { "disk" } else { "SSD" };
            let used =
                if r.used.is_empty() { format!("free: --{} {}", r.suggested_tier, r.path) } else { r.used.clone() };
            vec![r.path.clone(), kind.into(), approx(r.size_bytes), r.model.clone(), used]
        })
        .collect();
    table(&["DEVICE", "KIND", "SIZE", "MODEL", "USE"], &lines, &[2])
}

async fn row(env: &HostEnv, path: &Path) -> Row {
    let sys = Path::new("/sys/class/block").join(path.file_name().unwrap_or_default());
    // A partition has no queue of its own; its disk does.
    let disk = if sys.join("queue").exists() { sys.clone() } else { parent(&sys) };
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let rotational = text(disk.join("queue/rotational")) == "1";
    Row {
        path: path.display().to_string(),
        model: text(disk.join("device/model")),
        size_bytes: text(sys.join("size")).parse().unwrap_or(0) * 512,
        rotational,
        suggested_tier: if rotational { "slow" } else { "fast" },
        used: use_of(env, path).await,
    }
}

fn parent(sys: &Path) -> PathBuf {
    let real = std::fs::canonicalize(sys).unwrap_or_else(|_| sys.to_owned());
    real.parent().map(Path::to_owned).unwrap_or(real)
}

/// Why it cannot be taken, or an empty text.
async fn use_of(env: &HostEnv, path: &Path) -> String {
    let locator = Locator::Path(path.to_owned());
    match HostDevice::open(env, &locator, Access::PEEK).await {
        Err(e) => return e.to_string(),
        Ok(device) => match members::read_label(&device).await {
            Ok(Ok(label)) => return former::told(&label, former::look_up(env, &label).await, &locator),
            Ok(Err(why)) => {
                if let Some(told) = former::told_unlabelled(env, &locator, &device, &why).await {
                    return told;
                }
            }
            // What comes next says what is the matter with it.
            Err(_) => {}
        },
    }
    match super::create::refuse_used(env, &locator, false).await {
        Err(e) => format!("{e:#}"),
        Ok(()) => String::new(),
    }
}
