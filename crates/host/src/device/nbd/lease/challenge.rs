//! How a member is asked for, and how long whoever asks waits for an answer.

use std::time::Duration;

use bimetal_format::lease::Lease;
use bimetal_format::BLOCK;
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{DeviceError, Env, Instant};

use super::who::{in_use, is_gone, of_this_process};
use super::{
    block_of, label_of, place_in, read, write, Ground, Held, NotTaken, COUNTED_AFTER, LOOK_FOR_ANSWER, PATIENCE,
    PATIENCE_WITH_START, SETTLE, TERM,
};
use crate::reactor::clock::BootInstant;
use crate::reactor::HostEnv;

/// So often somebody asks who meets others that only read, each time in the very moment in which they say so.
const TRIES: usize = 5;

/// Asks again as long as somebody was met who only reads. What is asked with is another lease each time.
pub(super) async fn beside_readers<T>(ask: impl AsyncFn() -> Result<T, NotTaken>) -> Result<T, NotTaken> {
    for _ in 1..TRIES {
        match ask().await {
            Err(NotTaken::Reader) => {}
            outcome => return outcome,
        }
    }
    ask().await
}

/// Asks, from where the device is, whoever serves it by a server; see [`ask_here`](super::ask_here).
pub(in crate::device::nbd) async fn ask(env: &HostEnv, device: &impl Ground) -> Result<(), NotTaken> {
    let label = label_of(device).await.ok().flatten();
    let Some((label, place)) = label.and_then(|l| place_in(device, &l).map(|place| (l, place))) else { return Ok(()) };
    if let Ok(None) = read(device, place).await {
        return Ok(());
    }
    beside_readers(async || {
        let mine = Held::new(env, Some(&label), Some(place));
        ask_and_leave(env, device, &mine.own.get(), place, None).await
    })
    .await
}

/// Asks for a member as a challenger, and leaves this in place of a lease.
pub(super) async fn ask_and_leave(
    env: &HostEnv,
    device: &impl Ground,
    own: &Lease,
    place: u64,
    left: Option<Lease>,
) -> Result<(), NotTaken> {
    let unread = read(device, place).await.is_err();
    // Also of one who is gone: another may have come by a server since the block was read.
    let put = match challenge(env, device, own, place).await {
        Ok(taken) => put_in_time(env, device, own, place, left, taken.seen).await,
        Err(why) => Err(why),
    };
    match put {
        Err(NotTaken::Block(_)) if unread => {
            env.sleep(PATIENCE).await;
            Ok(())
        }
        put => put,
    }
}

/// Writes over the own question, which was `seen` to be there when a look began.
async fn put_in_time(
    env: &HostEnv,
    device: &impl Ground,
    own: &Lease,
    place: u64,
    left: Option<Lease>,
    mut seen: BootInstant,
) -> Result<(), NotTaken> {
    // It may have stood still since its last look, or have waited for the label, for so long that somebody has come meanwhile.
    if BootInstant::now().since(seen) >= SETTLE {
        seen = BootInstant::now();
        is_still_there(env, device, Some(own), place).await?;
    }
    let block = left.map_or_else(|| BufMut::zeroed(BLOCK), |lease| block_of(&lease));
    device.put(place, block.freeze()).await.map_err(NotTaken::Block)?;
    // Or that took so long. Whoever has come writes his own again, or has not looked for a term, and finds this before he writes.
    if BootInstant::now().since(seen) >= SETTLE {
        env.sleep(TERM + COUNTED_AFTER).await;
        is_still_there(env, device, left.as_ref(), place).await?;
    }
    Ok(())
}

async fn is_still_there(env: &HostEnv, device: &impl Ground, left: Option<&Lease>, place: u64) -> Result<(), NotTaken> {
    let now = read(device, place).await.map_err(NotTaken::Block)?;
    match now.map(|now| now.nonce) == left.map(|left| left.nonce) {
        true => Ok(()),
        false => Err(met(env, now, None)),
    }
}

/// Why whoever asks has to leave it at that, when this was found in place of his own. Nothing at all is left by somebody who has the
/// device itself.
fn met(env: &HostEnv, now: Option<Lease>, before: Option<Lease>) -> NotTaken {
    match now {
        Some(other) if other.reads() => NotTaken::Reader,
        _ => NotTaken::InUse(in_use(now.or(before).filter(|other| !other.reads()).as_ref(), &of_this_process(env))),
    }
}

/// The mark that is there once nobody asks any more.
pub(super) async fn mark_once_nobody_asks(
    env: &HostEnv,
    device: &impl Ground,
    place: u64,
) -> Result<Option<Lease>, NotTaken> {
    let (before, _) = Before::read(env, device, place).await?;
    Ok(before.lease().filter(Lease::is_mark))
}

/// Who had a member before somebody asks for it.
enum Before {
    Nobody,
    Holder(Lease),
    /// Somebody who asked, was not answered in all the time that a holder has, and took nothing.
    Asked(Lease),
    /// The block cannot be read: whoever is there writes it anew when he finds that.
    Unread,
}

impl Before {
    /// Who is there once nobody else asks, and when the look began that found him: whoever asks now finds out what the other one would,
    /// and would only be taken for him.
    async fn read(env: &HostEnv, device: &impl Ground, place: u64) -> Result<(Before, BootInstant), NotTaken> {
        let mut asks: Option<(u64, Instant)> = None;
        loop {
            let (began, now) = (BootInstant::now(), env.now());
            let other = match read(device, place).await {
                Ok(None) => return Ok((Before::Nobody, began)),
                Ok(Some(other)) if !other.asks() => return Ok((Before::Holder(other), began)),
                Ok(Some(other)) => other,
                Err(DeviceError::Disconnected) => return Err(NotTaken::Block(DeviceError::Disconnected)),
                Err(_) => return Ok((Before::Unread, began)),
            };
            let since = asks.filter(|(nonce, _)| *nonce == other.nonce).map_or(now, |(_, since)| since);
            if now.since(since) >= patience(device).await? {
                return Ok((Before::Asked(other), began));
            }
            asks = Some((other.nonce, since));
            env.sleep(LOOK_FOR_ANSWER).await;
        }
    }

    /// Whether there may be a holder who answers, seen from another one.
    fn may_be_there(&self, from: &Lease) -> bool {
        match self {
            Before::Nobody | Before::Asked(_) => false,
            Before::Holder(holder) => !is_gone(holder, from),
            Before::Unread => true,
        }
    }

    fn lease(&self) -> Option<Lease> {
        match self {
            Before::Holder(lease) | Before::Asked(lease) => Some(*lease),
            Before::Nobody | Before::Unread => None,
        }
    }
}

/// How a lease was taken.
#[derive(Debug)]
pub(in crate::device::nbd) struct Taken {
    /// When the last look began that found it.
    pub(super) seen: BootInstant,
    /// From whom without waiting for an answer, by its nonce.
    pub(super) from_gone: Option<u64>,
}

/// How long a holder may take to answer. A member that was clean a moment ago may have been started meanwhile.
async fn patience(device: &impl Ground) -> Result<Duration, NotTaken> {
    let clean = label_of(device).await.map_err(NotTaken::Label)?.is_none_or(|l| l.clean);
    Ok(if clean { PATIENCE_WITH_START } else { PATIENCE })
}

/// Writes a lease that asks, and waits whether it is answered if its holder may be there.
pub(in crate::device::nbd) async fn challenge(
    env: &HostEnv,
    device: &impl Ground,
    own: &Lease,
    place: u64,
) -> Result<Taken, NotTaken> {
    let (before, began) = Before::read(env, device, place).await?;
    // Who reads leaves another's mark alone, also one that has come this very moment.
    if own.reads() && before.lease().is_some_and(|l| l.is_mark()) {
        return Err(NotTaken::Reader);
    }
    write(device, place, &own.asking()).await.map_err(NotTaken::Block)?;
    // Whoever read that nobody is there when this one did has looked again by then, and may be a holder.
    let took_long = BootInstant::now().since(began) >= SETTLE / 2;
    let answers = before.may_be_there(own) || took_long;
    let (began, mut looked, mut seen) = (env.now(), Duration::ZERO, BootInstant::now());
    loop {
        let patience = match (answers, patience(device).await?) {
            (true, patience) => patience,
            (false, _) => SETTLE,
        };
        // However long the label takes: what counts is a look that began when nobody could have answered any more.
        if looked >= patience {
            let from_gone = before.lease().filter(|_| !answers).map(|lease| lease.nonce);
            return Ok(Taken { seen, from_gone });
        }
        env.sleep(LOOK_FOR_ANSWER.min(patience.saturating_sub(env.now().since(began)))).await;
        (looked, seen) = (env.now().since(began), BootInstant::now());
        match read(device, place).await.map_err(NotTaken::Block)? {
            Some(now) if now.nonce == own.nonce => {}
            now => return Err(met(env, now, before.lease())),
        }
    }
}
