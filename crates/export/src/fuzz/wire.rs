use std::fmt::Debug;

use bimetal_nbd::handshake::{ExportNameReply, Greeting, OptionHeader, OptionReplyHeader};
use bimetal_nbd::option::{decode_text, Info, InfoRequest, ListedExport, MetaContext, MetaRequest};
use bimetal_nbd::reply::{Chunk, Payload, ReplyHeader};
use bimetal_nbd::request::{HeaderStyle, Request, StatusFilter};

const STYLES: [HeaderStyle; 3] = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];

/// What was decoded must say the same after another round.
fn same<T: PartialEq + Debug>(value: &T, again: impl FnOnce() -> Option<T>) {
    assert_eq!(Some(value), again().as_ref(), "a round trip changes the value");
}

/// Gives `data` to every decoder; what one of them takes must survive a round trip.
pub fn fuzz_wire(data: &[u8]) {
    for start in 0..data.len().min(64) {
        heads(&data[start..]);
        options(&data[start..]);
        replies(&data[start..]);
    }
}

fn heads(data: &[u8]) {
    if let Some(Ok(g)) = data.first_chunk().map(Greeting::decode) {
        same(&g, || Greeting::decode(&g.encode()).ok());
    }
    if let Some(Ok(h)) = data.first_chunk().map(OptionHeader::decode) {
        same(&h, || OptionHeader::decode(&h.encode()).ok());
    }
    if let Some(Ok(h)) = data.first_chunk().map(OptionReplyHeader::decode) {
        same(&h, || OptionReplyHeader::decode(&h.encode()).ok());
    }
    if let Some(Ok(r)) = data.first_chunk().map(ExportNameReply::decode) {
        let mut out = Vec::new();
        r.encode(false, &mut out);
        same(&r, || out.first_chunk().and_then(|b| ExportNameReply::decode(b).ok()));
    }
    for style in STYLES {
        if let Ok(r) = Request::decode(style, data) {
            let mut out = Vec::new();
            r.encode(style, &mut out).expect("a decoded request fits its own style");
            same(&r, || Request::decode(style, &out).ok());
            assert!(r.payload_len(style) <= r.len);
        }
    }
}

fn options(data: &[u8]) {
    if let Ok(r) = InfoRequest::decode(data) {
        same(&r, || InfoRequest::decode(&r.encode()).ok().map(|a| InfoRequest { name: r.name, ..a }));
    }
    if let Ok(r) = MetaRequest::decode(data) {
        assert_eq!(r.encode(), data);
    }
    if let Ok(i) = Info::decode(data) {
        assert!(matches!(i, Info::Other(_)) || i.encode() == data);
    }
    if let Ok(c) = MetaContext::decode(data) {
        assert_eq!(c.encode(), data);
    }
    if let Ok(l) = ListedExport::decode(data) {
        assert_eq!(l.encode(), data);
    }
    if let Ok(t) = decode_text(data) {
        assert_eq!(t.as_bytes(), data);
    }
    if let Ok(f) = StatusFilter::decode(data) {
        assert_eq!(f.encode(), data);
    }
}

fn replies(data: &[u8]) {
    for style in STYLES {
        let Ok(ReplyHeader::Chunk(chunk)) = ReplyHeader::decode(style, data) else { continue };
        let mut out = Vec::new();
        chunk.encode(style == HeaderStyle::Extended, &mut out);
        same(&ReplyHeader::Chunk(chunk), || ReplyHeader::decode(style, &out).ok());
        if let Some(payload) = data.get(out.len()..).and_then(|rest| rest.get(..chunk.len as usize)) {
            // Errors are as good as values here; only a panic is not.
            let _ = Payload::decode(&chunk, payload);
        }
    }
    for kind in [0, 2, 5, 6, 1 << 15, 1 << 15 | 1, 1 << 15 | 2, 1 << 15 | 3] {
        let chunk = Chunk { flags: 1, kind, cookie: 0, offset: 0, len: data.len() as u32 };
        let _ = Payload::decode(&chunk, data);
    }
}
