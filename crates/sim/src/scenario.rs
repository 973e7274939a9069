//! A scenario: everything a run does, as an explicit list that can be printed, read back, replayed and made smaller.
//!
//! A run is a list of *sessions*. A session is one life of the daemon: it starts, several clients carry out their steps
//! side by side (each its own in order), and it ends with a crash or an orderly stop.

use bimetal_volume::units::{Placement, Tier};

use crate::disk::{Faults, Latency};
use crate::oracle::Crash;
use crate::world::CrashPoint;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Its tier.
    pub tier: Tier,
    /// Slots in its data zone.
    pub slots: u64,
    /// Whether it takes discards.
    pub discard: bool,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Chunks; 0 takes what is left.
    pub chunks: u64,
    /// Where its chunks may live.
    pub placement: Placement,
}

/// What a step does. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads and checks.
    Read,
    /// Writes fresh data.
    Write {
        /// Durable before the answer.
        fua: bool,
    },
    /// TRIM.
    Trim {
        /// Durable before the answer.
        fua: bool,
    },
    /// WRITE_ZEROES.
    Zeroes {
        /// Durable before the answer.
        fua: bool,
        /// Keep the range allocated.
        no_hole: bool,
        /// It is wanted for a step or two only: who asked for it has gone.
        given_up: bool,
    },
    /// Asks for a change of whole blocks, and dies: the steps that follow are those of the next client, which must not see what it does
    /// from then on undone.
    Dying {
        /// What it asks for.
        change: Asked,
        /// So many microseconds after it has asked, unless it has been answered before.
        after: u64,
    },
    /// FLUSH.
    Flush,
    /// A hint that the range is wanted.
    Cache,
    /// Waits; `offset` is not used and `len` is in microseconds.
    Sleep,
    /// Reads the range so many times, 50 ms apart: makes it hot.
    Heat {
        /// How often.
        times: u32,
    },
    /// Writes the range in pieces of 128 KiB.
    Fill,
    /// Makes the volume of this number, which was never there before; `offset` and `len` are not used, nor in the next
    /// three.
    Make {
        /// Its size.
        chunks: u64,
        /// Where its chunks may live.
        placement: Placement,
        /// Number of its family, from 1 on; 0: none.
        family: u8,
    },
    /// Deletes the volume.
    Delete,
    /// Gives the volume another size.
    Resize {
        /// Its new size.
        chunks: u64,
    },
    /// Gives the volume its other name.
    Rename,
    /// Copies the volume onto a device outside the group, until both are the same; `offset` is not used. With a `len` it is given up so
    /// many microseconds after the volume was to stand still.
    Dissolve,
    /// All disks are copied, as a program that reads them does it; volume and `offset` are not used. With a `len` that is done so many
    /// microseconds after the next start has begun.
    Copy,
    /// Bits rot in all metadata of the disk of this number; volume, `offset` and `len` are not used. For scenarios in which another
    /// fast member has all of it, and in which a check follows that mends.
    Rot {
        /// Any disk.
        disk: usize,
    },
    /// Bits rot in the second label of the disk of this number; volume, `offset` and `len` are not used. For scenarios in which nothing
    /// flips labels before a check mends it.
    RotLabel {
        /// Any disk.
        disk: usize,
    },
    /// Bits rot in pages, directory and root on the disk of this number; volume, `offset` and `len` are not used. For scenarios in which
    /// others have all of it.
    RotMap {
        /// Any disk.
        disk: usize,
    },
    /// Bits rot in what the disk of this number holds of the headers of families; volume, `offset` and `len` are not used. For scenarios
    /// in which another disk has them whole.
    RotKeys {
        /// Any disk.
        disk: usize,
        /// Whose header; 0: all of them.
        family: u8,
    },
    /// Verifies the group while it is in use; volume, `offset` and `len` are not used.
    Check {
        /// What is damaged would be written anew.
        mend: bool,
    },
    /// Makes the family of this number; volume, `offset` and `len` are not used, nor in the next three.
    MakeFamily {
        /// From 1 on.
        family: u8,
    },
    /// Deletes a family.
    DropFamily {
        /// From 1 on.
        family: u8,
    },
    /// Replaces the header of a family.
    NewHeader {
        /// From 1 on.
        family: u8,
    },
    /// Locks a family and unlocks it again, beside the requests of others.
    Relock {
        /// From 1 on.
        family: u8,
    },
    /// Gives the volume a family.
    Encrypt {
        /// From 1 on.
        family: u8,
    },
    /// Adds the disk of this number to the group; volume, `offset` and `len` are not used.
    AddMember {
        /// A disk beyond those that the group was made of.
        disk: usize,
    },
    /// The member on the disk of this number is to leave.
    Evacuate {
        /// Any disk; if it is no member, or the last of its tier, that is to be said.
        disk: usize,
    },
    /// It stays after all, if it is leaving.
    Keep {
        /// Any disk.
        disk: usize,
    },
    /// Waits until it is empty, and takes it out of the group; if it is leaving.
    Remove {
        /// Any disk.
        disk: usize,
    },
}

impl Act {
    /// Whether it changes the volume itself.
    pub fn is_structural(self) -> bool {
        let volumes =
            matches!(self, Act::Make { .. } | Act::Delete | Act::Resize { .. } | Act::Rename | Act::Encrypt { .. });
        volumes || self.is_of_members() || self.is_of_families()
    }

    /// Whether it is about a range of a volume.
    pub fn has_range(self) -> bool {
        let of_range = matches!(
            self,
            Act::Read
                | Act::Write { .. }
                | Act::Trim { .. }
                | Act::Zeroes { .. }
                | Act::Dying { .. }
                | Act::Cache
                | Act::Heat { .. }
                | Act::Fill
        );
        debug_assert!(!of_range || !self.is_structural());
        of_range
    }

    /// Whether it changes a family.
    pub fn is_of_families(self) -> bool {
        matches!(self, Act::MakeFamily { .. } | Act::DropFamily { .. } | Act::NewHeader { .. } | Act::Relock { .. })
    }

    /// Whether it changes who is a member.
    pub fn is_of_members(self) -> bool {
        matches!(self, Act::AddMember { .. } | Act::Evacuate { .. } | Act::Keep { .. } | Act::Remove { .. })
    }
}

/// What a client asks for that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A write of fresh data.
    Write,
    /// A TRIM.
    Trim,
    /// WRITE_ZEROES.
    Zeroes,
}

impl Asked {
    /// All of them, with names.
    pub const ALL: [(Asked, &'static str); 3] =
        [(Asked::Write, "dying-write"), (Asked::Trim, "dying-trim"), (Asked::Zeroes, "dying-zeroes")];
}

/// Most volumes that a run has in all: content tells so many apart.
pub const MAX_VOLUMES: usize = 16;

/// Most families of a run; they are numbered from 1 on.
pub const MAX_FAMILIES: u8 = 3;

/// One step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which client; each does its steps in order.
    pub client: u8,
    /// Which volume, by number: those made with the group first. A step for a volume that is not there is left out, and
    /// one beyond its end is cut.
    pub volume: usize,
    /// What.
    pub act: Act,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At this point, or when all steps are done.
    Crash(Crash, CrashPoint),
    /// An orderly stop after all steps.
    Stop,
    /// An orderly stop after all steps; a crash if this point comes first.
    StopOr(Crash, CrashPoint),
}

impl End {
    /// The crash that may come, and when.
    pub fn crash(self) -> Option<(Crash, CrashPoint)> {
        match self {
            End::Stop => None,
            End::Crash(kind, point) | End::StopOr(kind, point) => Some((kind, point)),
        }
    }

    /// The same end with its crash at another point.
    #[must_use]
    pub fn with_point(self, point: CrashPoint) -> End {
        match self {
            End::Stop => End::Stop,
            End::Crash(kind, _) => End::Crash(kind, point),
            End::StopOr(kind, _) => End::StopOr(kind, point),
        }
    }
}

/// What happens to members while the group is down, before a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The member is not there in this session: a writable start must be refused, a degraded one must not lie.
    Missing(usize),
    /// An image from before the last session is put in the place of the member: the start must be refused.
    Stale(usize),
    /// The same of one from before the second session.
    Old(usize),
    /// The member is as it was when all were last copied, in the midst of a session: the start must be refused. With `true` that holds
    /// in any case; else only after an orderly stop, or if the group was opened again since.
    Midst(usize, bool),
    /// The same as with `true`, and a journal block of another fast member rots, which is not one of the last commit.
    MidstBesideGap(usize),
    /// The same of a copy that was made in a start, if the member had not confirmed its epoch then; there are commits of that.
    AtStart(usize),
    /// All members but this one are of a copy of the group that was used apart since the last session began: the start
    /// must be refused.
    Fork(usize),
    /// The member goes on with a new device, the others without it, and all come together: the start must be refused.
    Halves(usize),
    /// So many metadata blocks of the member rot, or lose their last write.
    Rot(usize, u32),
    /// All map pages of the member are as before the last session: their writes were lost although the disk confirmed.
    Lost(usize),
    /// All fast members are gone; all that is on the slow tier came there by moves, and must be served.
    Alone,
    /// All fast members are gone.
    NoFast,
    /// The map pages of this slow member rot, for good: the others know all, and this is no experiment on the side.
    Decay(usize),
    /// All fast members are gone, and the map pages of this one rot.
    NoFastNorPages(usize),
    /// Map pages give two chunks one slot.
    Forged,
    /// What the member holds of the headers of families rots.
    Keys(usize),
    /// A journal block of the member rots, which is not one of the last commit.
    Gap(usize),
    /// All journal blocks of the member's last two commits rot, but for their heads.
    End(usize),
    /// All that the member's journal holds rots, where its label tells that there is something.
    Ring(usize),
    /// A part of the member's journal ring cannot be read, which is longer than what is asked for block by block; perhaps all that comes
    /// behind a block which has rotted but for its head.
    Hole(usize),
    /// Every sync of the member fails: a writable start must be refused, one that only reads shows all.
    Unflushed(usize),
    /// All that the member's journal holds rots, or its last two commits but for their heads, and other members know everything; the first
    /// start after it is cut off after so many events.
    Journal(usize, u64),
    /// The end rots that the last start left in the member's journal, if nothing has come behind it; the first start after it is cut off
    /// after so many events.
    Seal(usize, u64),
    /// Both labels of the member rot, and the group is repaired.
    Labels(usize),
    /// The root of the member's page directory rots; the first start that mends it is cut off after so many events.
    Directory(usize, u64),
    /// Pages of the member's map rot, about half of them; the first start that mends them is cut off after so many events.
    Pages(usize, u64),
    /// The member is gone, and the group is repaired; the first repair is cut off after so many events.
    Repair(usize, u64),
    /// The root of the member's page directory cannot be read while the group is repaired, which is cut off after so many events; then it
    /// can.
    Hidden(usize, u64),
    /// The member is empty and leaves. A start without it is cut off after the first number of events, one with it after the
    /// second; then all data is there.
    Back(usize, u64, u64),
    /// A start is cut off after the first number of events, and more than a label can name after the second; then all data is
    /// there.
    Starts(u64, u64),
    /// The member is leaving, and not there when the group is started, for so many events at most; if that goes on without it, it is none
    /// from then on, for good: this is no experiment on the side.
    Gone(usize, u64),
}

/// One life of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Done to members before it starts.
    pub damage: Option<Damage>,
    /// Faults of each disk.
    pub faults: Vec<Faults>,
    /// Speed of each disk, by name.
    pub speed: Vec<Speed>,
    /// What clients do.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: End,
}

/// Speed of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// A healthy SSD.
    Ssd,
    /// A healthy hard disk.
    Hdd,
    /// Slow, not dead.
    Sick,
    /// Many stalls.
    Storm,
}

impl Speed {
    /// All of them, with names.
    pub const ALL: [(Speed, &'static str); 4] =
        [(Speed::Ssd, "ssd"), (Speed::Hdd, "hdd"), (Speed::Sick, "sick"), (Speed::Storm, "storm")];

    /// Its service times.
    pub fn latency(self) -> Latency {
        match self {
            Speed::Ssd => Latency::SSD,
            Speed::Hdd => Latency::HDD,
            Speed::Sick => Latency::SICK,
            Speed::Storm => Latency::STORM,
        }
    }

    /// The healthy speed of a tier.
    pub fn of(tier: Tier) -> Speed {
        match tier {
            Tier::Fast => Speed::Ssd,
            Tier::Slow => Speed::Hdd,
        }
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Seeds latencies, the order of tasks, what survives a crash, and the engine's own draws.
    pub seed: u64,
    /// Logical sector of the group.
    pub sector: u32,
    /// Blocks of each journal; 0: the engine's choice.
    pub journal: u32,
    /// Records in a journal block; 0: as many as fit.
    pub records: u32,
    /// Every power cut tears what was not durable.
    pub tear: bool,
    /// Reserve in slots.
    pub reserve: u64,
    /// Commit timer in milliseconds.
    pub commit_ms: u64,
    /// Chunks that may be promoted at once before the endurance budget counts, at least a group of 8; 0: the engine's
    /// choice, which no run of the simulator uses up.
    pub burst: u64,
    /// Bytes of requests that may be in flight, the others wait; 0: the engine's choice, which no run of the simulator
    /// comes to.
    pub inflight: u64,
    /// Regions of the away bitmap that are set together; 0: the engine's choice, which is all of most groups of the simulator.
    pub ahead: u32,
    /// Whether the mover runs.
    pub migrate: bool,
    /// Members that the group is made of; the fast ones first.
    pub members: Vec<MemberSpec>,
    /// Disks that may become members later; they are numbered after those.
    pub spares: Vec<MemberSpec>,
    /// Volumes.
    pub volumes: Vec<VolumeSpec>,
    /// Lives of the daemon.
    pub sessions: Vec<Session>,
    /// Every change is answered only when the death of the daemon cannot undo it (`WriteFlags::outlives`).
    pub outlives: bool,
    /// After the last session, prove that the engine recovers its reserve and promotes a hot chunk.
    pub liveness: bool,
}

impl Scenario {
    /// All disks, by number.
    pub fn disks(&self) -> impl Iterator<Item = &MemberSpec> {
        self.members.iter().chain(&self.spares)
    }

    /// Steps in all sessions.
    pub fn steps(&self) -> usize {
        self.sessions.iter().map(|s| s.steps.len()).sum()
    }

    /// A session of this scenario in which nothing goes wrong.
    pub fn quiet_session(&self, steps: Vec<Step>, end: End) -> Session {
        Session {
            damage: None,
            faults: vec![Faults::default(); self.disks().count()],
            speed: self.disks().map(|m| Speed::of(m.tier)).collect(),
            steps,
            end,
        }
    }
}
