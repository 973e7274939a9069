//! The control API: HTTP + JSON on a unix socket, on a thread of its own.
//!
//! Data and control never mix (D9): this thread asks the group's thread through a bounded queue and waits with a limit,
//! so neither a stuck client here nor a busy group there can stop the other.

mod body;
mod families;
mod metrics;
mod peer;

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{header, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{watch, Semaphore};

use crate::api::{
    AttachAnswer, Attachments, CheckRequest, DissolveRequest, Failure, FilesShown, Health, MemberChange, StopAccepted,
    StopRequest, VolumeChange, VolumeRequest, NOT_UNDERSTOOD, NO_SUCH_PATH, SCHEMA,
};
use crate::daemon::{began, is_silence, Made, Shared};

/// Connections at a time; more wait in the socket's queue.
const CONNECTIONS: usize = 32;
/// Largest request body.
const BODY_MAX: usize = 64 << 10;
/// A request whose head takes longer is dropped.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// One whose body takes longer is refused. What it wants done may take longer.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection ends after this, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// At the end, answers that have not gone out by then are given up.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The user at the other end of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) u32);

impl Peer {
    /// Whoever names a device or a file has the daemon, which may be root, write to it; and the group `bimetal` is for those who
    /// may use volumes.
    #[allow(clippy::result_large_err, reason = "a refusal is a whole response, and rare")]
    fn may_name_places(self) -> Result<(), Response> {
        if peer::is_owner(self.0) {
            return Ok(());
        }
        let who = "only root, or the user who runs the daemon, may change members, copy volumes onto devices and read headers";
        Err(failure(StatusCode::FORBIDDEN, who))
    }
}

/// The running API. Dropped instead of finished, it ends with the process and cuts off what it was saying.
pub(crate) struct Control {
    leave: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Takes no more clients, gives those that wait their answers, and returns after [`LEAVE_TIMEOUT`] at the latest.
    pub(crate) fn finish(self) {
        // Neither can fail but when the thread is gone already.
        let _ = self.leave.send(true);
        let _ = self.thread.join();
    }
}

/// Starts the API on `listener`, on a new thread.
pub(crate) fn start(listener: UnixListener, shared: Arc<Shared>) -> Result<Control> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the control thread")?;
    let (leave, leaving) = watch::channel(false);
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || runtime.block_on(serve(listener, shared, leaving)))
        .context("cannot start the control thread")?;
    Ok(Control { leave, thread })
}

pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/health", get(health))
        .route("/v1/metrics", get(metrics_text))
        .route("/v1/attachments", get(attachments))
        .route("/v1/volumes", post(change_volumes))
        .route("/v1/volumes/{volume}/fates/{from}", get(fates))
        .route("/v1/members", post(change_members))
        .route("/v1/families", post(families::change).layer(DefaultBodyLimit::max(families::BODY_MAX)))
        .route("/v1/families/{family}/header", get(families::header))
        .route("/v1/check", post(check))
        .route("/v1/jobs/{job}", get(job))
        .route("/v1/attach", post(attach))
        .route("/v1/detach", post(detach))
        .route("/v1/files", post(files))
        .route("/v1/dissolve", post(dissolve))
        .route("/v1/stop", post(stop))
        .fallback(no_such_path)
        .method_not_allowed_fallback(|| async { failure(StatusCode::METHOD_NOT_ALLOWED, "not with this method") })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::map_request(body::in_time))
        .with_state(shared)
}

async fn serve(listener: UnixListener, shared: Arc<Shared>, mut leaving: watch::Receiver<bool>) {
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(l) => l,
        Err(e) => return crate::log::warn(&format!("the control API does not work: {e}")),
    };
    let router = routes(shared);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = leaving.clone();
    tokio::select! {
        () = accept(&listener, &router, &places, &connections) => {}
        Ok(_) = leaving.wait_for(|left| *left) => {}
    }
    // All places are free when all have their answers.
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, places.acquire_many(CONNECTIONS as u32)).await;
}

async fn accept(
    listener: &tokio::net::UnixListener,
    router: &Router,
    places: &Arc<Semaphore>,
    leaving: &watch::Receiver<bool>,
) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                // Out of descriptors, most likely: trying again at once would spin.
                crate::log::warn(&format!("control API: {e}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let Ok(who) = stream.peer_cred() else { continue };
        if !peer::is_allowed(who.uid(), who.gid()) {
            continue;
        }
        let (router, leaving) = (router.clone().layer(Extension(Peer(who.uid()))), leaving.clone());
        tokio::spawn(async move {
            // How a control client ends its connection is its own affair.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, converse(stream, router, leaving)).await;
            drop(place);
        });
    }
}

/// Serves one connection to its end, or until the request under way is answered when the daemon leaves.
async fn converse(stream: tokio::net::UnixStream, router: Router, mut leaving: watch::Receiver<bool>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BODY_MAX);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    tokio::select! {
        _ = connection.as_mut() => return,
        Ok(_) = leaving.wait_for(|left| *left) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn failure(code: StatusCode, words: impl Into<String>) -> Response {
    (code, Json(Failure { schema: SCHEMA, error: words.into() })).into_response()
}

async fn no_such_path() -> Response {
    failure(StatusCode::NOT_FOUND, format!("{NO_SUCH_PATH}; see /v1/status, /v1/health, /v1/metrics"))
}

/// The group's thread did not answer in time, or never will.
fn busy(shared: &Shared) -> Response {
    let code = if shared.has_ended() { StatusCode::GONE } else { StatusCode::SERVICE_UNAVAILABLE };
    failure(code, shared.silence())
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    match shared.status().await {
        Some(s) => Json(s).into_response(),
        None => busy(&shared),
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let reasons = match shared.snapshot().await {
        Some(s) => {
            let troubles = crate::words::troubles(&s.status, &shared.facts.locators());
            shared.nameless().into_iter().chain(s.losses).chain(troubles).collect()
        }
        None => vec!["the group does not answer".to_string()],
    };
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Health { schema: SCHEMA, healthy: reasons.is_empty(), reasons })).into_response()
}

async fn metrics_text(State(shared): State<Arc<Shared>>) -> Response {
    match shared.snapshot().await {
        Some(s) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text(&s)).into_response(),
        None => busy(&shared),
    }
}

async fn attachments(State(shared): State<Arc<Shared>>) -> Response {
    match shared.all_attachments().await {
        Ok(attachments) => Json(Attachments { schema: SCHEMA, attachments }).into_response(),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    }
}

/// The body means nothing, but is taken: a client that is still sending it would not read the answer.
async fn files(State(shared): State<Arc<Shared>>, _body: axum::body::Bytes) -> Response {
    match shared.show_files().await {
        Some(Ok(folder)) => Json(FilesShown { schema: SCHEMA, folder: folder.display().to_string() }).into_response(),
        Some(Err(why)) => failure(StatusCode::INTERNAL_SERVER_ERROR, why),
        None => busy(&shared),
    }
}

/// Begins a change of the volumes; who asks learns how it ended, or that it goes on.
async fn change_volumes(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let change: VolumeChange = match parse(&body) {
        Ok(change) => change,
        Err(refusal) => return refusal,
    };
    if let Err(why) = shared.may_change(&change).await {
        return failure(StatusCode::CONFLICT, why);
    }
    match shared.change_volumes(change) {
        Ok(job) => Json(job.wait().await).into_response(),
        Err(why) => failure(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

async fn fates(State(shared): State<Arc<Shared>>, Path((volume, from)): Path<(String, u64)>) -> Response {
    match shared.fates(volume, from).await {
        Some(Some(fates)) => Json(fates).into_response(),
        Some(None) => failure(StatusCode::NOT_FOUND, "there is no such volume, or it ends before that byte"),
        None => busy(&shared),
    }
}

/// The same for the members.
async fn change_members(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    body: axum::body::Bytes,
) -> Response {
    let change: MemberChange = match parse_of_owner(peer, &body) {
        Ok(change) => change,
        Err(refusal) => return refusal,
    };
    match shared.change_members(change) {
        Ok(job) => Json(job.wait().await).into_response(),
        Err(why) => failure(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Begins to verify the group; a body is not needed.
async fn check(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let request: CheckRequest = match body.len() {
        0 => CheckRequest::default(),
        _ => match parse(&body) {
            Ok(r) => r,
            Err(refusal) => return refusal,
        },
    };
    match shared.check(request) {
        Ok(job) => Json(job.wait().await).into_response(),
        Err(why) => failure(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

async fn job(State(shared): State<Arc<Shared>>, Path(number): Path<u64>) -> Response {
    match shared.jobs.find(number) {
        Some(job) => Json(job.wait().await).into_response(),
        None => failure(StatusCode::NOT_FOUND, "there is no such job (any more)"),
    }
}

async fn stop(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let request: StopRequest = match body.len() {
        0 => StopRequest::default(),
        _ => match parse(&body) {
            Ok(r) => r,
            Err(refusal) => return refusal,
        },
    };
    let waits_for = shared.ask_to_stop(request.force).await;
    let process = std::process::id();
    Json(StopAccepted { schema: SCHEMA, process: Some(process), began: began(process), waits_for }).into_response()
}

async fn attach(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let request: VolumeRequest = match parse(&body) {
        Ok(r) => r,
        Err(refusal) => return refusal,
    };
    let answer = |device, why| Json(AttachAnswer { schema: SCHEMA, device, why }).into_response();
    match shared.attach(request).await {
        Ok(Made::Device { path, .. }) => answer(Some(path.display().to_string()), String::new()),
        Ok(Made::Impossible(why)) => answer(None, why),
        Err(why) => failure(StatusCode::CONFLICT, why),
    }
}

async fn detach(State(shared): State<Arc<Shared>>, body: axum::body::Bytes) -> Response {
    let request: VolumeRequest = match parse(&body) {
        Ok(r) => r,
        Err(refusal) => return refusal,
    };
    match shared.detach(request).await {
        Ok(()) => Json(AttachAnswer { schema: SCHEMA, device: None, why: String::new() }).into_response(),
        Err(why) => failure(StatusCode::CONFLICT, why),
    }
}

async fn dissolve(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    body: axum::body::Bytes,
) -> Response {
    let request: DissolveRequest = match parse_of_owner(peer, &body) {
        Ok(r) => r,
        Err(refusal) => return refusal,
    };
    match shared.dissolve(request).await {
        Ok(row) => Json(row).into_response(),
        // That is no refusal: it may have been begun.
        Err(why) if is_silence(&why) => failure(StatusCode::SERVICE_UNAVAILABLE, why),
        Err(why) => failure(StatusCode::CONFLICT, why),
    }
}

#[allow(clippy::result_large_err, reason = "a refusal is a whole response, and rare")]
fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Response> {
    let refused = |e| failure(StatusCode::BAD_REQUEST, format!("{NOT_UNDERSTOOD}: {e}"));
    serde_json::from_slice(body).map_err(refused)
}

/// The same of a request that names a place.
#[allow(clippy::result_large_err, reason = "a refusal is a whole response, and rare")]
fn parse_of_owner<T: serde::de::DeserializeOwned>(peer: Peer, body: &[u8]) -> Result<T, Response> {
    peer.may_name_places()?;
    parse(body)
}
