//! A volume that is copied onto a plain device: in what order that gets it.

use std::cell::RefCell;
use std::rc::Rc;

use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::dissolve::{Dissolve, PIECE};
use bimetal_volume::env::{Device, DeviceError, DeviceTraits};

use crate::image::{create_sized, open, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A plain device that remembers of which pieces writes began; `None` is a sync.
#[derive(Clone)]
struct Plain {
    inner: MemoryDevice,
    done: Rc<RefCell<Vec<Option<u64>>>>,
}

impl Device for Plain {
    fn size(&self) -> u64 {
        self.inner.size
    }

    fn traits(&self) -> DeviceTraits {
        self.inner.traits()
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        let there = self.inner.peek(offset, buf.len());
        buf.copy_from_slice(&there);
        (buf, Ok(()))
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        self.done.borrow_mut().push(Some(offset / PIECE));
        self.inner.poke(offset, &buf);
        Ok(())
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.done.borrow_mut().push(None);
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn what_a_copy_is_recognised_by_is_written_when_all_else_is_durable() {
    let env = MemoryEnv::new();
    let members = create_sized(&env, "tank", &[8], &[24], Some(8 * MIB));
    let g = open(&env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (0..8).for_each(|n| write(&env, &v, n * MIB, &vec![1 + n as u8; MIB as usize]).expect("write"));
    let onto = Plain { inner: MemoryDevice::new(16 * MIB), done: Rc::default() };
    let run = Dissolve::begin(v, onto.clone(), PIECE).expect("begun");
    env.block_on(async move {
        run.copy().await.expect("copied");
        drop(run.finish().await.expect("finished"));
    });
    let done = onto.done.borrow();
    let head = done.iter().rposition(|piece| *piece == Some(0)).expect("it is written at last");
    let last_sync = done[..head].iter().rposition(Option::is_none).expect("there is one");
    assert!(done[last_sync..head].iter().all(Option::is_none), "not durable before the head: {done:?}");
    assert!(done[head..].iter().all(|piece| piece.is_none() || *piece == Some(0)), "after the head: {done:?}");
    assert_eq!(done.last(), Some(&None));
    assert!((0..8).all(|n| onto.inner.peek(n * MIB, MIB as usize).iter().all(|b| *b == 1 + n as u8)));
}
