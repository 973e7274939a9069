//! A device was to become a member, and did not: it is to hold nothing of the families any more. Their headers are written
//! to it early, nobody would overwrite them there when a passphrase is taken away, and with that one they could be opened.
//!
//! It is tried for a while: the device may be the very reason. If it fails, that is said. After a crash nobody tries.

use std::time::Duration;

use super::member::LOOK;
use super::StructureError;
use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::member::Member;
use crate::probe::wipe_laid_out;
use crate::wait;

/// How long the device may take, while other changes wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same while the group stops.
const AT_STOP: Duration = Duration::from_secs(3);

/// Why a device did not become a member. (After [`StructureError::Engine`] it may be one.)
#[derive(Debug, thiserror::Error)]
#[error("{why}{}", self.words())]
pub struct NotAMember {
    /// What was in the way.
    pub why: StructureError,
    /// Headers of families may be left on it: why they could not be overwritten.
    pub not_wiped: Option<String>,
}

impl NotAMember {
    fn words(&self) -> String {
        let Some(why) = &self.not_wiped else { return String::new() };
        format!(
            ". The device could not be wiped ({why}): the passphrases that open the group's families now may open its copy of \
             their headers for ever, also when they were taken away; write zeros over it when it works again (`blkdiscard \
             --zeroout`, or dd)"
        )
    }
}

impl From<StructureError> for NotAMember {
    fn from(why: StructureError) -> NotAMember {
        NotAMember { why, not_wiped: None }
    }
}

impl From<Error> for NotAMember {
    fn from(why: Error) -> NotAMember {
        StructureError::from(why).into()
    }
}

impl<E: Env> Core<E> {
    /// Overwrites what a device that does not become a member holds of the families, and its labels.
    pub(super) async fn clear_of_families(&self, m: Member<E::Device>, why: StructureError) -> NotAMember {
        let label = m.label.borrow().clone();
        let Some(device) = m.release().filter(|_| self.families.have_been()) else { return why.into() };
        // What it was sent last may be on its way still, and must not arrive after this.
        self.env.sleep(LOOK).await;
        let wiped = async { wipe_laid_out(&*device, Some(&label)).await.map_err(|e| e.to_string()) };
        let given_up = async {
            self.given_up().await;
            Err("it does not answer".to_string())
        };
        NotAMember { why, not_wiped: wait::first(wiped, given_up).await.err() }
    }

    /// Completes when the device has had its time.
    async fn given_up(&self) {
        let mut left = PATIENCE;
        while !left.is_zero() {
            self.env.sleep(LOOK).await;
            left = left.saturating_sub(LOOK);
            if self.stopping.get() {
                left = left.min(AT_STOP);
            }
        }
    }
}
