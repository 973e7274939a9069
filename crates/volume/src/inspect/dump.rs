//! Printing a group that is not in use.

use bimetal_format::journal::RecordKind;
use bimetal_format::label::{FamilyRow, Label};
use bimetal_format::BLOCK;

use super::node::Node;
use crate::env::Env;
use crate::group::core::Core;
use crate::member::Member;
use crate::options::OpenOptions;
use crate::recovery::{self, OpenError};
use crate::tier::Policy;

/// What to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions {
    /// Every entry of the map.
    pub entries: bool,
    /// Every record of the journals.
    pub records: bool,
}

fn family(row: &FamilyRow) -> Node {
    Node::default()
        .text("name", row.name.clone())
        .text("uuid", hex(&row.uuid))
        .number("id", row.id.into())
        .number("at", u64::from(row.at) * BLOCK as u64)
        .number("stored", row.stored_len() as u64)
        .number("header", u64::from(row.header) * BLOCK as u64)
}

/// The labels, zones, journals, directories and map of a group, as a tree. Writes nothing.
pub async fn dump<E: Env>(env: E, devices: Vec<E::Device>, what: DumpOptions) -> Result<Node, OpenError> {
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    let core = recovery::open(env, devices, options).await?;
    let mut members = Vec::new();
    for m in core.members.iter().filter(|m| m.is_present()) {
        members.push(dump_member(&core.env, m, what).await?);
    }
    let all = core.volumes.all();
    let volumes = all.iter().map(|v| {
        let run = |r: &bimetal_format::label::PageRun| {
            Node::default().number("first", r.first.into()).number("count", r.count.into())
        };
        let runs: Vec<Node> = v.runs.borrow().iter().map(run).collect();
        Node::default()
            .text("name", v.name.borrow().clone())
            .text("uuid", hex(&v.uuid))
            .number("size", v.size.get())
            .number("id", v.id.into())
            .flag("deleted", v.deleted.get())
            .text("placement", v.placement.to_string())
            .number("family", v.cipher.family().into())
            .flag("encrypting", v.cipher.is_encrypting())
            .number("fast_chunks", v.fast_chunks.get())
            .number("slow_chunks", v.slow_chunks.get())
            .list("pages", runs)
    });
    let mut out = Node::default()
        .number("schema", 1)
        .text("group", core.name.clone())
        .text("uuid", hex(&core.uuid))
        .number("generation", core.commit.durable_generation.get())
        .number("reserve_slots", core.reserve_slots())
        .number("sector_size", u64::from(core.sector_size))
        .list("findings", core.findings.borrow().iter().map(|f| Node::default().text("what", f.what.clone())))
        .list("volumes", volumes)
        .list("families", core.first_member().label.borrow().families.iter().map(family))
        .list("members", members);
    if what.entries {
        out = out.list("entries", entries(&core));
    }
    Ok(out)
}

fn entries<E: Env>(core: &Core<E>) -> Vec<Node> {
    let map = core.map.borrow();
    let policy = core.policy.borrow();
    let node = |(chunk, e): (crate::units::ChunkId, bimetal_format::Entry)| {
        let volume = core.volume_of(chunk);
        let node = Node::default()
            .text("volume", volume.as_ref().map_or(String::new(), |v| v.name.borrow().clone()))
            .number("chunk", volume.and_then(|v| v.number_of(chunk)).unwrap_or(chunk.0))
            .number("member", u64::from(e.member))
            .number("slot", u64::from(e.slot))
            .hex("mask", u64::from(e.mask))
            .number("heat", u64::from(policy.heat_level(map.heat(chunk))));
        with_kept(node, &e)
    };
    map.mapped().map(node).collect()
}

/// Adds the kept copy, if there is one.
fn with_kept(node: Node, e: &bimetal_format::Entry) -> Node {
    match e.kept() {
        Some((member, slot)) => node.number("kept_member", u64::from(member)).number("kept_slot", u64::from(slot)),
        None => node,
    }
}

async fn dump_member<E: Env>(env: &E, m: &Member<E::Device>, what: DumpOptions) -> Result<Node, OpenError> {
    let chain = recovery::read_chain(env, m).await.map_err(|source| OpenError::Member { member: m.index, source })?;
    let mut journal = Node::default()
        .number("blocks", m.layout.journal_blocks)
        .number("end", chain.end.sequence)
        .number("records", chain.records.len() as u64)
        .number("newest_generation", chain.generation)
        .flag("damaged", chain.damaged);
    if what.records {
        journal = journal.list("record", chain.records.iter().map(|(g, r)| record(*g, r)));
    }
    let directory = m.directory.borrow();
    let pages = directory.pages.rows().map(|(n, e)| {
        Node::default()
            .number("page", n as u64)
            .number("generation", e.generation())
            .number("side", u64::from(e.side()))
    });
    let label = m.label.borrow();
    Ok(Node::default()
        .number("index", u64::from(m.index))
        .text("tier", m.tier.to_string())
        .node("label", dump_label(&label))
        .node("journal", journal)
        .list("pages", pages.collect::<Vec<_>>()))
}

fn record(generation: u64, r: &bimetal_format::journal::Record) -> Node {
    let node = Node::default()
        .number("generation", generation)
        .text("kind", if r.kind == RecordKind::Set { "set" } else { "prepared" })
        .number("page", u64::from(r.page))
        .number("index", u64::from(r.index))
        .flag("mapped", r.entry.is_mapped())
        .number("member", u64::from(r.entry.member))
        .number("slot", u64::from(r.entry.slot))
        .hex("mask", u64::from(r.entry.mask));
    with_kept(node, &r.entry)
}

fn dump_label(l: &Label) -> Node {
    let epoch = Node::default()
        .hex("id", l.epoch.id)
        .number("first_generation", l.epoch.first_generation)
        .flag("confirmed", l.epoch.confirmed)
        .list("history", l.epoch.history.iter().map(|e| Node::default().hex("id", *e)));
    let zone = |z: &bimetal_format::layout::ZoneExtent| {
        Node::default()
            .text("kind", format!("{:?}", z.kind).to_lowercase())
            .number("version", u64::from(z.version))
            .number("offset", z.offset)
            .number("bytes", z.len)
    };
    Node::default()
        .number("sequence", l.sequence)
        .text("member_uuid", l.members.get(l.member as usize).map_or(String::new(), |m| hex(&m.uuid)))
        .number("device_size", l.device_size)
        .number("created", l.created)
        .flag("clean", l.clean)
        .flag("stopped", l.stopped)
        .text("repair", format!("{:?}", l.repair).to_lowercase())
        .number("tables", l.tables)
        .number("generation", l.generation)
        .number("journal_tail", l.journal_tail)
        .hex("journal_tail_hash", l.journal_tail_hash)
        .number("checkpoint_generation", l.checkpoint_generation)
        .number("mirrors_from", l.mirrors_from)
        .number("root_generation", l.root_generation)
        .number("root_side", u64::from(l.root_side))
        .node("epoch", epoch)
        .list("zones", l.zones.iter().map(zone))
}

/// A UUID in its usual form.
pub(crate) fn hex(uuid: &[u8; 16]) -> String {
    let h: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
}
