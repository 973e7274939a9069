//! From the requests of a recording to accesses that can be replayed: in order of time from 0, inside the volume, each
//! with something to do. What does not fit is repaired and counted, or refused if the caller is strict.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::clock::{Asked, Clock, Settled};
use super::devices::{Names, Place};
use super::format::DETECT;
use super::input::Input;
use super::parse::{parser, Parsed, Parser, Raw};
use super::{Access, Devices, Event, Extent, Fix, Format, Op, Position, Repairs, TraceError};

/// Bytes of the largest block device that Linux has, which bounds the volume if nobody else does.
const VOLUME_MAX: u64 = i64::MAX as u64;
/// Bytes of the longest read or write; no protocol here has longer ones.
const LEN_MAX: u64 = 1 << 32;

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its format; `None` to tell from its first bytes.
    pub format: Option<Format>,
    /// Where its devices lie on the volume; `None` for one after another ([`open`]), or for an error at the second
    /// device ([`Reader::new`], which reads only once).
    pub devices: Option<Devices>,
    /// Which events of blktrace to take.
    pub event: Event,
    /// Bytes of the volume to replay on; requests beyond are dropped or shortened. `None` for no limit.
    pub volume_bytes: Option<u64>,
    /// Ends with [`TraceError::Refused`] where it would repair damage.
    pub strict: bool,
}

/// Reads a trace file. A regular file of a format that names devices is read twice, first to learn how large they are,
/// unless `options` says where they lie.
///
/// # Errors
/// The file cannot be opened or read, or nothing tells its format. What is wrong further on is an item of the reader.
pub fn open(path: &Path, options: &Options) -> Result<Reader, TraceError> {
    let (file, regular) = open_file(path)?;
    let reader = Reader::new(file, options)?;
    if !regular || options.devices.is_some() || !reader.format.has_devices() {
        return Ok(reader);
    }
    let extents = survey(path, options)?;
    let options = Options { devices: Some(Devices::Laid(extents)), ..options.clone() };
    Reader::new(open_file(path)?.0, &options)
}

/// The devices of a trace file laid one after another, each at a whole GiB, in order of their first request.
///
/// # Errors
/// Those of reading the whole trace, [`TraceError::Empty`] among them.
pub fn survey(path: &Path, options: &Options) -> Result<Vec<Extent>, TraceError> {
    let options = Options { devices: None, volume_bytes: None, strict: false, ..options.clone() };
    let mut reader = Reader::with(open_file(path)?.0, &options, Names::surveying())?;
    reader.by_ref().try_for_each(|access| access.map(drop))?;
    Ok(reader.names.extents())
}

fn open_file(path: &Path) -> Result<(File, bool), TraceError> {
    let opened = File::open(path).and_then(|file| {
        let regular = file.metadata()?.is_file();
        Ok((file, regular))
    });
    opened.map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

/// A stream of accesses. After an error it ends. A trace without a single request is an error too.
pub struct Reader {
    input: Input,
    parser: Box<dyn Parser>,
    format: Format,
    names: Names,
    volume_bytes: u64,
    strict: bool,
    repairs: Repairs,
    clock: Clock,
    /// Requests that have their times, whose repairs are not counted yet.
    settled: VecDeque<Settled>,
    /// Made of the requests read last, and not handed out yet.
    ready: VecDeque<Access>,
    /// What ended the trace, after what is ready.
    failed: Option<TraceError>,
    ended: bool,
}

/// Requests between two looks whether they are in order of time.
const JUDGE_EVERY: u64 = 1 << 16;
/// What programs of Windows write before UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

impl Reader {
    /// Reads from a stream: plain, or gzip if it begins like it.
    ///
    /// # Errors
    /// Its beginning cannot be read, is empty, or does not tell the format.
    pub fn new(source: impl Read + Send + 'static, options: &Options) -> Result<Reader, TraceError> {
        Reader::with(source, options, Names::new(options.devices.clone()))
    }

    fn with(source: impl Read + Send + 'static, options: &Options, names: Names) -> Result<Reader, TraceError> {
        let mut input = Input::new(source)?;
        let head = input.peek(DETECT)?;
        if head.is_empty() {
            return Err(TraceError::Empty { repairs: Box::default() });
        }
        let text = head.strip_prefix(BOM);
        let detected = || text.and_then(Format::detect).filter(|f| !f.has_records()).or_else(|| Format::detect(head));
        let format = options.format.or_else(detected).ok_or(TraceError::UnknownFormat)?;
        let parser = parser(format, options.event, head);
        if format.has_records() {
            input.count_records();
        } else if text.is_some() {
            input.skip(BOM.len())?;
        }
        Ok(Reader {
            input,
            parser,
            format,
            names,
            volume_bytes: options.volume_bytes.unwrap_or(VOLUME_MAX).min(VOLUME_MAX),
            strict: options.strict,
            repairs: Repairs::default(),
            clock: Clock::default(),
            settled: VecDeque::new(),
            ready: VecDeque::new(),
            failed: None,
            ended: false,
        })
    }

    /// The format, as told or recognised.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was dropped or changed so far.
    pub fn repairs(&self) -> &Repairs {
        &self.repairs
    }

    /// The line or record read last.
    pub fn position(&self) -> Position {
        self.input.position()
    }

    /// Nanoseconds on the recording's clock at time 0; `None` before the first request was read.
    pub(super) fn start_ns(&self) -> Option<u128> {
        self.clock.start_ns()
    }

    /// Reads one line or record; false at the end.
    fn advance(&mut self) -> Result<bool, TraceError> {
        match self.parser.next(&mut self.input, &mut self.names)? {
            None => {
                if self.input.has_more() {
                    self.note(Fix::Trailing)?;
                }
                return Ok(false);
            }
            Some(Parsed::Nothing) => {}
            Some(Parsed::Dropped(fix)) => {
                self.note(fix)?;
                if fix == Fix::Header {
                    self.clock.begin_anew(&mut self.settled);
                }
            }
            Some(Parsed::Request(raw)) => self.admit(raw)?,
        }
        Ok(true)
    }

    /// Makes what has its time ready, and counts what was wrong with that.
    fn hand_on(&mut self) -> Result<(), TraceError> {
        while let Some((asked, time_us, fix)) = self.settled.pop_front() {
            if let Some(fix) = fix {
                self.note_at(fix, asked.at)?;
            }
            self.ready.extend(asked.accesses.into_iter().flatten().map(|access| Access { time_us, ..access }));
        }
        Ok(())
    }

    /// Nothing more is read: what still waits for its time gets it.
    fn end(&mut self, failed: Option<TraceError>) {
        self.ended = true;
        self.clock.end(&mut self.settled);
        self.failed = self.hand_on().err().or(failed);
        if self.failed.is_none() && self.clock.start_ns().is_none() {
            self.failed = Some(TraceError::Empty { repairs: Box::new(self.repairs.clone()) });
        }
        self.failed = self.failed.take().or_else(|| self.clock.judge().err());
    }

    /// Counts a repair, or refuses it.
    fn note(&mut self, fix: Fix) -> Result<(), TraceError> {
        self.note_at(fix, self.input.position())
    }

    fn note_at(&mut self, fix: Fix, at: Position) -> Result<(), TraceError> {
        if self.strict && fix.is_damage() {
            return Err(TraceError::Refused { at, fix });
        }
        self.repairs.note(fix, at);
        Ok(())
    }

    /// Makes the accesses of a request.
    fn admit(&mut self, raw: Raw) -> Result<(), TraceError> {
        let Some(place) = self.names.place(raw.device) else {
            return self.note(Fix::OtherDevice);
        };
        let data = if raw.op == Op::Flush { None } else { self.fit(&raw, place)? };
        let flush_before = raw.flush_before || raw.op == Op::Flush;
        if !flush_before && data.is_none() {
            return Ok(());
        }
        let flush = Access { time_us: 0, op: Op::Flush, offset: 0, len: 0 };
        let access = data.map(|(offset, len)| Access { time_us: 0, op: raw.op, offset, len });
        let flush_after = access.is_some() && raw.fua && raw.op == Op::Write;
        let accesses = [flush_before.then_some(flush), access, flush_after.then_some(flush)];
        self.clock.add(Asked { time_ns: raw.time_ns, at: self.input.position(), accesses }, &mut self.settled);
        if self.clock.requests() % JUDGE_EVERY == 0 {
            self.clock.judge()?;
        }
        Ok(())
    }

    /// The request's range on the volume; `None` if nothing is left of it.
    fn fit(&mut self, raw: &Raw, place: Place) -> Result<Option<(u64, u64)>, TraceError> {
        if raw.len == 0 {
            // A flush that carries no data is no mistake.
            if !raw.flush_before {
                self.note(Fix::ZeroLength)?;
            }
            return Ok(None);
        }
        if raw.len > LEN_MAX && raw.op != Op::Trim {
            self.note(Fix::TooLong)?;
            return Ok(None);
        }
        if raw.device.is_some() && raw.offset >= place.len {
            self.note(Fix::BeyondDevice)?;
            self.repairs.name(Fix::BeyondDevice, self.names.name(raw.device));
            return Ok(None);
        }
        let end = place.start.saturating_add(place.len).min(self.volume_bytes);
        let offset = place.start.saturating_add(raw.offset);
        if offset >= end {
            self.note(Fix::Beyond)?;
            return Ok(None);
        }
        let len = raw.len.min(end - offset);
        if len < raw.len {
            self.note(Fix::Shortened)?;
        }
        self.names.reach(raw.device, raw.offset + len);
        Ok(Some((offset, len)))
    }
}

impl Iterator for Reader {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Result<Access, TraceError>> {
        loop {
            if let Some(access) = self.ready.pop_front() {
                return Some(Ok(access));
            }
            if self.ended {
                return self.failed.take().map(Err);
            }
            match self.advance().and_then(|more| self.hand_on().map(|()| more)) {
                Ok(true) => {}
                Ok(false) => self.end(None),
                Err(e) => self.end(Some(e)),
            }
        }
    }
}
