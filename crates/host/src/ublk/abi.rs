//! The kernel's ublk interface as bytes: `linux/ublk_cmd.h`, the part that is used here. All commands are encoded like
//! ioctls, which every kernel since 6.4 takes.

use std::mem::{offset_of, size_of};

/// Requests that the kernel may have given to a queue at a time, at most.
pub const MAX_QUEUE_DEPTH: u16 = 4096;

const IOC_WRITE: u32 = 1;
const IOC_READ: u32 = 2;

const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

const fn ctrl(direction: u32, number: u32) -> u32 {
    ioc(direction, number, size_of::<CtrlCmd>())
}

const fn io(number: u32) -> u32 {
    ioc(IOC_READ | IOC_WRITE, number, size_of::<IoCmd>())
}

pub(super) const GET_DEV_INFO: u32 = ctrl(IOC_READ, 0x02);
pub(super) const ADD_DEV: u32 = ctrl(IOC_READ | IOC_WRITE, 0x04);
pub(super) const DEL_DEV: u32 = ctrl(IOC_READ | IOC_WRITE, 0x05);
pub(super) const START_DEV: u32 = ctrl(IOC_READ | IOC_WRITE, 0x06);
pub(super) const STOP_DEV: u32 = ctrl(IOC_READ | IOC_WRITE, 0x07);
pub(super) const SET_PARAMS: u32 = ctrl(IOC_READ | IOC_WRITE, 0x08);
pub(super) const START_USER_RECOVERY: u32 = ctrl(IOC_READ | IOC_WRITE, 0x10);
pub(super) const END_USER_RECOVERY: u32 = ctrl(IOC_READ | IOC_WRITE, 0x11);
pub(super) const GET_FEATURES: u32 = ctrl(IOC_READ, 0x13);

pub(super) const DEL_DEV_ASYNC: u32 = ctrl(IOC_READ, 0x14);

pub(super) const FETCH_REQ: u32 = io(0x20);
pub(super) const COMMIT_AND_FETCH_REQ: u32 = io(0x21);

/// The device waits for another daemon when its own has died.
pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
/// ... which gets again what the dead one had not answered.
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;

pub(super) const S_DEV_LIVE: u16 = 1;
pub(super) const S_DEV_QUIESCED: u16 = 2;

pub(super) const PARAM_TYPE_BASIC: u32 = 1 << 0;
pub(super) const PARAM_TYPE_DISCARD: u32 = 1 << 1;
pub(super) const ATTR_READ_ONLY: u32 = 1 << 0;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const ATTR_FUA: u32 = 1 << 3;

const OP_READ: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_FLUSH: u8 = 2;
const OP_DISCARD: u8 = 3;
const OP_WRITE_ZEROES: u8 = 5;
const IO_F_FUA: u32 = 1 << 13;
const IO_F_NOUNMAP: u32 = 1 << 15;

/// `struct ublksrv_ctrl_cmd`: what a control command carries.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CtrlCmd {
    pub(super) dev_id: u32,
    pub(super) queue_id: u16,
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) dev_path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

impl CtrlCmd {
    /// The bytes of a 128-byte submission entry that hold it.
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut out = [0; 80];
        out[..4].copy_from_slice(&self.dev_id.to_ne_bytes());
        out[4..6].copy_from_slice(&self.queue_id.to_ne_bytes());
        out[6..8].copy_from_slice(&self.len.to_ne_bytes());
        out[8..16].copy_from_slice(&self.addr.to_ne_bytes());
        out[16..24].copy_from_slice(&self.data.to_ne_bytes());
        out[24..26].copy_from_slice(&self.dev_path_len.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DevInfo {
    pub(super) nr_hw_queues: u16,
    pub(super) queue_depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) max_io_buf_bytes: u32,
    pub(super) dev_id: u32,
    pub(super) ublksrv_pid: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// Kept by the kernel for us.
    pub(super) ublksrv_flags: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved1: u64,
    pub(super) reserved2: u64,
}

/// `struct ublk_params` up to the discard limits. The kernel takes a shorter one than its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) basic: ParamBasic,
    pub(super) discard: ParamDiscard,
    pub(super) tail: u32,
}

/// `struct ublk_param_basic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ParamBasic {
    pub(super) attrs: u32,
    pub(super) logical_bs_shift: u8,
    pub(super) physical_bs_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) chunk_sectors: u32,
    pub(super) dev_sectors: u64,
    pub(super) virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ParamDiscard {
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_write_zeroes_sectors: u32,
    pub(super) max_discard_segments: u16,
    pub(super) reserved0: u16,
}

/// `struct ublksrv_io_cmd`: what FETCH and COMMIT_AND_FETCH carry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IoCmd {
    pub(super) q_id: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) addr: u64,
}

impl IoCmd {
    pub(super) fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..2].copy_from_slice(&self.q_id.to_ne_bytes());
        out[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        out[4..8].copy_from_slice(&self.result.to_ne_bytes());
        out[8..].copy_from_slice(&self.addr.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_io_desc`: a request, as the kernel describes it in shared memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoDesc {
    /// Kind in the low byte, flags above.
    pub op_flags: u32,
    /// Length in sectors of 512 bytes.
    pub nr_sectors: u32,
    /// Start in sectors of 512 bytes.
    pub start_sector: u64,
    /// Address of the buffer, as it was handed over.
    pub addr: u64,
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write,
    /// Make durable what was answered.
    Flush,
    /// Forget the range.
    Discard,
    /// Zero the range.
    WriteZeroes,
    /// Anything else, by its number: never asked for.
    Other(u8),
}

impl IoDesc {
    /// A request as the kernel would describe it, for queues that are not the kernel's.
    pub fn new(kind: Kind, start_sector: u64, nr_sectors: u32, fua: bool, keep: bool) -> IoDesc {
        let op = match kind {
            Kind::Read => OP_READ,
            Kind::Write => OP_WRITE,
            Kind::Flush => OP_FLUSH,
            Kind::Discard => OP_DISCARD,
            Kind::WriteZeroes => OP_WRITE_ZEROES,
            Kind::Other(n) => n,
        };
        let flags = if fua { IO_F_FUA } else { 0 } | if keep { IO_F_NOUNMAP } else { 0 };
        IoDesc { op_flags: u32::from(op) | flags, nr_sectors, start_sector, addr: 0 }
    }

    /// What it wants.
    pub fn kind(&self) -> Kind {
        match self.op_flags as u8 {
            OP_READ => Kind::Read,
            OP_WRITE => Kind::Write,
            OP_FLUSH => Kind::Flush,
            OP_DISCARD => Kind::Discard,
            OP_WRITE_ZEROES => Kind::WriteZeroes,
            other => Kind::Other(other),
        }
    }

    /// Durable before the answer.
    pub fn fua(&self) -> bool {
        self.op_flags & IO_F_FUA != 0
    }

    /// Zeroed room stays allocated.
    pub fn keep(&self) -> bool {
        self.op_flags & IO_F_NOUNMAP != 0
    }
}

const _: () = {
    assert!(size_of::<CtrlCmd>() == 32 && size_of::<DevInfo>() == 64 && size_of::<IoCmd>() == 16);
    assert!(size_of::<ParamBasic>() == 32 && size_of::<ParamDiscard>() == 20 && size_of::<IoDesc>() == 24);
    assert!(offset_of!(CtrlCmd, addr) == 8 && offset_of!(CtrlCmd, data) == 16);
    assert!(offset_of!(DevInfo, flags) == 24 && offset_of!(DevInfo, ublksrv_flags) == 32);
    assert!(offset_of!(Params, basic) == 8 && offset_of!(Params, discard) == 40);
};

/// Bytes of [`Params`] that the kernel is to read.
pub(super) const PARAMS_LEN: usize = offset_of!(Params, tail);

/// Bytes of the descriptors of a queue of `depth`, which is what may be mapped, and where those of queue 0 lie.
pub(super) fn descriptors_len(depth: u16) -> usize {
    (usize::from(depth) * size_of::<IoDesc>()).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        // From the macros of linux/ublk_cmd.h, by a C compiler.
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!((ADD_DEV, DEL_DEV), (0xc020_7504, 0xc020_7505));
        assert_eq!((START_DEV, STOP_DEV, SET_PARAMS), (0xc020_7506, 0xc020_7507, 0xc020_7508));
        assert_eq!((START_USER_RECOVERY, END_USER_RECOVERY), (0xc020_7510, 0xc020_7511));
        assert_eq!((GET_FEATURES, DEL_DEV_ASYNC), (0x8020_7513, 0x8020_7514));
        assert_eq!((FETCH_REQ, COMMIT_AND_FETCH_REQ), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn fields_lie_where_the_kernel_reads_them() {
        assert_eq!(offset_of!(DevInfo, max_io_buf_bytes), 8);
        assert_eq!(offset_of!(DevInfo, dev_id), 12);
        assert_eq!(offset_of!(DevInfo, ublksrv_pid), 16);
        assert_eq!(offset_of!(ParamBasic, max_sectors), 8);
        assert_eq!(offset_of!(ParamBasic, dev_sectors), 16);
        assert_eq!(offset_of!(ParamDiscard, max_discard_segments), 16);
        assert_eq!(offset_of!(IoDesc, start_sector), 8);
        assert_eq!(PARAMS_LEN, 60);
    }

    #[test]
    fn command_bytes_are_the_structures() {
        let bytes = IoCmd { q_id: 1, tag: 0x203, result: -5, addr: 0x0102_0304_0506_0708 }.bytes();
        assert_eq!(bytes[..4], [1, 0, 3, 2]);
        assert_eq!(bytes[4..8], (-5i32).to_ne_bytes());
        assert_eq!(bytes[8..], 0x0102_0304_0506_0708u64.to_ne_bytes());
        let bytes = CtrlCmd { dev_id: 7, queue_id: u16::MAX, len: 64, addr: 9, data: 11, ..CtrlCmd::default() }.bytes();
        assert_eq!((bytes[0], bytes[4], bytes[5], bytes[6], bytes[8], bytes[16]), (7, 255, 255, 64, 9, 11));
        assert!(bytes[24..].iter().all(|b| *b == 0));
    }

    #[test]
    fn descriptors_are_read_by_kind_and_flags() {
        let desc = IoDesc { op_flags: 1 | 1 << 13, nr_sectors: 8, start_sector: 16, addr: 0 };
        assert_eq!((desc.kind(), desc.fua(), desc.keep()), (Kind::Write, true, false));
        assert_eq!(desc, IoDesc::new(Kind::Write, 16, 8, true, false));
        let zeroes = IoDesc { op_flags: 5 | 1 << 15 | 1 << 11, ..desc };
        assert_eq!((zeroes.kind(), zeroes.fua(), zeroes.keep()), (Kind::WriteZeroes, false, true));
        for (op, kind) in [(0, Kind::Read), (2, Kind::Flush), (3, Kind::Discard), (4, Kind::Other(4))] {
            assert_eq!(IoDesc { op_flags: op, ..desc }.kind(), kind);
        }
    }

    #[test]
    fn the_map_of_descriptors_is_whole_pages() {
        assert_eq!(descriptors_len(1), 4096);
        assert_eq!(descriptors_len(128), 4096);
        assert_eq!(descriptors_len(171), 8192);
        assert_eq!(descriptors_len(MAX_QUEUE_DEPTH), 98_304);
    }
}
