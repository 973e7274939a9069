//! Switchable faults of the engine. Each is one rule of the crash-safety design left out, or one bug that earlier
//! systems had. The simulator must catch every one of them, which proves that it sees. Without the cargo feature
//! `mutants` all switches are constant `false` and cost nothing.

macro_rules! mutants {
    ($($name:ident: $text:literal,)*) => {
        /// A fault that can be switched on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $text] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Its name, as the simulator's command line knows it.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$name => stringify!($name),)* }
            }

            /// What is left out.
            pub fn describe(self) -> &'static str {
                match self { $(Mutant::$name => $text,)* }
            }
        }
    };
}

mutants! {
    DiesWithDaemon: "what is to outlive the daemon is answered before its commit",
    C1RecordsFromLiveMap: "C1.1: records are built from the live map when they are written, not from the snapshot",
    C1DirtyAtSubmit: "C1.2: a mask bit is set when the write is submitted, not when it has completed",
    C1FlushJoinsRunning: "C1.3: a flush joins a commit that has already taken its snapshot",
    C1DirtySetAfterSync: "C1.4: slots left during a commit are freed with that commit",
    C1RecordIsDelta: "C1.5: a record holds only the mask bits that changed",
    PlaintextWritten: "families: what is written to a volume that has a family is not encrypted",
    TweakOfChunk: "families: a block is encrypted by its number in the chunk, not in the volume",
    EncryptedInPlace: "families: a chunk is encrypted in the slot that its plaintext is in",
    EncryptedNotSynced: "families: the slot that a chunk was encrypted to is not synced before the record of it",
    AdriftFreedAtOnce: "families: a slot that was given up for ciphertext is free while that is still on its way there",
    AdriftForgotten: "families: nobody waits for such a slot, though there is no other for what a volume was promised",
    PreparedWithoutFlag: "families: a demotion's prepared record does not say that the blocks are ciphertext",
    NothingWiped: "families: a volume counts as encrypted while slots still hold its plaintext",
    WipedBeforeCommit: "families: blocks are overwritten whose TRIM is not durable",
    WipedNoQuarantine: "families: a free slot whose overwriting has failed is free again before a sync",
    WipedUnclaimed: "families: blocks of a slot in use are overwritten without a claim on them",
    WipedUnderReader: "families: a read decrypts what was overwritten meanwhile, after a TRIM",
    HeadersAfterTable: "families: labels name headers that are not durable yet",
    HeadersNotSynced: "families: headers are not synced before labels name them",
    HeaderNotChecked: "families: a header is taken from a member where it is damaged",
    HeaderUnreadLost: "families: a header that a member could not read is replaced by a damaged copy",
    HeadersNotMended: "families: a start leaves a header damaged that another member has whole",
    LastHeaderLeaves: "families: a member leaves with the only whole header",
    OldHeadersLeft: "families: a header that was replaced stays on the members",
    HeaderFailureLatches: "families: where a header is written, or one that was replaced overwritten, a write that fails takes writes from everybody",
    C1NoDataSync: "C1.6: the journal is written without syncing the members that hold the data",
    C1NoPreparedRecord: "C1.6: a demotion switches without a prepared record on the slow member",
    LagForgotten: "C1.6: what a slow member's journal was to be told is forgotten",
    LeftUntold: "C1.6: a slow slot that was taken and left within one commit is free before its member's journal has heard",
    AwayUnreadUnwritten: "C8.1: an away block that could not be read counts as all set, but is not written so",
    AwaySequenceAnew: "C8.1: the sequence of an away block of which no copy could be read begins anew",
    C1NoAwayBit: "C1.6, C8.1: commits do not wait for the away bit of their region",
    C2FreeBeforeRecord: "C2.1: a slot is free as soon as it is left",
    C2FreeDuringRead: "C2.1: a slot is free although a read of it is in flight",
    C2FreeDuringDiscard: "C2.1: a slot is free although its discard is outstanding",
    C2UnreadBelievesNothing: "C2.1: a page that a slow member cannot read at a start is taken for one that it never can",
    C2HungDiscardFreed: "C2.1: slots whose discard is not answered are used again without its answer",
    C2NoQuarantine: "C2.2: a slot with a write of unknown outcome is used again at once",
    C2TaintBySlot: "C2.2: a sync clears a slot for a write of unknown outcome that was reported while it ran",
    C2TaintedCopied: "C2.2: a chunk is copied from a slot where a write of unknown outcome may still land",
    C2TaintedLifted: "C2.2: what was read of such a slot is lifted",
    C2TaintedEncrypted: "C2.2: such a slot is encrypted as it is before that write",
    C2DiscardUnsure: "C2.1: a slot is free although its discard failed and may still be carried out",
    C3SwitchDespiteWrite: "C3.1: a move switches although the chunk was written meanwhile",
    C3ForcedGoesOn: "a move that was begun while its writers waited switches though they have gone on and written",
    C3SwitchDespiteTrim: "C3.1: a move switches although the chunk was trimmed meanwhile",
    C3CopyDespiteWriter: "C3.1: a copy begins while a write is in flight on the chunk",
    C3LiftBegunLate: "C3.1: the data of a lift is read before the move begins, so that a write in between goes unnoticed",
    AnewAtSubmit: "a chunk that is written anew gets its new home before the data are there",
    AnewThoughFailed: "a chunk that is written anew gets its new home although the write failed",
    AnewOfPart: "a write to a part of a chunk counts as if it replaced all of it",
    AnewOfAny: "any number of chunks is written anew at a time, also of the room that others were promised",
    NewChunkTriedOnce: "a chunk that has no home yet is not given another place if the first takes no write",
    C4NoEpoch: "C4.1: a start writes no new epoch",
    C4StaleAccepted: "C4.2: a member of an older epoch is used as if it were current",
    C4CutOffHidesStale: "C4.2: after a start that was cut off, a member of any older epoch is used",
    C4HistoryForgets: "C4.2: of many starts that were cut off the first push the epoch that was served out of the history",
    C4CopyInUseAccepted: "C4.2: a member that does not say that it was stopped is used, although others do",
    C4StopMarkedLate: "C4.2: a stop marks one member after the other as clean, without all saying first that it is stopped",
    C4StartForgetsStop: "C4.2: a start that is cut off forgets that all members were stopped",
    C4CopyOfStartAccepted: "C4.2: a member that has not confirmed an epoch is used, although there are commits of it",
    C4ConfirmsInAnyOrder: "a member that has not confirmed its epoch is believed beside one that confirms after it",
    C4OlderThanTold: "C4.2: a fast member is used that lacks commits of which a slow one has heard",
    C4NumbersDecide: "C4.2: of two sides that have struck off each other's members the one with the higher number of tables counts",
    C4ForkAccepted: "C4.2: members that were used apart from each other are put together as if they had not been",
    C5PageWithPending: "C5.1: a page image holds changes that are not committed",
    C5OldPageAccepted: "C5.2: a page older than the directory expects is taken",
    C5SameSide: "C5.2: a page is written over the side that is current",
    C5NewUnderOldName: "C5.2: a directory begun anew and cut off can be taken for the one that the label names",
    C5MendedTooLate: "C5.2: a slow member no more says that it was stopped in order before the fast one is mended that needs it",
    C5NotReadBack: "C5.2: a page counts as written although it does not read back as it was sent",
    C5OlderCopyRefused: "C5.2: a damaged page is taken from another member only if that one's copy is as new",
    C5OlderCopyAlone: "C5.2: an older copy of a damaged page counts without the journal beside it",
    C5CutOffForgetsStop: "C5.2: a start that is cut off makes forget that members know everything from an orderly stop",
    C5OthersVouchedFor: "C5.2: of a page that nobody has, a slow member is believed what it says of others' slots",
    C5GapServesSlots: "C5: behind a hole in the journal, chunks are read from slots that may be another's by now",
    C5TailBeforePages: "C5.3: the journal tail moves before the pages are synced",
    C5TailMovesOn: "C5.3: a checkpoint frees the journal up to where it ends after the pages, not before",
    C5LabelNotSynced: "C5.3: journal space is reused before the label with the new tail is synced",
    C6GapHidesNewer: "C6: what lies behind a gap in the journal of one member does not tell that another is an old copy",
    C6HalfBeatsPages: "C6: of two members that end with the same commit the one with more records of it counts, though the pages of the other have it whole",
    C6RottenHeadIgnored: "C6: a journal whose last blocks all rotted counts as cut off before them, though their heads tell of later commits",
    C6PromiseIgnored: "C6: a journal that ends before what its label says was durable counts as cut off there",
    C6PromiseBeforeSync: "C6: a label may be durable before the end of the journal that it says is",
    C6PromiseStays: "C6: a start that is cut off leaves a label that asks for the end which it found rotten",
    C6EmptyIsWhole: "C6: a journal with nothing behind its tail counts as whole, though the block before it is lost",
    C6DamageForgotten: "C6: a start that is cut off leaves a label by which the journal that it found damaged counts as whole",
    C6UnreadTellsEnd: "C6: behind a torn or rotten block a journal counts as ended, though what would tell that cannot be read",
    HoleIsDead: "a device that does not read sixteen blocks of a journal counts as one that answers nothing",
    C6NoChain: "C6: replay checks the sequence but not the hash chain",
    HalfCommitIsWhole: "C6: a start leaves a fast member with the first blocks of a commit that another one has whole",
    TornEndLeft: "C6: a start leaves what was cut off at the end of a journal where the next commit goes",
    C7NoFirstSync: "C7.1: recovery reads before it has synced the members, which count as synced",
    UnflushedUnread: "C7.1: a member whose first sync fails is not read either, by those who write nothing",
    C7ShownIsDurable: "C7.5: what a start could read counts as durable, though a sync had failed before",
    C7LabelShownIsDurable: "C7.5: a label that was read is taken for durable where it was",
    C7AwayShownIsDurable: "C7.5: away bits that a start could read count as durable, though a sync had failed before",
    C7GenerationReused: "C4.1, C7: generations start again where the journal ended",
    C7DoubleHomes: "C7.3: two entries on one slot are both served",
    C7RangeReusedEarly: "C7.4: a deleted volume's map range is used again before its unmap is durable",
    C7RangeNotTold: "C7.4: a deleted volume's map range is used again before all members know of its unmap",
    C7ShrinkDespiteWriter: "C7.4: a volume shrinks although a write beyond its new end is in flight",
    I5KeptBackOfBound: "I5: a discard that is not answered keeps back slots that a volume bound to the tier was promised",
    I5KeptBackPromised: "I5: slots that are kept back are promised to a volume that is made or grown, or to what has to leave a member",
    I5AsideIsHeadroom: "I5: slots set aside for a volume count as room that moves must leave",
    EmptyChunkKeepsSlot: "I5: a chunk keeps the slot that it got for a write of which nothing was sent",
    DropsWaitForRequests: "D7: kept copies are not dropped while requests hold all room for changes, and they wait for the slots",
    I5OwedAtOnce: "I5: a write to a fast-only volume fails where moves have to bring its room back first, after a repair",
    I5OwedCountsAll: "I5: of the time that such a write has for the mover what it waits for else is taken, such as a disk that stands still",
    I5OwedBelowForEver: "I5: nothing comes up where it takes what a slow-only volume was promised, after a repair",
    I5DeletedTakesSlots: "I5: a write that was let in before its volume was deleted takes a slot that another was promised",
    JoiningCounts: "a device that is being added counts as a member by its own word",
    JoinedTooEarly: "a new fast member joins without the commits that ran while the map was written to it",
    SlotsBeforeTable: "slots of a new member are taken before the labels of the others name it",
    StillTakesChunks: "new chunks are put on a member that stands still, though another one has room",
    LostTakesChunks: "new chunks are put on a member whose connection is lost, though another one has room",
    LostOwesFailed: "C11: a commit asks for a sync of a member whose connection is lost because a write there has failed",
    AwayAtCommit: "C8.1: it is a commit, and not the write of a new chunk, that waits until slow members have heard of its region",
    AwayFailureLatches: "C8.1: a slow member that is lost as it hears of a new region takes writes from those who do not need it",
    ZeroingsShareAll: "runs of zeros that hang on one disk take the turns of all volumes",
    CheckpointsInOneTask: "checkpoints of fast members wait for those of slow ones, also of such as stand still",
    LongAsksAll: "a request that is longer than its volume's own room waits for room that all share, which may hang on one disk",
    LeavingTakesSlots: "slots of a member that is leaving are taken still",
    LeavingToldLast: "the others hear before a member itself that it leaves",
    LeavingToldForEver: "that it leaves is told a member that nothing lives on and that stands still, however long that takes",
    KeysAskedForEver: "families: headers are written to a member that nothing lives on and that stands still, however long that takes",
    HeadersReadForEver: "families: headers are read from a member that nothing lives on and that stands still, before others and however long that takes",
    CheckWaitsForLeft: "a check of a group in use waits for what a member was asked that has left since",
    LeftIsWaitedFor: "a write in a new region, and a slow member's teller, wait for one that has left",
    LetGoWithData: "a member that is leaving and fails is let go, whatever is on it",
    KeptThoughGone: "a member that was to leave and is told to stay may be let go while the labels are changed",
    StoppedBeforeStruckOff: "a stop does not strike off a member that was to leave and fails as the labels are marked",
    DeadLeaverNotEmpty: "a member that is leaving and not there counts as having left, whatever is on it",
    DeadLeaverTakenBack: "a member that was leaving, and without which the group was started, is taken back",
    LetGoBarsStart: "a member that was leaving and empty, failed, and is back after a crash counts as an old copy",
    DissolveNotesEarly: "a change of a volume that is copied is noted when it begins, not when it has ended",
    DissolveCutsWriters: "a volume that is copied counts as standing still while writes are under way",
    DissolveNotSynced: "a volume counts as copied although the device was not told to keep it",
    DissolveSyncsAll: "a volume that is copied waits for failed writes to members that hold none of it",
    DissolveStaysFrozen: "a volume that is copied stands still after that was given up, until the device has answered",
    DissolvedAlthoughThawed: "a volume counts as copied although that was given up, and writes were let in, before the end",
    DissolvedWhileWritten: "a volume that is copied is written to while it must stand still",
    LeftBeforeCommit: "a member has left the group before the moves that emptied it are durable everywhere",
    RepairUnmarked: "repair: the labels of members do not say that a repair was begun",
    RepairGoesBack: "repair: a repair that was cut off is done anew from a member that it had not reached",
    RepairTakesAnother: "repair: a member that another repair was begun on is written anew, and not refused as an old copy",
    LeftoversDecide: "recovery: of new devices of attempts of a repair that did not know of each other each counts",
    JoiningTwinCounts: "recovery: a device that was joining in a repair counts beside the one that has become that member since",
    ListedIsNotAtHand: "a device without labels is taken for a new one of a repair that is there, whose number it was to have in an add that was cut off",
    LeftoversStay: "repair: the label of a new device counts before the repair is done on all members",
    LeftoverIsNoSource: "recovery: a new device on which alone a repair is done is not the source of the rest",
    RepairTrustsAny: "repair: a device without labels is a member by blocks of any epoch",
    SealNotRebuilt: "a start leaves no block of its epoch in the journal of a member that it wrote anew",
    SealNeedsRoom: "a start leaves no block of its epoch on a member whose journal is full",
    RepairKeepsDoubt: "repair: what is in doubt is kept",
    RepairOverUnread: "repair: a map whose directory could not be read is written over before another one is there",
    RepairKeepsJournal: "repair: the journals go on where they were",
    MendOverGoodLabel: "a check of a group in use mends: of two labels the whole one is written first",
    MendBehindLatch: "check --mend puts an end behind a commit that has failed, as if that had been durable",
    MendLeavesEnd: "check --mend leaves the block before the tail of a journal as it is, which a start asks for",
    OwedBeforeWrite: "a write wakes the commit timer only if nothing was owed when it began, though a sync may have settled that meanwhile",
    WriteOfTheGone: "a write that waits goes on though its client has gone, over what the next one was told is done",
    TrimOfTheGone: "a TRIM that waits goes on though its client has gone, over what the next one was told is done",
    MendSkipsAway: "a check of a group in use mends: damaged away bits are not written anew",
    MendNamesCommit: "check --mend leaves on a slow member the number of a commit that is not durable yet",
    MendsLost: "a check of a group in use mends a member whose connection is lost, and what fails there takes writes from everybody",
    MendSkipsPages: "a check of a group in use mends: damaged pages are not written anew",
    C8AwayClearedEarly: "C8.1: away bits are cleared before the member has the pages that they speak of",
    C8WritableWithoutAll: "C8.2: a start without all members may write",
    C8AwayIgnored: "C8.1: a member alone calls unknown chunks never written",
    C8LostCalledEmpty: "C8.1: what is perhaps lost is listed as never written",
    C8ChangeUntold: "C8: slow members hear within seconds of what left them, but not of what is new or has changed there",
    C8ToldOnDemand: "C8: slow members hear of what left them only when somebody needs a slot",
    C8FlushedLate: "C8: slow members hear of flushed data that live on them no sooner than of what left them",
    C8ToldInPauses: "C8: slow members hear of what left them in pauses only, and so never of it beside a load without any",
    C8LostByTier: "C8: with a member missing, what is on the others of its tier counts as lost",
    C8LostIsHole: "C8.1: what is lost or perhaps lost is a hole in the extents",
    C8StaleCalledWhole: "C8.1: what may be stale is listed as whole",
    C8OneBelieved: "C8: of several slow members alone one is believed, and what is on the others is lost",
    C8UnclaimedServed: "C8: of several slow members alone one is believed what it says of the slots of others",
    C8PageLent: "C8: a slow member alone takes a page that is rotten on it from another, which has it as it was before that",
    C8PreparedIsNewer: "C8: of several slow members alone one that was to get a chunk counts as if it had",
    C9WriteKeepsCopy: "C9.1: a write to a promoted chunk does not end its kept copy",
    C9CopiesSurviveCrash: "C9.1: after a crash kept copies count as before",
    C9MirrorsFromNotRaised: "C9.1: an unclean start forgets kept copies, but the labels do not say so",
    C9ForgottenMustExist: "C9.1: a kept copy that does not count must still be on a member that exists",
    C9DroppedAtOnce: "C9.1: the slot of a dropped copy is free before the record that drops it is durable",
    C9LetGoAtOnce: "C9.1: the fast slot of a chunk that is let go is free before the record of its new home is durable",
    C9DownToLeaver: "C9: chunks go down to kept copies on a member that is leaving",
    C9ServedAlone: "C9.2: a slow member alone serves kept copies although it was not stopped in order",
    C11NoLatch: "I7: a failed sync is reported once and forgotten",
    C11MaskOnError: "C11.2: a failed write sets its mask bits",
    C11LateMask: "C11.2: a write on its way when a sync fails sets its mask bits when it completes",
    C11SuspectServed: "C11.1: after a failed sync, chunks with uncommitted changes are read as if nothing had happened",
    C11ReadLatches: "I7: a read of data that failed is no error of its request alone: the group latches",
    C11ReadUnnoticed: "C11.1: a read on its way when a sync fails is answered with what it found",
    FlushSkipsOldHome: "PITFALLS 1: a flush does not cover the member that a moved chunk left",
    SourceFreedEarly: "PITFALLS 2: the source of a move is freed before the copy is durable",
    TrimKeepsMask: "PITFALLS 3: TRIM of a mapped chunk frees the slot but keeps the mask in the journal",
    ChunkBorder: "PITFALLS 4: a request across a chunk border loses its second part",
    MoverSpinsWhenFull: "PITFALLS 5: with no slot for a demotion the mover gives up for good",
    PreparedIsHome: "PITFALLS 6: recovery takes a prepared move for a finished one",
    JournalSyncSkipped: "the journal write of a commit is not synced",
    MaskBitLost: "the last mask bit of a write over several blocks is not recorded",
    ReplaySkipsLast: "recovery leaves out the last journal block, and the next commit overwrites it",
    StaleReadAfterTrim: "a read after TRIM of part of a chunk returns the old data",
    ZeroesKeepEdges: "WRITE_ZEROES leaves the edges that are no whole block",
    MoverStuck: "the mover stops for ever after its first cancelled move",
    BudgetNeverRefills: "promotions stop for ever when the endurance budget is used up",
    FuaAsksAll: "FUA of what is committed already waits for a commit of all that others have written",
    FuaNotCommitted: "a FUA write of new blocks is acknowledged before its commit",
    RmwWithoutClaim: "two writes inside one block do not exclude each other",
    NeighbourBehindMap: "the policy asks for the chunk behind the last one of the map",
    ReadOfFreedSlot: "an unmapped chunk is read from the slot it had before",
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    const WORDS: usize = Mutant::ALL.len().div_ceil(64);

    thread_local! {
        static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) };
        /// A bit for each fault whose place the thread has come to.
        static MET: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
    }

    /// Switches one fault on for this thread, or all off.
    pub fn set(m: Option<Mutant>) {
        CURRENT.with(|c| c.set(m));
    }

    /// Whether `m` is on.
    pub fn on(m: Mutant) -> bool {
        MET.with(|met| {
            let word = &met[m as usize / 64];
            word.set(word.get() | 1 << (m as usize % 64));
        });
        CURRENT.with(|c| c.get() == Some(m))
    }

    /// The faults whose places this thread has come to since it asked last, whether they were on or not.
    pub fn take_met() -> Vec<Mutant> {
        let words = MET.with(|met| met.each_ref().map(Cell::take));
        Mutant::ALL.iter().copied().filter(|&m| words[m as usize / 64] >> (m as usize % 64) & 1 == 1).collect()
    }

    /// Whether any fault is on: checks that would stop a faulty engine before it does harm stand back.
    pub fn any() -> bool {
        CURRENT.with(|c| c.get().is_some())
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    /// Whether `m` is on: never, in this build.
    #[inline(always)]
    pub fn on(_: Mutant) -> bool {
        false
    }

    /// Whether any fault is on: never, in this build.
    #[inline(always)]
    pub fn any() -> bool {
        false
    }
}

pub use switch::*;
