//! What a request comes to: an answer at once, or work on a volume.

use std::rc::Rc;

use bimetal_host::fuse::{Answer, MAX_TRANSFER, WRITE_HEAD};
use bimetal_volume::backend::Backend;
use bimetal_volume::buf::{Buf, BufMut};

use crate::nbd::Export;
use crate::runtime::Runtime;

use super::execute::{Payload, Work};
use super::reply::{self, put};
use super::request::{decode, Op, Request};
use super::tree::Node;
use super::wire::*;
use super::{Channel, Shared};

/// A payload up to this size is copied out of the area it came in, which is then used again at once. It is cheaper to
/// copy than to have many areas under way; beyond it is not.
const COPIED: usize = 16 << 10;

/// What is to be done about a request.
enum Next {
    /// Nothing: nobody waits.
    Nothing,
    /// The answer is there.
    Answered,
    /// A volume is asked.
    Work(Work),
}

impl<R: Runtime, B: Backend, C: Channel> Shared<R, B, C> {
    /// Sees to the request of `len` bytes in `area`.
    pub(super) fn accept(self: &Rc<Self>, area: BufMut, len: usize) {
        let request = match decode(&area[..len]) {
            Ok(request) => request,
            Err(malformed) => {
                self.refused.set(self.refused.get() + 1);
                self.keep_area(area);
                if let Some(unique) = malformed.unique {
                    let mut answer = self.answer_to(unique);
                    reply::fail(&mut answer, malformed.errno);
                    self.send_later(answer);
                }
                return;
            }
        };
        let mut answer = self.answer_to(request.unique);
        match self.next(&request, &mut answer) {
            Ok(Next::Work(mut work)) => {
                match &mut work {
                    Work::Write { offset, len, payload, .. } => *payload = self.payload(area, *offset, *len as usize),
                    _ => self.keep_area(area),
                }
                self.admit(answer, work);
            }
            Ok(Next::Answered) => {
                self.keep_area(area);
                self.send_later(answer);
            }
            Ok(Next::Nothing) => {
                self.keep_area(area);
                self.answers.borrow_mut().push(answer);
            }
            Err(errno) => {
                self.refused.set(self.refused.get() + 1);
                self.keep_area(area);
                reply::fail(&mut answer, errno);
                self.send_later(answer);
            }
        }
    }

    pub(super) fn send_later(self: &Rc<Self>, answer: Box<Answer>) {
        self.count_in();
        let shared = self.clone();
        self.runtime.spawn(async move {
            shared.send(answer).await;
            shared.count_out();
        });
    }

    /// The payload of a WRITE, laid out for the volume: whole blocks begin on pages.
    fn payload(&self, area: BufMut, offset: u64, len: usize) -> Payload {
        let in_place = offset % bimetal_volume::buf::PAGE as u64 == 0;
        if len <= COPIED || !in_place {
            let mut data = BufMut::with_phase(len, offset);
            data.copy_from_slice(&area[WRITE_HEAD..WRITE_HEAD + len]);
            self.keep_area(area);
            return Payload { data: data.freeze(), area: None };
        }
        let area = area.freeze();
        Payload { data: area.slice(WRITE_HEAD, len), area: Some(area) }
    }

    /// Takes back the area of a payload that nobody uses any more.
    pub(super) fn reclaim(&self, area: Option<Buf>) {
        if let Some(Ok(area)) = area.map(Buf::try_unfreeze) {
            self.keep_area(area);
        }
    }

    fn next(&self, request: &Request<'_>, answer: &mut Answer) -> Result<Next, i32> {
        match request.op {
            Op::Unanswered => return Ok(Next::Nothing),
            Op::Init { major, minor, flags } => return self.init(major, minor, flags, answer).map(|()| Next::Answered),
            _ if !self.agreed.get() => return Err(errno::EIO),
            Op::Release => {
                self.release(request);
                return Ok(Next::Answered);
            }
            Op::Farewell => return Ok(Next::Answered),
            Op::Unknown => return Err(errno::ENOSYS),
            _ => {}
        }
        match request.op {
            Op::Lookup { name } => self.lookup(request.node, name, answer)?,
            Op::Getattr => put(answer, &reply::attributes(self.tree.attributes(self.node(request)?))),
            Op::Setattr { size, rights } => self.set_attributes(request, size, rights, answer)?,
            Op::Open { flags } => self.open(request, flags, answer)?,
            Op::Statfs => put(answer, &reply::statfs(&self.tree)),
            Op::Opendir => {
                self.directory(request)?;
                put(answer, &OpenOut { fh: 0, open_flags: 0, padding: 0 });
            }
            Op::Readdir { offset, size } => {
                self.directory(request)?;
                reply::directory(answer, &self.tree, offset, size as usize);
            }
            _ if self.stopping.get() => return Err(errno::ESHUTDOWN),
            _ => return self.work(request).map(|work| work.map_or(Next::Answered, Next::Work)),
        }
        Ok(Next::Answered)
    }

    fn init(&self, major: u32, minor: u32, flags: u32, answer: &mut Answer) -> Result<(), i32> {
        if self.agreed.get() {
            return Err(errno::EIO);
        }
        if major < MAJOR || major == MAJOR && minor < OLDEST_MINOR {
            return Err(errno::EPROTO);
        }
        // A newer kernel reads our version only, and asks again with it.
        self.agreed.set(major == MAJOR);
        put(answer, &reply::init(flags, minor, self.terms.page_size));
        Ok(())
    }

    fn node(&self, request: &Request<'_>) -> Result<Node, i32> {
        self.tree.node(request.node).ok_or(errno::ENOENT)
    }

    fn directory(&self, request: &Request<'_>) -> Result<(), i32> {
        match self.node(request)? {
            Node::Root => Ok(()),
            Node::File(_) => Err(errno::ENOTDIR),
        }
    }

    fn file(&self, request: &Request<'_>) -> Result<(usize, Rc<Export<B>>), i32> {
        match self.node(request)? {
            Node::Root => Err(errno::EISDIR),
            Node::File(index) => Ok((index, self.tree.at(index).ok_or(errno::ENOENT)?)),
        }
    }

    fn lookup(&self, parent: u64, name: &[u8], answer: &mut Answer) -> Result<(), i32> {
        match self.tree.node(parent) {
            Some(Node::Root) => {}
            Some(Node::File(_)) => return Err(errno::ENOTDIR),
            None => return Err(errno::ENOENT),
        }
        let node = self.tree.find(name).ok_or(errno::ENOENT)?;
        put(answer, &reply::entry(node, self.tree.attributes(node)));
        Ok(())
    }

    /// Times may be set, without effect, so that tools that copy them do not fail. What a volume is cannot be changed.
    fn set_attributes(
        &self,
        request: &Request<'_>,
        size: Option<u64>,
        rights: bool,
        answer: &mut Answer,
    ) -> Result<(), i32> {
        let attr = self.tree.attributes(self.node(request)?);
        if rights || size.is_some_and(|s| s != attr.size) {
            return Err(errno::EPERM);
        }
        put(answer, &reply::attributes(attr));
        Ok(())
    }

    fn open(&self, request: &Request<'_>, flags: u32, answer: &mut Answer) -> Result<(), i32> {
        let (index, file) = self.file(request)?;
        if file.read_only && flags & O_ACCMODE != 0 {
            return Err(errno::EROFS);
        }
        self.tree.open(index);
        file.backend.arrive();
        let open_flags = open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES | open_flag::NOFLUSH;
        put(answer, &OpenOut { fh: 0, open_flags, padding: 0 });
        Ok(())
    }

    /// Of a directory nothing is counted.
    fn release(&self, request: &Request<'_>) {
        if let Ok((index, file)) = self.file(request) {
            if self.tree.release(index) {
                file.backend.depart();
            }
        }
    }

    /// What a volume is asked, if there is anything to ask. The range lies inside of it then.
    fn work(&self, request: &Request<'_>) -> Result<Option<Work>, i32> {
        let (file, export) = self.file(request)?;
        let size = export.backend.size();
        let inside = |offset: u64, len: u64| len.min(size.saturating_sub(offset));
        let check_writable = || if export.read_only { Err(errno::EROFS) } else { Ok(()) };
        Ok(match request.op {
            Op::Read { size, .. } | Op::Write { size, .. } if size as usize > MAX_TRANSFER => {
                return Err(errno::EINVAL)
            }
            Op::Read { offset, size } => match inside(offset, size.into()) {
                0 => None,
                len => Some(Work::Read { file, offset, len }),
            },
            Op::Write { offset, size: wanted, flags } => {
                check_writable()?;
                match inside(offset, wanted.into()) {
                    0 if wanted > 0 => return Err(errno::ENOSPC),
                    len => {
                        Some(Work::Write { file, offset, len, durable: flags & O_DSYNC != 0, payload: Payload::none() })
                    }
                }
            }
            Op::Fsync => Some(Work::Flush { file }),
            Op::Fallocate { offset, len, mode } => {
                check_writable()?;
                self.allocation(file, offset, len, mode, size)?
            }
            Op::Lseek { offset, whence } => {
                if offset >= size {
                    return Err(errno::ENXIO);
                }
                match whence {
                    SEEK_DATA | SEEK_HOLE => Some(Work::Seek { file, offset, size, data: whence == SEEK_DATA }),
                    _ => return Err(errno::EINVAL),
                }
            }
            _ => return Err(errno::ENOSYS),
        })
    }

    /// A volume has all its space from the beginning: to allocate is nothing to do. A hole is zeros.
    fn allocation(&self, file: usize, offset: u64, len: u64, mode: u32, size: u64) -> Result<Option<Work>, i32> {
        use alloc_mode::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
        let end = offset.checked_add(len).ok_or(errno::EINVAL)?;
        if len == 0 {
            return Err(errno::EINVAL);
        }
        let grows = end > size;
        match mode {
            0 | KEEP_SIZE | ZERO_RANGE if grows => return Err(errno::ENOSPC),
            0 | KEEP_SIZE => return Ok(None),
            _ => {}
        }
        let len = len.min(size.saturating_sub(offset));
        let keep = mode & ZERO_RANGE != 0;
        match mode & !KEEP_SIZE {
            PUNCH_HOLE if mode & KEEP_SIZE == 0 => Err(errno::EOPNOTSUPP),
            PUNCH_HOLE | ZERO_RANGE if len == 0 => Ok(None),
            PUNCH_HOLE | ZERO_RANGE => Ok(Some(Work::Zero { file, offset, len, keep })),
            _ => Err(errno::EOPNOTSUPP),
        }
    }
}
