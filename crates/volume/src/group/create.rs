//! Making a group: sizes are checked first, then every member is laid out, labels last, so that a creation that was cut
//! off leaves no group.

use bimetal_format::journal::RECORDS_PER_BLOCK;
use bimetal_format::label::{
    is_name, Epoch, Label, MemberCode, MemberRow, PageRun, PlacementCode, Repair, TierCode, VolumeRow, VolumeState,
    MAX_MEMBERS, MAX_VOLUMES,
};
use bimetal_format::layout::{default_journal_blocks, pages_for, Layout, LayoutError, MIN_JOURNAL_BLOCKS};
use bimetal_format::size::InWords;
use bimetal_format::ENTRIES_PER_PAGE;

use super::structure::placement_code;
use super::Group;
use crate::env::{Device, DeviceError, Env};
use crate::member::Member;
use crate::options::{CreateOptions, NewVolume, Uuid};
use crate::units::{Tier, CHUNK};

/// Default reserve, in bytes.
const RESERVE: u64 = 4 << 30;

/// Why a group could not be made. Devices are named by their position in the caller's list.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A name breaks the rule.
    #[error("{what} name '{name}': use 1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")]
    Name {
        /// "group" or "volume".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two volumes of one name.
    #[error("two volumes are named '{0}'")]
    TwoVolumes(String),
    /// A tier without a member, too many members or volumes.
    #[error("{0}")]
    Shape(String),
    /// A device cannot be laid out.
    #[error("device {device}: {source}")]
    Layout {
        /// Position in the caller's list.
        device: usize,
        /// Why.
        source: LayoutError,
    },
    /// A size is zero, or the sizes together are more than there is.
    #[error("{0}")]
    Size(String),
    /// A device failed.
    #[error("device {device}: {source}")]
    Device {
        /// Position in the caller's list.
        device: usize,
        /// What it said.
        source: DeviceError,
    },
}

/// What was made.
#[derive(Clone, Debug)]
pub struct CreateReport {
    /// Group UUID.
    pub uuid: Uuid,
    /// UUID of each member, in the order of the devices.
    pub members: Vec<Uuid>,
    /// Name and size in bytes of each volume.
    pub volumes: Vec<(String, u64)>,
    /// Bytes of all slots together.
    pub capacity: u64,
    /// Fast bytes kept free for new writes.
    pub reserve: u64,
}

/// Everything that is decided before anything is written.
struct Plan {
    layouts: Vec<Layout>,
    members: Vec<MemberRow>,
    volumes: Vec<VolumeRow>,
    reserve: u64,
}

impl<E: Env> Group<E> {
    /// How each of `members` would be laid out; nothing is written.
    pub fn layouts(
        env: &E,
        members: &[(E::Device, Tier)],
        options: &CreateOptions,
    ) -> Result<Vec<Layout>, CreateError> {
        plan(env, members, options).map(|plan| plan.layouts)
    }

    /// Makes a group on `members`, which are overwritten.
    pub async fn create(
        env: &E,
        members: Vec<(E::Device, Tier)>,
        options: &CreateOptions,
    ) -> Result<CreateReport, CreateError> {
        let plan = plan(env, &members, options)?;
        let uuid = new_uuid(env);
        let labels = labels(env, &plan, uuid, options);
        let mut made = Vec::new();
        for (i, ((device, _), label)) in members.into_iter().zip(labels).enumerate() {
            let m = Member::new(Some(device), label.clone(), label.member, RECORDS_PER_BLOCK);
            lay_out(&m).await.map_err(|source| CreateError::Device { device: i, source })?;
            made.push((m, label));
        }
        for (i, (m, label)) in made.iter().enumerate() {
            let fail = |source| CreateError::Device { device: i, source };
            m.flip(label.clone()).await.map_err(fail)?;
        }
        Ok(CreateReport {
            uuid,
            members: plan.members.iter().map(|m| m.uuid).collect(),
            volumes: plan.volumes.iter().map(|v| (v.name.clone(), v.size)).collect(),
            capacity: plan.layouts.iter().map(|l| l.slot_count * CHUNK).sum(),
            reserve: plan.reserve,
        })
    }
}

/// Erases old labels and writes empty zones. The new label follows when all members are ready.
pub(crate) async fn lay_out<D: Device>(m: &Member<D>) -> Result<(), DeviceError> {
    use crate::buf::BufMut;
    use crate::member::WriteFor;
    use bimetal_format::label::LABEL_SIZE;
    use bimetal_format::layout::{label_b, LABEL_A};
    let size = m.label.borrow().device_size;
    for place in [LABEL_A, label_b(size)] {
        m.write(place, BufMut::zeroed(LABEL_SIZE).freeze(), WriteFor::Engine).await?;
    }
    // Old journal blocks could not be mistaken for new ones (another group, another chain), but a clean first block
    // makes a dump readable.
    m.write(m.layout.journal, BufMut::zeroed(bimetal_format::BLOCK).freeze(), WriteFor::Engine).await?;
    m.format_away().await?;
    m.sync_all().await
}

pub(crate) fn new_uuid<E: Env>(env: &E) -> Uuid {
    let mut u = [0; 16];
    u[..8].copy_from_slice(&env.random().to_le_bytes());
    u[8..].copy_from_slice(&env.random().to_le_bytes());
    // RFC 9562: version 4 (random), variant 1.
    u[6] = u[6] & 0x0f | 0x40;
    u[8] = u[8] & 0x3f | 0x80;
    u
}

fn labels<E: Env>(env: &E, plan: &Plan, uuid: Uuid, options: &CreateOptions) -> Vec<Label> {
    let mut present = [0u8; 32];
    (0..plan.members.len()).for_each(|i| present[i / 8] |= 1 << (i % 8));
    let id = env.random().max(1);
    let epoch = Epoch { id, first_generation: 1, members: present, confirmed: true, history: Vec::new(), cut_off: 0 };
    let (hash, created) = (env.random(), env.unix_seconds());
    let of = |(i, layout): (usize, &Layout)| Label {
        sequence: 0,
        compatible: 0,
        read_only_compatible: 0,
        group: uuid,
        group_name: options.name.clone(),
        member: i as u8,
        created,
        device_size: plan.members[i].size,
        reserve: plan.reserve,
        sector_size: options.sector_size,
        next_volume: plan.volumes.len() as u32 + 1,
        clean: true,
        stopped: false,
        epoch: epoch.clone(),
        journal_tail: 0,
        journal_tail_hash: hash,
        journal_end: 0,
        checkpoint_generation: 0,
        root_generation: 0,
        root_side: 0,
        mirrors_from: 0,
        policy_clock: 0,
        generation: 0,
        tables: 0,
        members_changed: false,
        joining: false,
        zones: layout.zones(),
        members: plan.members.clone(),
        volumes: plan.volumes.clone(),
        families: Vec::new(),
        next_family: 0,
        keys_side: 0,
        repair: Repair::None,
        repair_id: 0,
    };
    plan.layouts.iter().enumerate().map(of).collect()
}

fn plan<E: Env>(env: &E, members: &[(E::Device, Tier)], options: &CreateOptions) -> Result<Plan, CreateError> {
    check_shape(members, options)?;
    let pages = pages_of_all(members.iter().map(|(d, _)| d.size()), options.volumes.len() as u64)?;
    let mut layouts = Vec::new();
    let mut rows = Vec::new();
    for (device, (d, tier)) in members.iter().enumerate() {
        let journal = options.journal_blocks.unwrap_or(default_journal_blocks(d.size())).max(MIN_JOURNAL_BLOCKS);
        let layout = Layout::plan(d.size(), pages, journal).map_err(|source| CreateError::Layout { device, source })?;
        let tier = match tier {
            Tier::Fast => TierCode::Fast,
            Tier::Slow => TierCode::Slow,
        };
        rows.push(MemberRow {
            uuid: new_uuid(env),
            tier,
            size: d.size(),
            slots: layout.slot_count as u32,
            state: MemberCode::Member,
        });
        layouts.push(layout);
    }
    let slots_of = |t| -> u64 { rows.iter().filter(|r| r.tier == t).map(|r| u64::from(r.slots)).sum() };
    let (fast, slow) = (slots_of(TierCode::Fast), slots_of(TierCode::Slow));
    let volumes = plan_volumes(env, &options.volumes, fast, slow)?;
    let reserve = options.reserve.unwrap_or(RESERVE).min(fast * CHUNK / 4) / CHUNK * CHUNK;
    Ok(Plan { layouts, members: rows, volumes, reserve })
}

/// Pages of the map for members of these sizes.
fn pages_of_all(mut sizes: impl Iterator<Item = u64>, volumes: u64) -> Result<u64, CreateError> {
    let too_much =
        |what: String| Err(CreateError::Size(format!("{what} are more than format 1 can address in one group")));
    // A server may claim any size.
    let Some(total) = sizes.try_fold(0u64, u64::checked_add) else {
        return too_much("16384 PiB and more".into());
    };
    let pages = pages_for(total, volumes);
    match pages * ENTRIES_PER_PAGE as u64 >= u64::from(u32::MAX) {
        true => too_much(InWords(total).to_string()),
        false => Ok(pages),
    }
}

fn check_shape<D>(members: &[(D, Tier)], options: &CreateOptions) -> Result<(), CreateError> {
    let shape = |text: &str| Err(CreateError::Shape(text.to_string()));
    for tier in [Tier::Fast, Tier::Slow] {
        if !members.iter().any(|(_, t)| *t == tier) {
            return shape(&format!("a group needs at least one {tier} member"));
        }
    }
    if members.len() > MAX_MEMBERS || options.volumes.len() > MAX_VOLUMES {
        return shape(&format!("at most {MAX_MEMBERS} members and {MAX_VOLUMES} volumes"));
    }
    if options.volumes.is_empty() {
        return shape("a group needs at least one volume");
    }
    if options.sector_size != 512 && options.sector_size != 4096 {
        return shape("the sector size is 512 or 4096");
    }
    let names = options.volumes.iter().map(|v| ("volume", &v.name));
    for (what, name) in [("group", &options.name)].into_iter().chain(names) {
        if !is_name(name) {
            return Err(CreateError::Name { what, name: name.clone() });
        }
    }
    for (i, v) in options.volumes.iter().enumerate() {
        if options.volumes[..i].iter().any(|o| o.name == v.name) {
            return Err(CreateError::TwoVolumes(v.name.clone()));
        }
    }
    Ok(())
}

/// Slots that no volume may promise: room for moves (I5).
pub fn headroom(slots: u64) -> u64 {
    (slots / 1000).max(64).min(slots / 8)
}

/// Slots that volumes may be promised, of so many of which some are kept back until the next start: these are there for nobody. Twice
/// as many and one are not promised, if that is more than the headroom: moves leave half of it to clients, and could not go on if all of
/// the other half were kept back.
pub fn promisable(slots: u64, kept_back: u64) -> u64 {
    let unusable = match kept_back {
        0 => 0,
        n => 2 * n + 1,
    };
    slots.saturating_sub(headroom(slots).max(unusable))
}

fn plan_volumes<E: Env>(env: &E, wanted: &[NewVolume], fast: u64, slow: u64) -> Result<Vec<VolumeRow>, CreateError> {
    let room = fast + slow - headroom(fast + slow);
    let sized: u64 = wanted.iter().filter_map(|v| v.size).map(|s| s / CHUNK).sum();
    let takers = wanted.iter().filter(|v| v.size.is_none()).count() as u64;
    let rest = room.checked_sub(sized).filter(|r| *r > 0 || takers == 0).ok_or_else(|| {
        CreateError::Size(format!(
            "the volumes are {} together, but only {} fit",
            InWords(sized * CHUNK),
            InWords(room * CHUNK)
        ))
    })?;
    let mut rows = Vec::new();
    let mut page = 0u32;
    for v in wanted {
        let chunks = v.size.map_or(rest / takers.max(1), |s| s / CHUNK);
        if chunks == 0 {
            return Err(CreateError::Size(format!("volume '{}' has no room: the smallest is 128 KiB", v.name)));
        }
        let page_count = chunks.div_ceil(ENTRIES_PER_PAGE as u64) as u32;
        let (id, size) = (rows.len() as u32 + 1, chunks * CHUNK);
        let name = v.name.clone();
        rows.push(VolumeRow {
            uuid: new_uuid(env),
            name,
            size,
            id,
            runs: vec![PageRun { first: page, count: page_count }],
            family: 0,
            placement: placement_code(v.placement),
            state: VolumeState::Living,
        });
        page += page_count;
    }
    check_bound(&rows, PlacementCode::FastOnly, fast)?;
    check_bound(&rows, PlacementCode::SlowOnly, slow)?;
    Ok(rows)
}

/// Volumes bound to one tier must fit it, headroom left out (C2.3).
fn check_bound(rows: &[VolumeRow], placement: PlacementCode, slots: u64) -> Result<(), CreateError> {
    let bound: u64 = rows.iter().filter(|v| v.placement == placement).map(|v| v.size / CHUNK).sum();
    let room = slots - headroom(slots);
    if bound > room {
        let (need, have) = (InWords(bound * CHUNK), InWords(room * CHUNK));
        return Err(CreateError::Size(format!("volumes bound to one tier need {need}, but it has {have}")));
    }
    Ok(())
}
