//! Requests from bytes. Each is checked here as far as its bytes alone tell; nothing that arrives can do harm.

use zerocopy::FromBytes;

use super::wire::*;

/// A request, still in the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// Its number, by which the answer is matched.
    pub(super) unique: u64,
    /// What it is about.
    pub(super) node: u64,
    pub(super) op: Op<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op<'a> {
    Init {
        major: u32,
        minor: u32,
        flags: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    Getattr,
    /// The size to be set, if it is to be; and whether mode or owner are.
    Setattr {
        size: Option<u64>,
        rights: bool,
    },
    Open {
        flags: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    /// So many bytes follow the fixed part.
    Write {
        offset: u64,
        size: u32,
        flags: u32,
    },
    Statfs,
    Fsync,
    Opendir,
    Readdir {
        offset: u64,
        size: u32,
    },
    Fallocate {
        offset: u64,
        len: u64,
        mode: u32,
    },
    Lseek {
        offset: u64,
        whence: u32,
    },
    /// What was opened with OPEN is open no more.
    Release,
    /// RELEASEDIR, DESTROY: nothing is to be done.
    Farewell,
    /// FORGET, BATCH_FORGET, INTERRUPT: nobody waits for an answer. Nodes are never forgotten, and a request runs to
    /// its end.
    Unanswered,
    /// Everything else.
    Unknown,
}

/// A request that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Whom to tell; `None` if not even that is known, or nobody waits.
    pub(super) unique: Option<u64>,
    pub(super) errno: i32,
}

/// Reads a request, which must fill `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    let Ok((head, body)) = InHeader::read_from_prefix(bytes) else {
        return Err(Malformed { unique: None, errno: errno::EIO });
    };
    let answered = !matches!(head.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT);
    let wrong = |errno| Malformed { unique: answered.then_some(head.unique), errno };
    if head.len as usize != bytes.len() {
        return Err(wrong(errno::EIO));
    }
    // Extensions follow the rest; none of them means anything here.
    let extensions = usize::from(head.total_extlen) * 8;
    let body = body.len().checked_sub(extensions).and_then(|n| body.get(..n)).ok_or(wrong(errno::EINVAL))?;
    let op = op(head.opcode, body).ok_or(wrong(errno::EINVAL))?;
    Ok(Request { unique: head.unique, node: head.nodeid, op })
}

/// The fixed part of a body.
fn part<T: FromBytes>(body: &[u8]) -> Option<T> {
    T::read_from_prefix(body).ok().map(|(part, _)| part)
}

fn op(opcode: u32, body: &[u8]) -> Option<Op<'_>> {
    Some(match opcode {
        opcode::INIT => part::<InitIn>(body).map(|i| Op::Init { major: i.major, minor: i.minor, flags: i.flags })?,
        opcode::LOOKUP => Op::Lookup { name: name(body)? },
        opcode::GETATTR => Op::Getattr,
        opcode::SETATTR => part::<SetattrIn>(body).map(|s| Op::Setattr {
            size: (s.valid & set_flag::SIZE != 0).then_some(s.size),
            rights: s.valid & (set_flag::MODE | set_flag::UID | set_flag::GID) != 0,
        })?,
        opcode::OPEN => part::<OpenIn>(body).map(|o| Op::Open { flags: o.flags })?,
        opcode::READ => part::<TransferIn>(body).map(|r| Op::Read { offset: r.offset, size: r.size })?,
        opcode::WRITE => {
            let w = part::<TransferIn>(body)?;
            if size_of::<TransferIn>() + w.size as usize != body.len() {
                return None;
            }
            Op::Write { offset: w.offset, size: w.size, flags: w.flags }
        }
        opcode::STATFS => Op::Statfs,
        opcode::FSYNC => Op::Fsync,
        opcode::OPENDIR => Op::Opendir,
        opcode::READDIR => part::<TransferIn>(body).map(|r| Op::Readdir { offset: r.offset, size: r.size })?,
        opcode::FALLOCATE => {
            part::<FallocateIn>(body).map(|f| Op::Fallocate { offset: f.offset, len: f.length, mode: f.mode })?
        }
        opcode::LSEEK => part::<LseekIn>(body).map(|l| Op::Lseek { offset: l.offset, whence: l.whence })?,
        opcode::RELEASE => Op::Release,
        opcode::RELEASEDIR | opcode::DESTROY => Op::Farewell,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Op::Unanswered,
        _ => Op::Unknown,
    })
}

/// A name with the zero that ends it.
fn name(body: &[u8]) -> Option<&[u8]> {
    let end = body.iter().position(|b| *b == 0)?;
    Some(&body[..end])
}
