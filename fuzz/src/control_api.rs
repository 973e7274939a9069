//! The control API: bytes of a client on its socket, through HTTP, routes and JSON, to an answer.
//!
//! The daemon's own modules are compiled into this crate (the daemon is a program, not a library); only the group
//! behind them is replaced by one that always gives the same answers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crate::{api, control, daemon};

/// Longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

static SOCKET: OnceLock<PathBuf> = OnceLock::new();

/// Starts the API once per process.
fn start() -> PathBuf {
    // The folder is left to the system's cleaning: the server lives as long as the process.
    let folder = tempfile::Builder::new().prefix("bimetal-fuzz").tempdir().expect("a temporary folder").keep();
    let path = folder.join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket in the temporary folder");
    control::start(listener, daemon::Shared::of_stored_group()).expect("the API starts");
    path
}

/// Sends `data` as a client and ends the stream. The server answers with HTTP, or closes; it never hangs.
pub fn requests(data: &[u8]) {
    let mut stream = UnixStream::connect(SOCKET.get_or_init(start)).expect("the API still accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero");
    // The server may close before it has taken all.
    let _ = stream.write_all(data);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // It closed while we were still sending.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("no answer and no end: {e}"),
    }
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "an answer that is not HTTP");
}

/// Reads `data` as the JSON bodies that clients and daemon exchange.
pub fn bodies(data: &[u8]) {
    // Whatever is not understood is an error; what is understood can be written again.
    if let Ok(status) = serde_json::from_slice::<api::Status>(data) {
        let again = serde_json::to_vec(&status).expect("a status can be written");
        assert!(serde_json::from_slice::<api::Status>(&again).is_ok());
    }
    let _ = serde_json::from_slice::<api::StopRequest>(data);
    let _ = serde_json::from_slice::<api::CheckRequest>(data);
    let _ = serde_json::from_slice::<api::VolumeRequest>(data);
    let _ = serde_json::from_slice::<api::VolumeChange>(data);
    let _ = serde_json::from_slice::<api::MemberChange>(data);
    let _ = serde_json::from_slice::<api::FamilyChange>(data);
    let _ = serde_json::from_slice::<api::FamilyHeader>(data);
    let _ = serde_json::from_slice::<api::Fates>(data);
    let _ = serde_json::from_slice::<api::Job>(data);
    let _ = serde_json::from_slice::<api::Health>(data);
    let _ = serde_json::from_slice::<api::Failure>(data);
}
