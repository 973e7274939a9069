//! What the control API does for families: keys and headers come in here, and go on to the group's thread.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bimetal_volume::options::Uuid;

use super::{failure, parse, Peer};
use crate::api::FamilyChange;
use crate::daemon::{FamilyTable, FamilyWork, Shared};
use crate::uuid::uuid_bytes;
use crate::{handover, hex};

/// Largest body of a change: two headers that fill all room for them, as digits.
pub(super) const BODY_MAX: usize = 4 << 20;

/// `POST /v1/families`.
pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    body: axum::body::Bytes,
) -> Response {
    let change: FamilyChange = match parse(&body) {
        Ok(change) => change,
        Err(refusal) => return refusal,
    };
    let work = match work(&shared.facts.group, peer, change).await {
        Ok(work) => work,
        Err(why) => return failure(StatusCode::CONFLICT, format!("{why:#}")),
    };
    match shared.change_families(work) {
        Ok(job) => Json(job.wait().await).into_response(),
        Err(why) => failure(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// `GET /v1/families/NAME/header`.
pub(super) async fn header(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    Path(family): Path<String>,
) -> Response {
    if let Err(refusal) = peer.may_name_places() {
        return refusal;
    }
    match shared.family_header(family).await {
        Ok(header) => Json(header).into_response(),
        Err(why) => failure(StatusCode::NOT_FOUND, why),
    }
}

/// Takes the key that belongs to a change.
async fn work(group: &str, peer: Peer, change: FamilyChange) -> anyhow::Result<FamilyWork> {
    let take = |name: String| async move { handover::receive(group, &name, peer.0).await };
    let change = match change {
        FamilyChange::Unlock { name, key } => return Ok(FamilyWork::Unlock { name, key: take(key).await? }),
        FamilyChange::Lock { name, uuid, force } => return Ok(FamilyWork::Lock { name, uuid: meant(uuid)?, force }),
        FamilyChange::Create { name, uuid, key, header } => {
            let uuid = parsed(&uuid)?;
            FamilyTable::Create { name, uuid, header: bytes(&header)?, key: take(key).await? }
        }
        FamilyChange::Header { name, key, before, header } => {
            let (before, header) = (before.as_deref().map(bytes).transpose()?, bytes(&header)?);
            FamilyTable::Header { name, before, header, key: take(key).await? }
        }
        FamilyChange::Rename { name, new_name } => FamilyTable::Rename { name, new_name },
        FamilyChange::Delete { name, uuid } => FamilyTable::Delete { name, uuid: meant(uuid)? },
    };
    Ok(FamilyWork::Change(change))
}

fn parsed(uuid: &str) -> anyhow::Result<Uuid> {
    uuid_bytes(uuid).ok_or_else(|| anyhow::anyhow!("{uuid:?} is no UUID"))
}

/// The family that is meant, if it is said.
fn meant(uuid: Option<String>) -> anyhow::Result<Option<Uuid>> {
    uuid.as_deref().map(parsed).transpose()
}

fn bytes(digits: &str) -> anyhow::Result<Vec<u8>> {
    hex::decode(digits).ok_or_else(|| anyhow::anyhow!("the header is not written in hexadecimal digits"))
}
