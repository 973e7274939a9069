//! History of one sector: every value that it may still have, each tied to the request that wrote it.

use smallvec::{smallvec, SmallVec};

use super::value::Value;

/// When a request took effect, in sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// It was issued.
    pub(super) issued: u64,
    /// It was answered, or failed; `u64::MAX` before.
    pub(super) answered: u64,
    /// Durable by itself: FUA, or read back after a power cut.
    pub(super) durable: bool,
    /// The death of the daemon does not undo it.
    pub(super) outlives: bool,
    /// It failed, and may still take effect (rule 7).
    pub(super) open: bool,
    /// Since when such a one cannot any more; 0 for others.
    pub(super) closed: u64,
    /// It did not fail. What failed may have happened, but replaces nothing for sure.
    pub(super) sure: bool,
}

impl Span {
    /// A request that does not fail, as far as is known.
    pub(super) fn new(issued: u64, answered: u64, durable: bool, outlives: bool) -> Span {
        Span { issued, answered, durable, outlives, open: false, closed: 0, sure: true }
    }
}

/// Number of a request in the table of spans.
pub(super) type SpanId = u32;

/// A value that the sector may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The request that wrote it.
    pub(super) span: SpanId,
    /// The value.
    pub(super) value: Value,
}

/// What is known when entries are judged.
pub(super) struct Knowledge<'a> {
    /// All requests.
    pub(super) spans: &'a [Span],
    /// Requests answered before this are durable: the issue of the last flush that was answered.
    pub(super) flushed: u64,
    /// Only the daemon dies: what outlives it counts as durable.
    pub(super) daemon: bool,
}

impl Knowledge<'_> {
    fn span(&self, e: &Entry) -> &Span {
        &self.spans[e.span as usize]
    }

    pub(super) fn durable(&self, e: &Entry) -> bool {
        let s = self.span(e);
        s.sure && s.answered != u64::MAX && (s.durable || s.answered < self.flushed || self.daemon && s.outlives)
    }

    /// Whether `new` was issued after `old` was over.
    fn follows(&self, new: &Entry, old: &Entry) -> bool {
        self.span(old).answered < self.span(new).issued
    }
}

/// Values of a sector, oldest request first.
#[derive(Clone, Debug, Default)]
pub(super) struct History(SmallVec<[Entry; 2]>);

impl History {
    /// A sector that has had this value since `span`.
    pub(super) fn new(span: SpanId, value: Value) -> History {
        History(smallvec![Entry { span, value }])
    }

    /// All entries.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Whether a crash may leave `e` (rule 4), as far as answers before `horizon` tell.
    pub(super) fn survives(&self, e: &Entry, k: &Knowledge<'_>, horizon: u64) -> bool {
        let replaced = |new: &Entry| k.durable(new) && k.follows(new, e) && k.span(new).answered < horizon;
        !self.0.iter().any(replaced)
    }

    /// Forgets what neither a crash nor a read issued at `horizon` or later can bring back.
    pub(super) fn prune(&mut self, k: &Knowledge<'_>, horizon: u64) {
        if self.0.len() > 1 {
            let all = self.clone();
            self.0.retain(|e| all.survives(e, k, horizon));
        }
    }

    /// A request writes one of `values`.
    pub(super) fn push(&mut self, span: SpanId, values: impl IntoIterator<Item = Value>) {
        for value in values {
            if !self.0.iter().any(|e| e.span == span && e.value == value) {
                self.0.push(Entry { span, value });
            }
        }
    }

    /// Whether `e` may be read by a read issued at `issued` while no crash happens (rule 2).
    pub(super) fn live(&self, e: &Entry, issued: u64, k: &Knowledge<'_>) -> bool {
        let replaced = |new: &Entry| k.span(new).sure && k.span(new).answered < issued && k.follows(new, e);
        !self.0.iter().any(replaced)
    }

    /// Whether all requests are over.
    pub(super) fn quiet(&self, k: &Knowledge<'_>) -> bool {
        self.0.iter().all(|e| k.span(e).answered != u64::MAX && !k.span(e).open)
    }

    /// Since when no request can take effect any more.
    pub(super) fn last_answer(&self, k: &Knowledge<'_>) -> u64 {
        self.0.iter().map(|e| k.span(e).answered.max(k.span(e).closed)).max().unwrap_or(0)
    }

    /// Values that the death of the daemon alone leaves, each once.
    pub(super) fn left_by_daemon(&self, k: &Knowledge<'_>) -> SmallVec<[Value; 2]> {
        let mut left: SmallVec<[Value; 2]> =
            self.0.iter().filter(|e| self.survives(e, k, u64::MAX)).map(|e| e.value).collect();
        left.sort_unstable();
        left.dedup();
        left
    }

    /// A crash: whatever is left is one state that nobody knows yet (rule 5).
    pub(super) fn crash(&mut self, span: SpanId) {
        if self.0.len() > 1 {
            for e in &mut self.0 {
                e.span = span;
            }
            self.0.sort_unstable_by_key(|e| e.value);
            self.0.dedup_by_key(|e| e.value);
        }
    }

    /// One of `found` is the value (rules 5 and 6). If all is durable the others are gone; else `span`, which begins
    /// after all others have ended, takes over what was found. Returns whether it did.
    pub(super) fn settle(&mut self, found: &[Entry], span: SpanId, k: &Knowledge<'_>) -> bool {
        if self.0.iter().all(|e| k.durable(e)) {
            self.0 = found.iter().copied().collect();
            return false;
        }
        self.push(span, found.iter().map(|e| e.value));
        true
    }
}
