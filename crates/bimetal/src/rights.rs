//! Who may ask the control API for what.

use std::time::Instant;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::Extension;
use tower::ServiceExt;

use crate::control::{routes, Peer};
use crate::daemon::{Facts, Shared};

/// What a user is answered by a daemon whose group's thread is not there.
async fn answer(uid: u32, method: &str, path: &str, body: &str) -> StatusCode {
    let (group, since, places) = ("tank".into(), Instant::now(), Default::default());
    let (shared, questions) =
        Shared::new(Facts { group, since, places, files: Default::default(), sector_bytes: 4096 });
    drop(questions);
    let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).expect("a request");
    let router = routes(shared).layer(Extension(Peer(uid)));
    router.oneshot(request).await.expect("an answer").status()
}

#[tokio::test]
async fn what_names_places_and_headers_are_for_root_and_the_own_user_alone() {
    let own = rustix::process::geteuid().as_raw();
    let other = [1001, 65534].into_iter().find(|uid| *uid != own).expect("two");
    let member = r#"{"change":"remove","member":1}"#;
    let copy = r#"{"volume":"main","onto":"/etc/shadow"}"#;
    let asked =
        [("POST", "/v1/members", member), ("POST", "/v1/dissolve", copy), ("GET", "/v1/families/private/header", "")];
    for (method, path, body) in asked {
        assert_eq!(answer(other, method, path, body).await, StatusCode::FORBIDDEN, "{path}");
        for uid in [0, own] {
            // The group's thread is asked, which is not there.
            let status = answer(uid, method, path, body).await;
            assert!(![StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST].contains(&status), "{path}: {status}");
        }
    }
    // What members of the group may do.
    let change = r#"{"change":"delete","name":"main"}"#;
    assert_ne!(answer(other, "POST", "/v1/volumes", change).await, StatusCode::FORBIDDEN);
}
