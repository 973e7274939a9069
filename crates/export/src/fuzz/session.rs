//! Sessions that are valid, recorded from both ends, and then broken a little.

use bimetal_nbd::consts::{cmd, cmd_flag, opt};
use bimetal_nbd::request::HeaderStyle;

use super::{receive_max, server, SIZE};
use crate::client::{Client, ClientError, ClientOptions};
use crate::conn::Conn;
use crate::testing::{pipe, RecordingConn, TestRuntime};

/// A stream of numbers that never changes (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// One of 256 ways to use a server: all styles, options and requests come up.
pub(super) async fn run_script<C: Conn>(conn: C, script: u8) -> Result<(), ClientError> {
    let mut numbers = Numbers(u64::from(script));
    let style = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended][usize::from(script) % 3];
    if script % 7 == 0 {
        let mut client = Client::greet(conn).await?;
        client.list().await?;
        client.info(opt::INFO, "volume0").await?;
        client.simple_option(opt::STRUCTURED_REPLY).await?;
        client.meta(opt::LIST_META_CONTEXT, "volume0", &["bimetal:"]).await?;
        return client.simple_option(opt::ABORT).await;
    }
    let contexts = ["base:allocation", "bimetal:heat"].map(str::to_owned).to_vec();
    let export_name = style != HeaderStyle::Extended && script % 5 == 0;
    let options = ClientOptions { export: "volume0".into(), style, contexts, export_name };
    let mut client = Client::connect(conn, &options).await?;
    let mut cookies = Vec::new();
    for _ in 0..2 + numbers.below(6) {
        let len = 1 + numbers.below(3000) as u64;
        let offset = numbers.next() % (SIZE - len);
        let command = numbers.below(8) as u16;
        let payload = (command == cmd::WRITE)
            .then(|| bimetal_volume::buf::BufMut::copy_of(&vec![offset as u8; len as usize]).freeze());
        let (command, offset, len) = match command {
            cmd::DISC => (cmd::READ, offset, len),
            cmd::FLUSH => (command, 0, 0),
            cmd::BLOCK_STATUS if client.contexts.is_empty() => (cmd::CACHE, offset, len),
            _ => (command, offset, len),
        };
        let flags = if command == cmd::WRITE { cmd_flag::FUA } else { 0 };
        cookies.push(client.submit(command, flags, offset, len, payload).await?);
        if numbers.below(3) == 0 {
            for cookie in cookies.drain(..) {
                client.collect(cookie).await?;
            }
        }
    }
    for cookie in cookies {
        client.collect(cookie).await?;
    }
    client.disconnect().await
}

/// Runs a script against a server; what the client sent, and what it received.
pub(super) fn record(script: u8) -> Result<(Vec<u8>, Vec<u8>), String> {
    let runtime = TestRuntime::new();
    let server = server(&runtime, 1);
    let (ours, theirs) = pipe(64 << 10, receive_max(script));
    server.serve(theirs, "recorder".into());
    let conn = RecordingConn::new(ours);
    let (sent, received) = (conn.sent.clone(), conn.received.clone());
    let result = runtime.block_on(async move { run_script(conn, script).await });
    runtime.drop_tasks();
    match result {
        Some(Ok(())) => Ok((sent.take(), received.take())),
        Some(Err(e)) => Err(e.to_string()),
        None => Err("the session hangs".to_owned()),
    }
}

/// Numbers that like to sit at the edge of something.
const EDGES: [u32; 8] = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 32 << 20, (32 << 20) + 1, 4097];

fn break_a_little(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..numbers.below(5) {
        if bytes.is_empty() {
            return;
        }
        let at = numbers.below(bytes.len());
        match numbers.below(8) {
            0..=3 => bytes[at] ^= 1 << numbers.below(8),
            4 => bytes[at] = numbers.next() as u8,
            5 => {
                let edge = EDGES[numbers.below(EDGES.len())].to_be_bytes();
                for (place, value) in bytes[at..].iter_mut().zip(edge) {
                    *place = value;
                }
            }
            6 => bytes.truncate(at),
            _ => {
                let end = (at + 1 + numbers.below(100)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

fn broken(seed: u64, pick: impl FnOnce((Vec<u8>, Vec<u8>)) -> Vec<u8>) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let script = numbers.next() as u8;
    let mut bytes = pick(record(script).unwrap_or_default());
    break_a_little(&mut bytes, &mut numbers);
    bytes.insert(0, script);
    bytes
}

/// What a client sends in one of the scripts, with a few bits broken; input of
/// [`fuzz_server_bytes`](super::fuzz_server_bytes).
pub fn broken_client_stream(seed: u64) -> Vec<u8> {
    broken(seed, |(sent, _)| sent)
}

/// What a server sends in one of the scripts, with a few bits broken; input of
/// [`fuzz_client_bytes`](super::fuzz_client_bytes).
pub fn broken_server_stream(seed: u64) -> Vec<u8> {
    broken(seed, |(_, received)| received)
}
