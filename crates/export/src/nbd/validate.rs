//! Every request is checked here, once, before anything else sees it.

use bimetal_nbd::consts::{cmd, cmd_flag, errno, MAX_PAYLOAD};
use bimetal_nbd::request::{HeaderStyle, Request};
use bimetal_volume::backend::WriteFlags;
use bimetal_volume::units::BLOCK;

use crate::stats::Kind;

use super::contexts::Context;

/// Most extents asked of the backend for one BLOCK_STATUS. A client asks again for what is left.
pub(super) const MAX_STATUS_EXTENTS: usize = 8192;
/// Bytes of the answer per extent, told in all contexts with 64-bit lengths.
const STATUS_BYTES: u64 = 16 * Context::ALL.len() as u64;
const MAX_STATUS_BYTES: u64 = STATUS_BYTES * MAX_STATUS_EXTENTS as u64;

/// What was agreed on with the client.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) size: u64,
    pub(super) read_only: bool,
    pub(super) style: HeaderStyle,
    pub(super) contexts: Vec<Context>,
}

/// A request that may be executed. Ranges lie inside the export and lengths are not zero, except that of `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A request of no bytes, which succeeds.
    Nothing,
    Read {
        offset: u64,
        len: u64,
        one_chunk: bool,
    },
    Write {
        offset: u64,
        len: u64,
        flags: WriteFlags,
    },
    Flush,
    Trim {
        offset: u64,
        len: u64,
        flags: WriteFlags,
    },
    WriteZeroes {
        offset: u64,
        len: u64,
        flags: WriteFlags,
    },
    Cache {
        offset: u64,
        len: u64,
    },
    /// With a filter the length is in the payload, and is checked when that has come.
    BlockStatus {
        offset: u64,
        len: u64,
        one_extent: bool,
        filtered: bool,
    },
}

/// Why a request is refused: an errno of the protocol, and words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) errno: u32,
    pub(super) why: &'static str,
}

pub(super) fn refuse<T>(errno: u32, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

impl Op {
    /// Its kind in the statistics.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Op::Nothing => None,
            Op::Read { .. } => Some(Kind::Read),
            Op::Write { .. } => Some(Kind::Write),
            Op::Flush => Some(Kind::Flush),
            Op::Trim { .. } => Some(Kind::Trim),
            Op::WriteZeroes { .. } => Some(Kind::WriteZeroes),
            Op::Cache { .. } => Some(Kind::Cache),
            Op::BlockStatus { .. } => Some(Kind::BlockStatus),
        }
    }

    /// Bytes of memory that its payload or its answer may take. A zeroing has none: the zeros of all are the engine's (I10).
    pub(super) fn memory(&self) -> u64 {
        match *self {
            Op::Read { len, .. } | Op::Write { len, .. } => len,
            Op::BlockStatus { one_extent: true, .. } => 0,
            Op::BlockStatus { filtered: true, .. } => MAX_STATUS_BYTES,
            Op::BlockStatus { len, .. } => (len / BLOCK + 2).saturating_mul(STATUS_BYTES).min(MAX_STATUS_BYTES),
            _ => 0,
        }
    }

    /// Bytes of its range.
    pub(super) fn range_len(&self) -> u64 {
        match *self {
            Op::Nothing | Op::Flush => 0,
            Op::Read { len, .. }
            | Op::Write { len, .. }
            | Op::Trim { len, .. }
            | Op::WriteZeroes { len, .. }
            | Op::Cache { len, .. }
            | Op::BlockStatus { len, .. } => len,
        }
    }
}

/// Checks a request against the protocol and what was agreed on. FUA is allowed everywhere, as the protocol wants it.
pub(super) fn validate(request: &Request, terms: &Terms) -> Result<Op, Refusal> {
    let Request { offset, len, command, .. } = *request;
    check_flags(request, terms)?;
    let fua = request.flags & cmd_flag::FUA != 0;
    let no_hole = request.flags & cmd_flag::NO_HOLE != 0;
    let flags = WriteFlags { fua, no_hole, outlives: false };
    match command {
        cmd::READ => {
            check_range(request, terms, errno::EINVAL)?;
            let one_chunk = request.flags & cmd_flag::DF != 0;
            if len > MAX_PAYLOAD.into() {
                let errno = if one_chunk { errno::EOVERFLOW } else { errno::EINVAL };
                return refuse(errno, "a read of more than 32 MiB");
            }
            Ok(unless_empty(len, Op::Read { offset, len, one_chunk }))
        }
        cmd::WRITE => {
            check_writable(terms)?;
            check_range(request, terms, errno::ENOSPC)?;
            Ok(unless_empty(len, Op::Write { offset, len, flags }))
        }
        cmd::FLUSH if offset != 0 || len != 0 => refuse(errno::EINVAL, "a flush takes no range"),
        cmd::FLUSH => Ok(Op::Flush),
        cmd::TRIM => {
            check_writable(terms)?;
            check_range(request, terms, errno::EINVAL)?;
            Ok(unless_empty(len, Op::Trim { offset, len, flags }))
        }
        cmd::WRITE_ZEROES => {
            check_writable(terms)?;
            check_range(request, terms, errno::ENOSPC)?;
            if no_hole && request.flags & cmd_flag::FAST_ZERO != 0 {
                return refuse(errno::ENOTSUP, "zeroing without making a hole is not faster than writing");
            }
            Ok(unless_empty(len, Op::WriteZeroes { offset, len, flags }))
        }
        cmd::CACHE => {
            check_range(request, terms, errno::EINVAL)?;
            Ok(unless_empty(len, Op::Cache { offset, len }))
        }
        cmd::BLOCK_STATUS => block_status(request, terms),
        _ => refuse(errno::EINVAL, "an unknown request"),
    }
}

fn block_status(request: &Request, terms: &Terms) -> Result<Op, Refusal> {
    if terms.contexts.is_empty() {
        return refuse(errno::EINVAL, "no metadata context was negotiated");
    }
    let Request { offset, len, .. } = *request;
    let one_extent = request.flags & cmd_flag::REQ_ONE != 0;
    if request.flags & cmd_flag::PAYLOAD_LEN != 0 {
        return Ok(Op::BlockStatus { offset, len: 0, one_extent, filtered: true });
    }
    if len == 0 {
        return refuse(errno::EINVAL, "the status of no bytes");
    }
    check_range(request, terms, errno::EINVAL)?;
    Ok(Op::BlockStatus { offset, len, one_extent, filtered: false })
}

fn unless_empty(len: u64, op: Op) -> Op {
    if len == 0 {
        Op::Nothing
    } else {
        op
    }
}

fn check_flags(request: &Request, terms: &Terms) -> Result<(), Refusal> {
    let extended = terms.style == HeaderStyle::Extended;
    let own = match request.command {
        cmd::READ if terms.style >= HeaderStyle::Structured => cmd_flag::DF,
        cmd::WRITE if extended => cmd_flag::PAYLOAD_LEN,
        cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
        cmd::BLOCK_STATUS if extended => cmd_flag::REQ_ONE | cmd_flag::PAYLOAD_LEN,
        cmd::BLOCK_STATUS => cmd_flag::REQ_ONE,
        _ => 0,
    };
    if request.flags & !(own | cmd_flag::FUA) != 0 {
        return refuse(errno::EINVAL, "a flag that is not known, or not allowed with this request");
    }
    if extended && request.command == cmd::WRITE && request.flags & cmd_flag::PAYLOAD_LEN == 0 {
        return refuse(errno::EINVAL, "with extended headers a write must announce its payload");
    }
    Ok(())
}

fn check_writable(terms: &Terms) -> Result<(), Refusal> {
    if terms.read_only {
        return refuse(errno::EPERM, "the export is read-only");
    }
    Ok(())
}

fn check_range(request: &Request, terms: &Terms, errno: u32) -> Result<(), Refusal> {
    match request.offset.checked_add(request.len) {
        Some(end) if end <= terms.size => Ok(()),
        _ => refuse(errno, "the range is beyond the end of the export"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn terms(style: HeaderStyle) -> Terms {
        Terms { size: SIZE, read_only: false, style, contexts: vec![Context::Allocation] }
    }

    fn request(command: u16, flags: u16, offset: u64, len: u64) -> Request {
        Request { flags, command, cookie: 1, offset, len }
    }

    fn errno_of(command: u16, flags: u16, offset: u64, len: u64, terms: &Terms) -> u32 {
        validate(&request(command, flags, offset, len), terms).err().map_or(0, |r| r.errno)
    }

    #[test]
    fn ranges_end_with_the_export() {
        let t = terms(HeaderStyle::Structured);
        for (command, errno) in [
            (cmd::READ, errno::EINVAL),
            (cmd::WRITE, errno::ENOSPC),
            (cmd::TRIM, errno::EINVAL),
            (cmd::WRITE_ZEROES, errno::ENOSPC),
            (cmd::CACHE, errno::EINVAL),
            (cmd::BLOCK_STATUS, errno::EINVAL),
        ] {
            assert_eq!(errno_of(command, 0, SIZE - 512, 512, &t), 0, "command {command}");
            assert_eq!(errno_of(command, 0, SIZE - 512, 513, &t), errno, "command {command}");
            assert_eq!(errno_of(command, 0, u64::MAX, 1, &t), errno, "command {command}");
        }
    }

    #[test]
    fn a_read_only_export_refuses_changes_alone() {
        let t = Terms { read_only: true, ..terms(HeaderStyle::Structured) };
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(errno_of(command, 0, 0, 512, &t), errno::EPERM);
        }
        for command in [cmd::READ, cmd::CACHE, cmd::BLOCK_STATUS] {
            assert_eq!(errno_of(command, 0, 0, 512, &t), 0);
        }
        assert_eq!(errno_of(cmd::FLUSH, 0, 0, 0, &t), 0);
    }

    #[test]
    fn flags_belong_to_their_requests() {
        let (simple, structured) = (terms(HeaderStyle::Simple), terms(HeaderStyle::Structured));
        let extended = terms(HeaderStyle::Extended);
        assert_eq!(errno_of(cmd::READ, cmd_flag::DF, 0, 1, &simple), errno::EINVAL);
        assert_eq!(errno_of(cmd::READ, cmd_flag::DF, 0, 1, &structured), 0);
        assert_eq!(errno_of(cmd::WRITE, cmd_flag::PAYLOAD_LEN, 0, 1, &structured), errno::EINVAL);
        assert_eq!(errno_of(cmd::WRITE, cmd_flag::PAYLOAD_LEN, 0, 1, &extended), 0);
        assert_eq!(errno_of(cmd::WRITE, 0, 0, 1, &extended), errno::EINVAL);
        assert_eq!(errno_of(cmd::TRIM, cmd_flag::PAYLOAD_LEN, 0, 1, &extended), errno::EINVAL);
        assert_eq!(errno_of(cmd::TRIM, cmd_flag::NO_HOLE, 0, 1, &structured), errno::EINVAL);
        assert_eq!(errno_of(cmd::WRITE, cmd_flag::REQ_ONE, 0, 1, &structured), errno::EINVAL);
        for command in [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES, cmd::CACHE, cmd::BLOCK_STATUS] {
            assert_eq!(errno_of(command, cmd_flag::FUA, 0, 1, &structured), 0, "FUA with command {command}");
            assert_eq!(errno_of(command, 1 << 9, 0, 1, &structured), errno::EINVAL);
        }
    }

    #[test]
    fn zeroing_fast_without_a_hole_is_not_supported() {
        let t = terms(HeaderStyle::Simple);
        assert_eq!(errno_of(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 0, 4096, &t), 0);
        let both = cmd_flag::FAST_ZERO | cmd_flag::NO_HOLE;
        assert_eq!(errno_of(cmd::WRITE_ZEROES, both, 0, 4096, &t), errno::ENOTSUP);
    }

    #[test]
    fn answers_count_as_memory_with_a_bound() {
        let t = terms(HeaderStyle::Structured);
        let memory = |command, flags, len| {
            let op = validate(&request(command, flags, 0, len), &t).expect("valid");
            op.memory()
        };
        assert_eq!(memory(cmd::READ, 0, 4096), 4096);
        assert_eq!(memory(cmd::TRIM, 0, SIZE), 0);
        assert_eq!(memory(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, SIZE), 0);
        assert_eq!(memory(cmd::BLOCK_STATUS, 0, 4096), 3 * 48);
        assert_eq!(memory(cmd::BLOCK_STATUS, 0, SIZE), 8192 * 48);
    }

    #[test]
    fn the_rest() {
        let t = terms(HeaderStyle::Structured);
        assert_eq!(errno_of(cmd::FLUSH, 0, 0, 1, &t), errno::EINVAL);
        assert_eq!(errno_of(99, 0, 0, 1, &t), errno::EINVAL);
        assert_eq!(errno_of(cmd::READ, cmd_flag::DF, 0, (32 << 20) + 1, &t), errno::EOVERFLOW);
        assert_eq!(errno_of(cmd::READ, 0, 0, (32 << 20) + 1, &t), errno::EINVAL);
        assert_eq!(errno_of(cmd::BLOCK_STATUS, 0, 0, 0, &t), errno::EINVAL);
        assert_eq!(validate(&request(cmd::WRITE, 0, SIZE, 0), &t), Ok(Op::Nothing));
        let none = Terms { contexts: Vec::new(), ..t };
        assert_eq!(errno_of(cmd::BLOCK_STATUS, 0, 0, 1, &none), errno::EINVAL);
    }
}
