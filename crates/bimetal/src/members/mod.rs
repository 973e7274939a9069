//! From a group's name to its open devices: the locators given, those in the configuration, and, for what has moved,
//! all block devices. Locators are hints; labels decide.

mod words;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_format::label::{Label, LabelError, MemberCode, MemberRow};
use bimetal_host::device::{Access, OpenError};
use bimetal_host::probe::loops;
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::env::{Device, Env};
use futures_util::future::join_all;

use crate::config::{self, uuid_text, GroupConfig, MemberConfig};
use crate::saved::own_tier;
use crate::standing::{newest_table, why_none};
pub(crate) use crate::standing::{own_uuid, tier_name};
use crate::waiting::{self, Watch};
use crate::{elsewhere, legs, restoring};
pub(crate) use words::{newer_words, way_to_size};

/// How long a busy device is tried again.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A device and what its label says.
pub(crate) struct Opened {
    pub(crate) locator: Locator,
    pub(crate) device: HostDevice,
    /// `None` where the label is damaged: the engine decides what that means.
    pub(crate) label: Option<Label>,
    /// Why there is none though a newer version of this program would read one: such a device is somebody's, whole.
    pub(crate) newer: Option<LabelError>,
    /// Tells if it does not answer.
    _watch: Rc<Watch>,
}

impl Opened {
    fn new(locator: &Locator, device: HostDevice, label: Result<Label, LabelError>, watch: Rc<Watch>) -> Opened {
        let newer = label.as_ref().err().filter(|why| why.is_newer()).cloned();
        Opened { locator: locator.clone(), device, label: label.ok(), newer, _watch: watch }
    }
}

/// The members found, and why others were not.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) opened: Vec<Opened>,
    pub(crate) absent: Vec<String>,
    /// Those of them whose device is there, or may be, and cannot be used at this moment: another time it may.
    pub(crate) unread: Vec<String>,
    /// What the configuration names, but is no member: all members are open.
    pub(crate) strangers: Vec<Stranger>,
    /// Where members are whose labels a restore has taken away that was cut off.
    pub(crate) restoring: Vec<Locator>,
}

/// A place that is in the configuration of a group, and no member of it is there, or one that has another place, too.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) locator: String,
    /// What is the matter with it.
    pub(crate) why: String,
    /// The label of the former member that is there.
    former: Option<Box<Label>>,
    /// It is another name of a member's place.
    pub(crate) is_member: bool,
}

impl Stranger {
    /// Why it is struck out of the configuration.
    pub(crate) fn needless(&self) -> String {
        match self.is_member {
            true => format!("{}, which needs no second name", self.why),
            false => format!("{}; no member is there", self.why),
        }
    }
}

impl Members {
    /// Those with a label.
    pub(crate) fn labelled(&self) -> impl Iterator<Item = (&Locator, &Label)> {
        self.opened.iter().filter_map(|m| Some((&m.locator, m.label.as_ref()?)))
    }

    /// What the configuration would say of those with a label.
    pub(crate) fn as_configuration(&self, name: &str) -> GroupConfig {
        let uuid = self.labelled().next().map_or([0; 16], |(_, label)| label.group);
        let members = self.labelled().map(|(locator, label)| MemberConfig {
            locator: locator.to_string(),
            tier: tier_name(own_tier(label)).to_owned(),
        });
        GroupConfig { members: members.collect(), ..GroupConfig::of(name, &uuid) }
    }

    /// Why what was written before this connection may be lost: a server that was started anew meanwhile has lost what was not flushed,
    /// and syncs all the same (C11.1). After an orderly stop nothing is left to lose.
    pub(crate) fn connected_anew(&self) -> Option<String> {
        let in_use = |m: &&Opened| m.label.as_ref().is_some_and(|l| !l.clean && !l.joining);
        let m = self.opened.iter().filter(in_use).find(|m| matches!(m.locator, Locator::Nbd(_)))?;
        Some(format!(
            "{} was in use when the daemon ended, and its server may have been started anew since, without what was not flushed",
            m.locator
        ))
    }

    /// What tells them, as they are now, from others, and from what becomes of them by any use.
    pub(crate) fn state(&self) -> Vec<String> {
        let labelled = |l: &Label| format!("{} {} {}", uuid_text(&l.group), uuid_text(&own_uuid(l)), l.sequence);
        let opened = self.opened.iter();
        opened.map(|m| format!("{} {:?}", m.locator, m.label.as_ref().map(labelled))).collect()
    }

    /// Where all members were found, if not all at the places that the configuration names: what is there now is none of them, whatever
    /// it is. Leaves it out, and gives what there is to say of it.
    pub(crate) fn leave_what_came_instead(&mut self) -> Vec<String> {
        if !is_whole(&self.opened) {
            return Vec::new();
        }
        let (ours, bare): (Vec<Opened>, _) =
            std::mem::take(&mut self.opened).into_iter().partition(|m| m.label.is_some());
        self.opened = ours;
        let mut told = std::mem::take(&mut self.absent);
        told.extend(bare.iter().map(Opened::bare_words));
        told
    }

    pub(crate) fn devices(&self) -> Vec<HostDevice> {
        self.opened.iter().map(|m| m.device.clone()).collect()
    }
}

/// Reads locators from the command line, with absolute paths.
pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Locator>> {
    texts.iter().map(|t| parse(t)).collect()
}

/// Reads one locator.
pub(crate) fn parse(text: &str) -> Result<Locator> {
    let locator = Locator::parse(text)?;
    locator.absolute().with_context(|| format!("{text} cannot be made an absolute path"))
}

/// One device must not be two members, whatever its names, nor what is made of it.
pub(crate) fn refuse_twins<'a>(locators: impl IntoIterator<Item = &'a Locator>) -> Result<()> {
    let mut seen: HashMap<String, &Locator> = HashMap::new();
    let all: Vec<&Locator> = locators.into_iter().collect();
    for locator in all.iter().copied() {
        if let Some(first) = seen.insert(identity(locator), locator) {
            bail!("{first} and {locator} are the same device; a member can be named only once");
        }
    }
    for (i, one) in all.iter().enumerate() {
        for other in &all[i + 1..] {
            let common = one.path().zip(other.path()).and_then(|(one, other)| loops::common(one, other));
            if let Some(common) = common {
                bail!("{one} and {other} are both made of {}; that can be a member only once", common.display());
            }
        }
    }
    Ok(())
}

/// What two names of one device or file have in common, as far as names tell.
pub(crate) fn identity(locator: &Locator) -> String {
    match locator.path().map(std::fs::metadata) {
        Some(Ok(meta)) if meta.rdev() != 0 => format!("device {}", meta.rdev()),
        Some(Ok(meta)) => format!("file {} {}", meta.dev(), meta.ino()),
        _ => locator.to_string(),
    }
}

/// Opens the members of a group: `explicit` ones, else those of the configuration of `name`, else by scanning.
pub(crate) async fn open(env: &HostEnv, name: Option<&str>, explicit: &[Locator], access: Access) -> Result<Members> {
    open_with(env, name, explicit, &[], access).await
}

/// The same with members of before, by their UUIDs: those that the others have struck off since are looked for, too.
pub(crate) async fn open_with(
    env: &HostEnv,
    name: Option<&str>,
    explicit: &[Locator],
    before: &[[u8; 16]],
    access: Access,
) -> Result<Members> {
    if !explicit.is_empty() {
        refuse_twins(explicit)?;
        let mut found = open_all(env, explicit, access).await?;
        found.restoring = restoring::among(&found, None).await;
        return Ok(found);
    }
    let name = name.context("name a group, or its members with --member")?;
    match config::load(name)? {
        Some(config) => {
            let found = open_configured(env, &config, before, access).await;
            restoring::looked_for(env, found, &config.uuid).await
        }
        None => open_scanned(env, name, access).await,
    }
}

/// Opens devices, side by side: disks that sleep do not wake up in turn.
async fn open_all(env: &HostEnv, locators: &[Locator], access: Access) -> Result<Members> {
    let opened = join_all(locators.iter().map(|locator| open_one(env, locator, access))).await;
    Ok(Members { opened: opened.into_iter().collect::<Result<_>>()?, ..Members::default() })
}

/// Opens a device. The kernel lets go of what a killed process had on its ring a moment after the process is gone, so a
/// busy device gets a few seconds.
async fn open_device(env: &HostEnv, locator: &Locator, access: Access) -> Result<HostDevice, OpenError> {
    let end = env.now().plus(BUSY_PATIENCE);
    loop {
        match waiting::open(env, locator, access).await {
            Err(OpenError::Busy { .. }) if env.now() < end => env.sleep(BUSY_PAUSE).await,
            other => return other,
        }
    }
}

async fn open_one(env: &HostEnv, locator: &Locator, access: Access) -> Result<Opened> {
    let device = open_device(env, locator, access).await?;
    let watch = waiting::watch(env, locator.to_string(), &device);
    let label = read_label(&device).await.with_context(|| format!("{locator}: the label cannot be read"))?;
    Ok(Opened::new(locator, device, label, watch))
}

/// The label of an open device. A server that answers no read is given up by the device itself; then that is the error.
pub(crate) async fn read_label(device: &HostDevice) -> Result<Result<Label, LabelError>> {
    let label = bimetal_volume::probe::probe(device).await;
    label.map_err(|error| device.answering().lost.map_or_else(|| error.into(), anyhow::Error::msg))
}

async fn open_configured(env: &HostEnv, config: &GroupConfig, before: &[[u8; 16]], access: Access) -> Result<Members> {
    let mut members = Members::default();
    let (mut absent, mut barred) = (Vec::new(), Vec::new());
    let (places, other_names) = places_once(env, config).await?;
    let opened = join_all(places.iter().map(|(_, locator)| open_here(env, locator, access))).await;
    for ((m, locator), opened) in places.iter().zip(opened) {
        let why = match opened {
            Ok(opened) if belongs(&opened, &config.uuid) => {
                members.opened.push(opened);
                continue;
            }
            Ok(opened) => match &opened.label {
                Some(l) => format!("{locator} is now a member of another group named '{}'", l.group_name),
                None => opened.bare_words(),
            },
            Err(Closed::Absent(why)) => why,
            Err(Closed::Unread(why)) => {
                members.unread.push(why.clone());
                why
            }
            Err(Closed::Barred(why)) => {
                barred.push(why);
                continue;
            }
        };
        absent.push(Stranger { locator: m.locator.clone(), why, former: None, is_member: false });
    }
    // Only if the configuration names all members: a place that seems empty may be another name for one that a scan finds.
    let whole = is_whole(&members.opened);
    if whole {
        absent.extend(take_former(&mut members.opened, before));
        let (ours, bare) = std::mem::take(&mut members.opened).into_iter().partition(|m: &Opened| m.label.is_some());
        members.opened = ours;
        let bare = bare.iter().map(|m: &Opened| (m.locator.to_string(), m.bare_words()));
        absent.extend(bare.map(|(locator, why)| Stranger { locator, why, former: None, is_member: false }));
    }
    let known = member_uuids(&members.opened);
    let all_found = whole && before.iter().all(|uuid| known.contains(uuid));
    absent.extend(other_names.into_iter().filter(|_| all_found));
    let strangers = if all_found { std::mem::take(&mut absent) } else { Vec::new() };
    // Also if every place could be opened: what carries no label now may have been a member's name once.
    if !all_found {
        let is_sought = |own: [u8; 16]| !known.contains(&own) && (!whole || before.contains(&own));
        let wanted = |l: &Label| uuid_text(&l.group) == config.uuid && is_sought(own_uuid(l));
        let (moved, legs) = without_legs(env, scan_block_devices(env, &wanted).await).await;
        barred.extend(legs.into_iter().map(|(_, why)| why));
        for (locator, _) in moved {
            match open_here(env, &locator, access).await {
                Ok(opened) => members.opened.push(opened),
                Err(Closed::Absent(why) | Closed::Unread(why) | Closed::Barred(why)) => barred.push(why),
            }
        }
    }
    if is_whole(&members.opened) {
        // With every member there it is none of them.
        members.unread.clear();
    }
    barred.sort();
    barred.dedup();
    refuse_barred(config, &members, &barred)?;
    members.strangers = strangers;
    members.absent = absent.into_iter().map(|a| a.why).chain(barred).collect();
    if members.opened.is_empty() && !members.unread.is_empty() {
        bail!(
            "no member of group '{}' can be used at this moment: {}. See to cable, controller, power or server first",
            config.name,
            members.absent.join("; ")
        );
    }
    if members.opened.is_empty() {
        bail!(
            "no member of group '{name}' was found: {}. If they are gone for good, `bimetal destroy {name} --forget` removes what is \
             known of the group here, and touches no device",
            members.absent.join("; "),
            name = config.name
        );
    }
    Ok(members)
}

/// So long a file system has to say what a place is.
const IDENTITY: Duration = Duration::from_secs(1);

/// A place of a configuration.
type Configured<'a> = (&'a MemberConfig, Locator);

/// The places of a configuration, each device or file once, and what else names them: a new device may be where a dead one was, and be given
/// by another name. A second open would find it in use, by this program.
async fn places_once<'a>(env: &HostEnv, config: &'a GroupConfig) -> Result<(Vec<Configured<'a>>, Vec<Stranger>)> {
    let parsed = |m: &'a MemberConfig| {
        let locator = Locator::parse(&m.locator).with_context(|| format!("configuration of {}", config.name))?;
        Ok((m, locator))
    };
    let all: Vec<Configured<'_>> = config.members.iter().map(parsed).collect::<Result<_>>()?;
    let identities = join_all(all.iter().map(|(_, locator)| identity_in_time(env, locator))).await;
    let mut order: Vec<usize> = (0..all.len()).rev().collect();
    // A name like /dev/sda may have become another device's; of two of a kind the one that came last is the one that somebody gave.
    order.sort_by_key(|i| !is_link(&identities[*i], &all[*i].1));
    let mut kept: Vec<usize> = Vec::new();
    let mut other_names = Vec::new();
    for i in order {
        let locator = &all[i].1;
        match kept.iter().find(|k| identities[**k] == identities[i]).map(|k| &all[*k].1) {
            Some(other) if other == locator => {}
            Some(other) => {
                let why = format!("{locator} is the same device or file as {other}");
                other_names.push(Stranger { locator: all[i].0.locator.clone(), why, former: None, is_member: true });
            }
            None => kept.push(i),
        }
    }
    let places = all.into_iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, place)| place).collect();
    Ok((places, other_names))
}

/// What a place is, or its name where the file system does not answer: whoever opens it says so then.
async fn identity_in_time(env: &HostEnv, locator: &Locator) -> String {
    let at = locator.clone();
    let looked = env.timeout(IDENTITY, env.blocking(move || identity(&at))).await;
    looked.and_then(Result::ok).unwrap_or_else(|| locator.to_string())
}

/// Whether a name leads to the device by a link, as those in `/dev/disk` do. One that could not be looked up is not asked again.
fn is_link(identity: &str, locator: &Locator) -> bool {
    let is_known = identity != locator.to_string();
    locator.path().filter(|_| is_known).is_some_and(|path| std::fs::canonicalize(path).is_ok_and(|real| real != path))
}

/// A device that is there and cannot be opened may be a member that somebody uses, and a group is never opened without such a
/// one. Where all members are found without it, it is none, whatever the configuration says: it was to be added once,
/// and does something else now.
fn refuse_barred(config: &GroupConfig, members: &Members, barred: &[String]) -> Result<()> {
    if barred.is_empty() || is_whole(&members.opened) {
        return Ok(());
    }
    if let Some(server) = elsewhere::server_of(&config.name) {
        bail!("{}", server.words(&config.name));
    }
    bail!(
        "group '{}' lacks a member, which may be one that cannot be opened: {}. If it is none any more, take it out of \
         {}, or name the members with --member",
        config.name,
        barred.join("; "),
        crate::paths::config_file(&config.name)?.display()
    )
}

/// Whether every member is open that the newest table knows.
pub(crate) fn is_whole(opened: &[Opened]) -> bool {
    let found = member_uuids(opened);
    let is_there = |row: &MemberRow| row.state == MemberCode::Left || found.contains(&row.uuid);
    newest_table(labels(opened)).is_some_and(|l| l.members.iter().all(is_there))
}

/// Takes out those that were not made members in the end, or have left, but for those of `before`: all members are there.
fn take_former(opened: &mut Vec<Opened>, before: &[[u8; 16]]) -> Vec<Stranger> {
    let Some(newest) = newest_table(labels(opened)).cloned() else { return Vec::new() };
    let mut former = Vec::new();
    opened.retain(|m| {
        let label = m.label.as_ref().filter(|label| !before.contains(&own_uuid(label)));
        let why = label.and_then(|label| why_none(label, &newest));
        let is_member = why.is_none();
        former.extend(why.map(|why| Stranger {
            locator: m.locator.to_string(),
            why: format!("{} {why}", m.locator),
            former: m.label.clone().map(Box::new),
            is_member: false,
        }));
        is_member
    });
    former
}

/// Why a device is not open.
enum Closed {
    /// It is not there.
    Absent(String),
    /// It is there, or may be, and cannot be had at this moment: it cannot be opened, or its labels cannot be read.
    Unread(String),
    /// It is there, and not to be had.
    Barred(String),
}

/// Opens a device that may be a member.
async fn open_here(env: &HostEnv, locator: &Locator, access: Access) -> Result<Opened, Closed> {
    match open_device(env, locator, access).await {
        Ok(device) => {
            let watch = waiting::watch(env, locator.to_string(), &device);
            match read_label(&device).await {
                Ok(label) => Ok(Opened::new(locator, device, label, watch)),
                Err(e) => Err(Closed::Unread(format!("{locator}: the label cannot be read: {e:#}"))),
            }
        }
        Err(OpenError::Missing { path }) => {
            // Block devices are looked for by their labels, files are not.
            let moved = match path.starts_with("/dev") {
                true => "",
                false => " (if it was moved, say so in the configuration, or name all members: --member)",
            };
            Err(Closed::Absent(format!("{} does not exist{moved}", path.display())))
        }
        Err(e @ OpenError::NoServer { .. }) => Err(Closed::Absent(e.to_string())),
        // A server that does not let us in now, a drive that is not ready: another time all may be there.
        Err(e @ (OpenError::Nbd { .. } | OpenError::Unread { .. } | OpenError::Io { .. })) => {
            Err(Closed::Unread(e.to_string()))
        }
        Err(e) => Err(Closed::Barred(e.to_string())),
    }
}

fn belongs(opened: &Opened, group: &str) -> bool {
    opened.label.as_ref().is_none_or(|l| uuid_text(&l.group) == group)
}

fn labels(opened: &[Opened]) -> impl Iterator<Item = &Label> {
    opened.iter().filter_map(|m| m.label.as_ref())
}

fn member_uuids(opened: &[Opened]) -> Vec<[u8; 16]> {
    labels(opened).map(own_uuid).collect()
}

async fn open_scanned(env: &HostEnv, name: &str, access: Access) -> Result<Members> {
    let found = scan_block_devices(env, &|l: &Label| l.group_name == name).await;
    if found.is_empty() {
        bail!(
            "no group named '{name}' is configured, and no block device carries it; \
             `bimetal scan` lists what there is, --member names members that are files or remote"
        );
    }
    refuse_namesakes(name, found.iter().map(|(locator, label)| (locator, label)))?;
    let (found, legs) = without_legs(env, found).await;
    // Where the RAID is assembled it is the member, and its legs are nothing to speak of.
    let is_found = |leg: &Label| found.iter().any(|(_, label)| own_uuid(label) == own_uuid(leg));
    if let Some((_, why)) = legs.iter().find(|(label, _)| !is_found(label)) {
        bail!("group '{name}' lacks a member: {why}");
    }
    let places: Vec<Locator> = found.into_iter().map(|(locator, _)| locator).collect();
    let members = open_all(env, &places, access).await?;
    // A name may have become another device's since.
    refuse_namesakes(name, members.labelled())?;
    Ok(members)
}

/// Refuses devices of several groups, which only their name could be meant by.
pub(crate) fn refuse_namesakes<'a>(name: &str, found: impl Iterator<Item = (&'a Locator, &'a Label)>) -> Result<()> {
    let mut groups: BTreeMap<[u8; 16], Vec<String>> = BTreeMap::new();
    for (locator, label) in found {
        groups.entry(label.group).or_default().push(locator.to_string());
    }
    if groups.len() < 2 {
        return Ok(());
    }
    let one = |(uuid, places): (&[u8; 16], &Vec<String>)| format!("{} ({})", uuid_text(uuid), places.join(", "));
    let all: Vec<String> = groups.iter().map(one).collect();
    bail!(
        "{} groups are named '{name}', here by UUID with the devices that carry their labels: {}. Name all members of the one that is \
         meant with --member",
        groups.len(),
        all.join("; ")
    );
}

/// Devices with a wanted label, and that, among those that the configuration of a group names, some others, and all block devices.
pub(crate) async fn carriers(
    env: &HostEnv,
    name: &str,
    others: Vec<Locator>,
    wanted: &dyn Fn(&Label) -> bool,
) -> Vec<(Locator, Label)> {
    // A configuration that cannot be read names nothing.
    let known = config::load(name).ok().flatten().map(|c| c.members).unwrap_or_default();
    let mut places: Vec<Locator> = Vec::new();
    for place in known.iter().filter_map(|m| Locator::parse(&m.locator).ok()).chain(others) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let mut found = with_labels(env, places, wanted).await;
    found.extend(scan_block_devices(env, wanted).await);
    found
}

/// The same of what is on this machine. A server may take one connection at a time, which the group has that is in use.
pub(crate) async fn carriers_here(env: &HostEnv, name: &str, wanted: &dyn Fn(&Label) -> bool) -> Vec<Locator> {
    let known = config::load(name).ok().flatten().map(|c| c.members).unwrap_or_default();
    let places = known.iter().filter_map(|m| Locator::parse(&m.locator).ok()).filter(|at| at.path().is_some());
    let mut found = with_labels(env, places.collect(), wanted).await;
    found.extend(scan_block_devices(env, wanted).await);
    found.into_iter().map(|(locator, _)| locator).collect()
}

/// Block devices whose label is `wanted`. A device that cannot be read is no candidate.
pub(crate) async fn scan_block_devices(env: &HostEnv, wanted: &dyn Fn(&Label) -> bool) -> Vec<(Locator, Label)> {
    with_labels(env, block_devices().into_iter().map(Locator::Path).collect(), wanted).await
}

/// Of devices that a scan has found, those that may be members; and the labels of others, with why these may not.
async fn without_legs(env: &HostEnv, found: Vec<(Locator, Label)>) -> (Vec<(Locator, Label)>, Vec<(Label, String)>) {
    let barred = join_all(found.iter().map(|(locator, _)| legs::why_not(env, locator))).await;
    let (mut members, mut legs) = (Vec::new(), Vec::new());
    for ((locator, label), why) in found.into_iter().zip(barred) {
        match why {
            None => members.push((locator, label)),
            Some(why) => legs.push((label, why)),
        }
    }
    (members, legs)
}

/// Those of `places` whose label is `wanted`, looked at side by side.
async fn with_labels(env: &HostEnv, places: Vec<Locator>, wanted: &dyn Fn(&Label) -> bool) -> Vec<(Locator, Label)> {
    let look = async |locator: &Locator| {
        let device = HostDevice::open(env, locator, Access::PEEK).await.ok()?;
        read_label(&device).await.ok()?.ok().filter(|label| wanted(label))
    };
    let labels = join_all(places.iter().map(look)).await;
    places.into_iter().zip(labels).filter_map(|(locator, label)| Some((locator, label?))).collect()
}

/// Whether a loop device shows a volume of ours: its file lies in a FUSE mount of a daemon. Reading such a device
/// while its daemon is in trouble would mean to wait for it.
fn is_own_volume(sys: &std::path::Path) -> bool {
    let file = bimetal_host::probe::sysfs::backing_file(sys);
    file.is_some_and(|file| file.parent().is_some_and(bimetal_host::fuse::is_mounted))
}

/// Block devices that could be members, partitions included.
pub(crate) fn block_devices() -> Vec<std::path::PathBuf> {
    const NEVER: [&str; 7] = ["ram", "zram", "sr", "fd", "nbd", "ublkb", "md_d"];
    let mut names: Vec<String> = std::fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let sectors: u64 = std::fs::read_to_string(e.path().join("size")).ok()?.trim().parse().ok()?;
            let never = NEVER.iter().any(|n| name.starts_with(n)) || is_own_volume(&e.path());
            (sectors > 0 && !never).then_some(name)
        })
        .collect();
    names.sort();
    names.into_iter().map(|n| std::path::Path::new("/dev").join(n.replace('!', "/"))).collect()
}
