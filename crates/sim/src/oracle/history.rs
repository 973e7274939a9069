//! History of one sector: every value that it may still have, each tied to the request that wrote it.

use smallvec::{smallvec, SmallVec};

use super::value::Value;

/// When a request took effect, in sequence numbers.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// It was issued.
    pub issued: u64,
    /// It was answered; `u64::MAX` while that is open, or while a failed one may still take effect.
    pub answered: u64,
    /// Durable by itself: FUA, or read back after a power cut.
    pub durable: bool,
    /// It did not fail. What failed may have happened, but replaces nothing for sure.
    pub sure: bool,
}

/// Number of a request in the table of spans.
pub type SpanId = u32;

/// A value that the sector may have.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The request that wrote it.
    pub span: SpanId,
    /// The value.
    pub value: Value,
}

/// What is known when entries are judged.
pub struct Knowledge<'a> {
    /// All requests.
    pub spans: &'a [Span],
    /// Requests answered before this are durable: the issue of the last flush that was answered.
    pub flushed: u64,
}

impl Knowledge<'_> {
    fn span(&self, e: &Entry) -> &Span {
        &self.spans[e.span as usize]
    }

    fn durable(&self, e: &Entry) -> bool {
        let s = self.span(e);
        s.sure && s.answered != u64::MAX && (s.durable || s.answered < self.flushed)
    }

    /// Whether `new` was issued after `old` was over.
    fn follows(&self, new: &Entry, old: &Entry) -> bool {
        self.span(old).answered < self.span(new).issued
    }
}

/// Values of a sector, oldest request first.
#[derive(Clone, Debug, Default)]
pub struct History(SmallVec<[Entry; 2]>);

impl History {
    /// A sector that has had this value since `span`.
    pub fn new(span: SpanId, value: Value) -> History {
        History(smallvec![Entry { span, value }])
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Forgets what a durable successor has replaced (rule 4).
    pub fn prune(&mut self, k: &Knowledge<'_>) {
        if self.0.len() > 1 {
            let all = self.0.clone();
            self.0.retain(|old| !all.iter().any(|new| k.durable(new) && k.follows(new, old)));
        }
    }

    /// A request writes one of `values`.
    pub fn push(&mut self, span: SpanId, values: impl IntoIterator<Item = Value>) {
        for value in values {
            if !self.0.iter().any(|e| e.span == span && e.value == value) {
                self.0.push(Entry { span, value });
            }
        }
    }

    /// Whether `e` may be read by a read issued at `issued` while no crash happens (rule 2).
    pub fn live(&self, e: &Entry, issued: u64, k: &Knowledge<'_>) -> bool {
        let replaced = |new: &Entry| k.span(new).sure && k.span(new).answered < issued && k.follows(new, e);
        !self.0.iter().any(replaced)
    }

    /// Whether all requests are over.
    pub fn quiet(&self, k: &Knowledge<'_>) -> bool {
        self.0.iter().all(|e| k.span(e).answered != u64::MAX)
    }

    /// End of the last request.
    pub fn last_answer(&self, k: &Knowledge<'_>) -> u64 {
        self.0.iter().map(|e| k.span(e).answered).max().unwrap_or(0)
    }

    /// A crash: whatever is left is one state that nobody knows yet (rule 5).
    pub fn crash(&mut self, span: SpanId) {
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
    pub fn settle(&mut self, found: &[Entry], span: SpanId, k: &Knowledge<'_>) -> bool {
        if self.0.iter().all(|e| k.durable(e)) {
            self.0 = found.iter().copied().collect();
            return false;
        }
        self.push(span, found.iter().map(|e| e.value));
        true
    }
}
