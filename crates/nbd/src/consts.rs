//! The numbers of the protocol, grouped by the field they stand in.

/// First eight bytes of a server: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server, and the head of each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second eight bytes of an oldstyle server, which is not supported.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Head of each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Head of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Head of an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Head of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Head of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Head of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Longest string of the protocol, in bytes.
pub const MAX_STRING: usize = 4096;
/// Most data an option may carry here, in bytes: enough for a name and many queries.
pub const MAX_OPTION_DATA: u32 = 64 << 10;
/// Most data the answer to an option may carry, in bytes.
pub const MAX_OPTION_REPLY: u32 = 64 << 10;
/// Most information requests or metadata queries in one option.
pub const MAX_ITEMS: usize = 256;
/// Largest payload of a request or of one reply chunk (without its fixed head), in bytes.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// Most extents in a block status chunk.
pub const MAX_EXTENTS: usize = 1 << 20;
/// TCP port of NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// Handshake flags, from the server.
pub mod server_flag {
    /// Options may fail without ending the session.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zero bytes after `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Handshake flags, from the client.
pub mod client_flag {
    /// The client knows fixed newstyle.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// Leave the 124 zero bytes out.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Options.
pub mod opt {
    /// Choose an export and begin; cannot fail but by closing.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 32-byte headers and 64-bit lengths.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of answers to an option; errors have the top bit set.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERR_FLAG: u32 = 1 << 31;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = (1 << 31) | 1;
    /// Refused by the server's settings.
    pub const ERR_POLICY: u32 = (1 << 31) | 2;
    /// The option is malformed or comes at the wrong time.
    pub const ERR_INVALID: u32 = (1 << 31) | 3;
    /// Not possible on this machine.
    pub const ERR_PLATFORM: u32 = (1 << 31) | 4;
    /// TLS first.
    pub const ERR_TLS_REQD: u32 = (1 << 31) | 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) | 6;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) | 7;
    /// The client must ask for block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = (1 << 31) | 8;
    /// The option carries too much.
    pub const ERR_TOO_BIG: u32 = (1 << 31) | 9;
    /// Extended headers first, or already in force.
    pub const ERR_EXT_HEADER_REQD: u32 = (1 << 31) | 10;
}

/// Kinds of information on an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's own name.
    pub const NAME: u16 = 1;
    /// Text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest block.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export is able to do.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// It behaves like a disk with a head.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Reserved by an extension.
    pub const SEND_RESIZE: u16 = 1 << 9;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The FAST_ZERO flag works.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS takes a list of contexts.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Requests.
pub mod cmd {
    /// Read a range.
    pub const READ: u16 = 0;
    /// Write a range.
    pub const WRITE: u16 = 1;
    /// End the session; has no answer.
    pub const DISC: u16 = 2;
    /// Make what was answered durable.
    pub const FLUSH: u16 = 3;
    /// The range is not needed any more.
    pub const TRIM: u16 = 4;
    /// The range will be used soon.
    pub const CACHE: u16 = 5;
    /// Zero a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// Describe a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod cmd_flag {
    /// Durable before the answer.
    pub const FUA: u16 = 1 << 0;
    /// Zero without freeing.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The answer must be one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent per context is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than zero slowly.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// With extended headers: the length counts bytes that follow.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags of a reply chunk.
pub mod reply_flag {
    /// The last chunk of the answer.
    pub const DONE: u16 = 1 << 0;
}

/// Types of a reply chunk; errors have the top bit set.
pub mod reply_type {
    /// Nothing but its flags.
    pub const NONE: u16 = 0;
    /// Bytes.
    pub const OFFSET_DATA: u16 = 1;
    /// So many zero bytes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in every error.
    pub const ERROR_FLAG: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = (1 << 15) | 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
}

/// Errors of a request.
pub mod errno {
    /// Not allowed.
    pub const EPERM: u32 = 1;
    /// Input/output error.
    pub const EIO: u32 = 5;
    /// Out of memory.
    pub const ENOMEM: u32 = 12;
    /// Malformed or not possible.
    pub const EINVAL: u32 = 22;
    /// Beyond the end, or no space left.
    pub const ENOSPC: u32 = 28;
    /// The answer does not fit into what was asked for.
    pub const EOVERFLOW: u32 = 75;
    /// Not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is stopping.
    pub const ESHUTDOWN: u32 = 108;
}

/// Status bits of `base:allocation`.
pub mod state {
    /// Nothing is allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}
