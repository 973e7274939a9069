//! `bimetal create`.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_format::layout::Layout;
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use bimetal_volume::env::{Device, Env};
use bimetal_volume::group::{CreateError, CreateReport, Group};
use bimetal_volume::options::{CreateOptions, NewVolume};
use bimetal_volume::units::{Placement, Tier};
use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;
use serde_json::json;

use crate::cli::{self, Create};
use crate::config::{self, uuid_text, GroupConfig, MemberConfig};
use crate::erase::{erase, Erased};
use crate::output::{confirm, Output};
use crate::size::{approx, Size};
use crate::{api, former, holders, members, metadata_room, paths, runstate, twins, waiting};

/// How long programs that have a device open may take to close it, and how often that is looked at.
const CLOSING: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

struct NewMember {
    locator: Locator,
    tier: Tier,
}

pub(crate) fn run(args: Create, output: Output) -> Result<()> {
    refuse_known_name(&args.group)?;
    let new = new_members(&args)?;
    members::refuse_twins(new.iter().map(|m| &m.locator))?;
    let options = options(&args);
    let group = args.group.clone();
    let (force, yes) = (args.force, args.yes);
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let made = reactor.block_on(async move {
        let devices = look(&env, &new, force, yes).await?;
        // From here on nobody else serves or creates a group of this name.
        let lock = runstate::lock_for_command(&group)?;
        // Another one may have come to its end while this one waited for it, or asked.
        refuse_known_name(&group)?;
        let (report, config) = create(env, group, new, devices, options, force).await?;
        Ok::<_, anyhow::Error>((report, config, lock))
    });
    let (report, config, _lock) = made?;
    let path = config::store(&config).with_context(|| {
        format!("the group is made, but its members are not written down; serve it with --member {}", locators(&config))
    })?;
    let answer = json!({
        "schema": api::SCHEMA, "group": config.name, "uuid": config.uuid, "config": path,
        "capacity_bytes": report.capacity, "reserve_bytes": report.reserve,
        "volumes": report.volumes.iter().map(|(n, s)| json!({"name": n, "size_bytes": s})).collect::<Vec<_>>(),
        "members": config.members.iter().zip(&report.members)
            .map(|(m, u)| json!({"locator": m.locator, "tier": m.tier, "uuid": uuid_text(u)})).collect::<Vec<_>>(),
    });
    output.show(&answer, || words(&config, &report))
}

fn locators(config: &GroupConfig) -> String {
    config.members.iter().map(|m| m.locator.as_str()).collect::<Vec<_>>().join(" ")
}

fn words(config: &GroupConfig, report: &CreateReport) -> String {
    let name = &config.name;
    let mut text = format!(
        "Group '{name}' is made: {} for data, {} of the fast tier are the reserve for new writes.\n",
        approx(report.capacity),
        approx(report.reserve)
    );
    for (volume, size) in &report.volumes {
        text += &format!("  volume {name}/{volume}  {} ({})\n", approx(*size), Size(*size));
    }
    let first = report.volumes.first().map_or("main", |(n, _)| n.as_str());
    text + &format!("Next: bimetal attach {name}/{first}    (prints the block device)\n")
}

fn refuse_known_name(name: &str) -> Result<()> {
    let path = paths::config_file(name)?;
    if path.exists() {
        bail!(
            "a group named '{name}' is already described in {}; choose another name, or `bimetal destroy {name}` first (if its \
             members are gone: `bimetal destroy {name} --forget`)",
            path.display()
        );
    }
    Ok(())
}

fn new_members(args: &Create) -> Result<Vec<NewMember>> {
    let of_tier = |texts: &[String], tier| -> Result<Vec<NewMember>> {
        Ok(members::parse_all(texts)?.into_iter().map(|locator| NewMember { locator, tier }).collect())
    };
    let mut all = of_tier(&args.fast, Tier::Fast)?;
    all.extend(of_tier(&args.slow, Tier::Slow)?);
    Ok(all)
}

/// Refuses a device that is mounted or in use, as far as this process may see, always, and one that carries something
/// known, unless forced.
pub(crate) async fn refuse_used(env: &HostEnv, locator: &Locator, force: bool) -> Result<()> {
    bimetal_host::probe::examine(env, locator).await?.check(force)?;
    let Some(path) = locator.path().map(std::path::Path::to_owned) else { return Ok(()) };
    let below = path.clone();
    let places = env.blocking(move || bimetal_host::probe::loops::places_below(&below)).await?;
    for path in std::iter::once(path).chain(places) {
        refuse_open(env, path).await?;
    }
    Ok(())
}

/// Refuses what a program has open: the kernel keeps out only those who want a device for themselves alone. Programs
/// that look at every device for a moment get that moment.
async fn refuse_open(env: &HostEnv, path: std::path::PathBuf) -> Result<()> {
    let end = env.now().plus(CLOSING);
    loop {
        let asked = path.clone();
        let open = env.blocking(move || holders::others_with_open(&asked)).await?;
        if open.is_empty() {
            return Ok(());
        }
        if env.now() >= end {
            bail!("{} is in use: {}; end that first, or it goes on writing there", path.display(), open.join(", "));
        }
        env.sleep(LOOK_AGAIN).await;
    }
}

fn options(args: &Create) -> CreateOptions {
    let volume = |v: &cli::VolumeSpec| NewVolume {
        name: v.name.clone(),
        size: v.size,
        placement: match v.placement {
            cli::Placement::Auto => Placement::Auto,
            cli::Placement::FastOnly => Placement::FastOnly,
            cli::Placement::SlowOnly => Placement::SlowOnly,
        },
    };
    let mut volumes: Vec<NewVolume> = args.volumes.iter().map(volume).collect();
    if volumes.is_empty() {
        volumes.push(NewVolume { name: "main".into(), size: None, placement: Placement::Auto });
    }
    CreateOptions {
        name: args.group.clone(),
        volumes,
        sector_size: args.sector,
        reserve: args.reserve.map(|s| s.0),
        journal_blocks: None,
    }
}

/// Opens what is to become members, so that nobody else takes it from here on, and asks.
async fn look(env: &HostEnv, new: &[NewMember], force: bool, yes: bool) -> Result<Vec<(HostDevice, Tier)>> {
    for m in new {
        refuse_used(env, &m.locator, force).await?;
    }
    let mut devices = Vec::new();
    for m in new {
        let device = waiting::open(env, &m.locator, Access::SERVE).await?;
        refuse_tiny(&m.locator, &device)?;
        former::refuse_carrier(&m.locator, &device, force).await?;
        former::refuse(env, &m.locator, &device, None, force).await?;
        devices.push((device, m.tier));
    }
    let mut lost = Vec::new();
    for (m, (d, _)) in new.iter().zip(&devices).filter(|(m, _)| !is_empty_file(&m.locator)) {
        let with = former::lost_with(env, &m.locator, d).await;
        lost.push(format!("  {} ({}, {}{with})", m.locator, m.tier, approx(d.size())));
    }
    if !lost.is_empty() {
        confirm(&format!("Everything on these devices will be lost:\n{}", lost.join("\n")), yes)?;
    }
    Ok(devices)
}

async fn create(
    env: HostEnv,
    group: String,
    new: Vec<NewMember>,
    devices: Vec<(HostDevice, Tier)>,
    options: CreateOptions,
    force: bool,
) -> Result<(CreateReport, GroupConfig)> {
    let named_devices: Vec<_> = new.iter().map(|m| &m.locator).zip(devices.iter().map(|(d, _)| d)).collect();
    twins::refuse(&env, &named_devices, &[]).await?;
    let layouts = Group::layouts(&env, &devices, &options).map_err(|e| named(e, &new))?;
    take_room(&devices, &layouts, &new).await?;
    let erased = if force { erase_all(&devices, &new).await? } else { Vec::new() };
    let opened: Vec<HostDevice> = devices.iter().map(|(d, _)| d.clone()).collect();
    let made = Group::create(&env, devices, &options).await;
    // What was wished is not possible, and nothing was written. Else zones may lie over what was there: it must not look whole again.
    if made.as_ref().is_err_and(|e| !matches!(e, CreateError::Device { .. })) {
        put_back(erased, &opened, &new).await?;
    }
    let report = made.map_err(|e| named(e, &new))?;
    let members = new.iter().map(|m| MemberConfig { locator: m.locator.to_string(), tier: m.tier.to_string() });
    let config = GroupConfig { members: members.collect(), ..GroupConfig::of(&group, &report.uuid) };
    Ok((report, config))
}

/// Takes room for the metadata of the members, before anything is erased or written: what is on the others is whole still if there is none.
async fn take_room(devices: &[(HostDevice, Tier)], layouts: &[Layout], new: &[NewMember]) -> Result<()> {
    for (((device, _), layout), m) in devices.iter().zip(layouts).zip(new) {
        let Err(no_room) = metadata_room::of_layout(device, layout, device.size()).await else { continue };
        bail!("{}: {no_room}; free some of that file system, or make the file elsewhere. No group was made", m.locator);
    }
    Ok(())
}

async fn erase_all(devices: &[(HostDevice, Tier)], new: &[NewMember]) -> Result<Vec<Erased>> {
    let mut erased = Vec::new();
    for ((device, _), m) in devices.iter().zip(new) {
        let done = erase(device).await;
        erased.push(done.with_context(|| format!("what {} carries cannot be erased", m.locator))?);
    }
    Ok(erased)
}

async fn put_back(erased: Vec<Erased>, devices: &[HostDevice], new: &[NewMember]) -> Result<()> {
    for ((erased, device), m) in erased.into_iter().zip(devices).zip(new) {
        let done = erased.undo(device).await;
        done.with_context(|| format!("no group was made, and what {} carried cannot be put back", m.locator))?;
    }
    Ok(())
}

/// Refuses what is no member by far, with its true size: the engine sees whole blocks only.
pub(super) fn refuse_tiny(locator: &Locator, device: &HostDevice) -> Result<()> {
    const MIB: u64 = 1 << 20;
    let file = locator.path().and_then(|p| std::fs::metadata(p).ok()).filter(std::fs::Metadata::is_file);
    let size = file.map_or(device.size(), |meta| meta.len());
    if size < MIB {
        bail!("{locator} has {}, which is too small for a member: that needs some MiB at the very least", approx(size));
    }
    Ok(())
}

/// A file in which nothing was ever written: there is nothing to lose. Some file systems count no blocks of any file, and those say of all
/// that they hold data; where neither is known somebody is asked.
pub(crate) fn is_empty_file(locator: &Locator) -> bool {
    let path = locator.path().filter(|p| std::fs::metadata(p).is_ok_and(|m| m.is_file() && m.blocks() == 0));
    path.and_then(|p| std::fs::File::open(p).ok()).is_some_and(|file| seek(file, SeekFrom::Data(0)) == Err(Errno::NXIO))
}

/// The engine numbers devices; people name them.
fn named(error: CreateError, new: &[NewMember]) -> anyhow::Error {
    let name = |i: usize| new.get(i).map_or_else(|| format!("device {i}"), |m| m.locator.to_string());
    match error {
        CreateError::Layout { device, source } => anyhow::Error::new(source).context(name(device)),
        CreateError::Device { device, source } => anyhow::Error::new(source).context(name(device)),
        other => other.into(),
    }
}
