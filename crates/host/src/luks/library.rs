//! libcryptsetup: all foreign code, behind a face that cannot be used wrongly.
//!
//! Declarations are those of `libcryptsetup.h` of 2.4; what it declares has been kept since 2.0, and the number in the
//! library's name says so. It is loaded at run time: few have it, and only encrypted families need it.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::image::Image;
use super::{Cost, LuksError, CIPHER, KEY_BYTES, MARK, METADATA_COPY, MODE, NOWHERE};

const NAME: &CStr = c"libcryptsetup.so.12";
const LUKS2: &CStr = c"LUKS2";
const ANY: c_int = -1;
const LOG_ERROR: c_int = 1;
const NO_BENCHMARK: u32 = 1 << 1;
/// The smallest: with more, the library asks the device mapper whether it could serve such sectors, and opening its
/// control file may load a kernel module.
const SECTOR: u32 = 512;

type Log = Mutex<Vec<String>>;
type LogFn = extern "C" fn(c_int, *const c_char, *mut c_void);

/// `struct crypt_device`, of which only pointers are known.
#[repr(C)]
struct Device {
    _private: [u8; 0],
}

/// `struct crypt_pbkdf_type`.
#[repr(C)]
struct Pbkdf {
    kind: *const c_char,
    hash: *const c_char,
    time_ms: u32,
    iterations: u32,
    max_memory_kb: u32,
    parallel_threads: u32,
    flags: u32,
}

/// `struct crypt_params_luks2`.
#[repr(C)]
struct Params {
    pbkdf: *const Pbkdf,
    integrity: *const c_char,
    integrity_params: *const c_void,
    data_alignment: usize,
    data_device: *const c_char,
    sector_size: u32,
    label: *const c_char,
    subsystem: *const c_char,
}

/// A step that the library refused.
#[derive(Debug)]
pub(super) struct Failure {
    /// The error, as a positive number.
    pub(super) errno: i32,
    /// What it said.
    pub(super) words: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.words.is_empty() {
            return write!(f, "libcryptsetup gives no reason but {}", std::io::Error::from_raw_os_error(self.errno));
        }
        write!(f, "{}", self.words.join(" "))
    }
}

/// The functions that are used.
pub(super) struct Library {
    init: unsafe extern "C" fn(*mut *mut Device, *const c_char) -> c_int,
    free: unsafe extern "C" fn(*mut Device),
    set_log: unsafe extern "C" fn(*mut Device, Option<LogFn>, *mut c_void),
    set_metadata_size: unsafe extern "C" fn(*mut Device, u64, u64) -> c_int,
    set_data_offset: unsafe extern "C" fn(*mut Device, u64) -> c_int,
    default_pbkdf: unsafe extern "C" fn(*const c_char) -> *const Pbkdf,
    set_pbkdf: unsafe extern "C" fn(*mut Device, *const Pbkdf) -> c_int,
    format: unsafe extern "C" fn(
        *mut Device,
        *const c_char,
        *const c_char,
        *const c_char,
        *const c_char,
        *const c_char,
        usize,
        *mut c_void,
    ) -> c_int,
    load: unsafe extern "C" fn(*mut Device, *const c_char, *mut c_void) -> c_int,
    repair: unsafe extern "C" fn(*mut Device, *const c_char, *mut c_void) -> c_int,
    add_by_key: unsafe extern "C" fn(*mut Device, c_int, *const c_char, usize, *const c_char, usize) -> c_int,
    change: unsafe extern "C" fn(*mut Device, c_int, c_int, *const c_char, usize, *const c_char, usize) -> c_int,
    destroy: unsafe extern "C" fn(*mut Device, c_int) -> c_int,
    key: unsafe extern "C" fn(*mut Device, c_int, *mut c_char, *mut usize, *const c_char, usize) -> c_int,
    token: unsafe extern "C" fn(*mut Device, c_int, *const c_char) -> c_int,
    json: unsafe extern "C" fn(*mut Device, *mut *const c_char, u32) -> c_int,
}

/// Why there is no library. Kept, so that asking again costs nothing.
enum NoLibrary {
    Missing(String),
    TooOld(&'static str),
}

impl Library {
    /// The library, loaded once and for the life of the process: it has threads' and its own state that unloading
    /// would leave behind.
    pub(super) fn get() -> Result<&'static Library, LuksError> {
        static LIBRARY: OnceLock<Result<Library, NoLibrary>> = OnceLock::new();
        match LIBRARY.get_or_init(Library::load) {
            Ok(library) => Ok(library),
            Err(NoLibrary::Missing(why)) => Err(LuksError::Missing { why: why.clone() }),
            Err(NoLibrary::TooOld(function)) => Err(LuksError::TooOld { function }),
        }
    }

    fn load() -> Result<Library, NoLibrary> {
        // SAFETY: the name is a string with a zero at its end. What the library runs when it is loaded is as much to be
        // trusted as the system's own programs that load it.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(NoLibrary::Missing(why_not_loaded()));
        }
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of this function in `libcryptsetup.h`; the library is never unloaded.
                unsafe { symbol(handle, $name) }.ok_or(NoLibrary::TooOld($name))?
            };
        }
        let library = Library {
            init: function!("crypt_init"),
            free: function!("crypt_free"),
            set_log: function!("crypt_set_log_callback"),
            set_metadata_size: function!("crypt_set_metadata_size"),
            set_data_offset: function!("crypt_set_data_offset"),
            default_pbkdf: function!("crypt_get_pbkdf_default"),
            set_pbkdf: function!("crypt_set_pbkdf_type"),
            format: function!("crypt_format"),
            load: function!("crypt_load"),
            repair: function!("crypt_repair"),
            add_by_key: function!("crypt_keyslot_add_by_volume_key"),
            change: function!("crypt_keyslot_change_by_passphrase"),
            destroy: function!("crypt_keyslot_destroy"),
            key: function!("crypt_volume_key_get"),
            token: function!("crypt_token_json_set"),
            json: function!("crypt_dump_json"),
        };
        let locking: unsafe extern "C" fn(*mut Device, c_int) -> c_int = function!("crypt_metadata_locking");
        let no_plugins: unsafe extern "C" fn() = function!("crypt_token_external_disable");
        // SAFETY: both are switches of the process; the functions allow that there is no device. Locks would be files
        // under /run that only root may make, and nobody else can reach a file in our memory. A token in a foreign
        // header shall not be what decides that a plugin is loaded. The callback is a function for ever.
        unsafe {
            locking(ptr::null_mut(), 0);
            no_plugins();
            // What is said before a device has a log of its own would go to the terminal.
            (library.set_log)(ptr::null_mut(), Some(ignore), ptr::null_mut());
        }
        Ok(library)
    }

    /// Starts to work on a file. Only one at a time: the library makes no promises about threads.
    pub(super) fn open(&'static self, image: &Image) -> Result<Context, LuksError> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut device = ptr::null_mut();
        // SAFETY: the pointer takes one pointer, and the path is a string with a zero at its end.
        let result = unsafe { (self.init)(&mut device, image.path().as_ptr()) };
        if result < 0 || device.is_null() {
            // Its error would be that a block device is required, whatever was wrong.
            let why = std::io::Error::other(format!("{} cannot be read", image.path().to_string_lossy()));
            return Err(LuksError::Workspace { step: "opening it by its path", why });
        }
        let log = Box::new(Log::default());
        let at = ptr::from_ref::<Log>(&log).cast_mut().cast();
        // SAFETY: the device is open, and the log stays in its place until after the device is closed.
        unsafe { (self.set_log)(device, Some(collect), at) };
        Ok(Context { library: self, device, log, _turn: turn })
    }
}

/// A file that is being worked on.
pub(super) struct Context {
    library: &'static Library,
    /// Open from the beginning to the end of this value, and used by no other.
    device: *mut Device,
    log: Box<Log>,
    _turn: MutexGuard<'static, ()>,
}

impl Context {
    /// Writes the metadata of a header without slots.
    pub(super) fn format(
        &self,
        image: &Image,
        uuid: &CStr,
        label: &CStr,
        key: &[u8; KEY_BYTES],
        key_slots_bytes: u64,
        cost: Cost,
    ) -> Result<(), Failure> {
        let text = |s: &str| std::ffi::CString::new(s).expect("has no zero bytes");
        let (cipher, mode, mark) = (text(CIPHER), text(MODE), text(MARK));
        let mut params = Params {
            pbkdf: ptr::null(),
            integrity: ptr::null(),
            integrity_params: ptr::null(),
            data_alignment: 0,
            // That there is one, be it the same file, makes the header a detached one: or else the library would wipe
            // everything up to where the data begin.
            data_device: image.path().as_ptr(),
            sector_size: SECTOR,
            label: label.as_ptr(),
            subsystem: mark.as_ptr(),
        };
        // SAFETY: the device is open.
        self.done(unsafe { (self.library.set_metadata_size)(self.device, METADATA_COPY, key_slots_bytes) })?;
        // SAFETY: the device is open.
        self.done(unsafe { (self.library.set_data_offset)(self.device, NOWHERE / 512) })?;
        self.set_cost(cost)?;
        // SAFETY: the device is open; all pointers are to strings with zeros at their ends, to a key of this length
        // and to parameters of this type, which outlive the call; the library copies what it keeps.
        let result = unsafe {
            (self.library.format)(
                self.device,
                LUKS2.as_ptr(),
                cipher.as_ptr(),
                mode.as_ptr(),
                uuid.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                ptr::from_mut(&mut params).cast(),
            )
        };
        self.done(result).map(drop)
    }

    /// What slots that are added from now on shall cost.
    pub(super) fn set_cost(&self, cost: Cost) -> Result<(), Failure> {
        let light = Pbkdf {
            kind: c"argon2id".as_ptr(),
            hash: c"sha256".as_ptr(),
            time_ms: 0,
            iterations: 4,
            max_memory_kb: 32,
            parallel_threads: 1,
            flags: NO_BENCHMARK,
        };
        let pbkdf = match cost {
            // What the library, or who built it, thinks best for LUKS2. To give none would mean PBKDF2 as long as the
            // library does not know that this becomes LUKS2.
            // SAFETY: the name is a string with a zero at its end.
            Cost::Default => unsafe { (self.library.default_pbkdf)(LUKS2.as_ptr()) },
            Cost::Light => ptr::from_ref(&light),
        };
        // SAFETY: the device is open; the pointer is to such parameters, ours or static ones of the library, or null,
        // which is allowed; the library copies them.
        self.done(unsafe { (self.library.set_pbkdf)(self.device, pbkdf) }).map(drop)
    }

    /// Reads the metadata.
    pub(super) fn load(&self) -> Result<(), Failure> {
        // SAFETY: the device is open; no parameters are needed.
        self.done(unsafe { (self.library.load)(self.device, LUKS2.as_ptr(), ptr::null_mut()) }).map(drop)
    }

    /// Makes a bad copy of the metadata from the good one.
    pub(super) fn repair(&self) -> Result<(), Failure> {
        // SAFETY: the device is open; no parameters are needed.
        self.done(unsafe { (self.library.repair)(self.device, LUKS2.as_ptr(), ptr::null_mut()) }).map(drop)
    }

    /// Adds a slot for a key that is known, and gives its number.
    pub(super) fn add_by_key(&self, key: &[u8; KEY_BYTES], passphrase: &[u8]) -> Result<u32, Failure> {
        let (pass, pass_len) = (passphrase.as_ptr().cast(), passphrase.len());
        // SAFETY: the device is open; each pointer is to as many bytes as its length says.
        let result =
            unsafe { (self.library.add_by_key)(self.device, ANY, key.as_ptr().cast(), key.len(), pass, pass_len) };
        self.done(result)
    }

    /// Changes the passphrase of a slot, and gives its number.
    pub(super) fn change(&self, old: &[u8], new: &[u8]) -> Result<u32, Failure> {
        let (old, old_len) = (old.as_ptr().cast(), old.len());
        // SAFETY: the device is open; each pointer is to as many bytes as its length says.
        let result =
            unsafe { (self.library.change)(self.device, ANY, ANY, old, old_len, new.as_ptr().cast(), new.len()) };
        self.done(result)
    }

    /// Removes a slot and wipes its area.
    pub(super) fn destroy(&self, slot: u32) -> Result<(), Failure> {
        // SAFETY: the device is open. Numbers that are none of a slot are refused.
        self.done(unsafe { (self.library.destroy)(self.device, slot as c_int) }).map(drop)
    }

    /// Gets the key, and the number of the slot that the passphrase fits.
    ///
    /// The library copies as much as the slot holds, so the caller must have looked that no slot holds more than this.
    pub(super) fn key(&self, key: &mut [u8; KEY_BYTES], passphrase: &[u8]) -> Result<u32, Failure> {
        let mut len = key.len();
        let (pass, pass_len) = (passphrase.as_ptr().cast(), passphrase.len());
        // SAFETY: the device is open; each pointer is to as many bytes as its length says, and none of the slots that
        // are tried holds more (looked at when the header was opened).
        let result = unsafe { (self.library.key)(self.device, ANY, key.as_mut_ptr().cast(), &mut len, pass, pass_len) };
        match self.done(result)? {
            _ if len != KEY_BYTES => {
                Err(Failure { errno: libc::EINVAL, words: vec![format!("the key has {len} bytes")] })
            }
            slot => Ok(slot),
        }
    }

    /// Adds a token, or replaces or removes the one of this number.
    pub(super) fn set_token(&self, number: Option<u32>, json: Option<&CStr>) -> Result<(), Failure> {
        let number = number.map_or(ANY, |n| n as c_int);
        let json = json.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the device is open; the text is a string with a zero at its end, or null to remove.
        self.done(unsafe { (self.library.token)(self.device, number, json) }).map(drop)
    }

    /// The metadata as JSON.
    pub(super) fn json(&self) -> Result<String, Failure> {
        let mut text = ptr::null();
        // SAFETY: the device is open, and the pointer takes one pointer.
        self.done(unsafe { (self.library.json)(self.device, &mut text, 0) })?;
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: on success it is a string with a zero at its end that lives until the next call.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// The number that a call gave, or its failure together with what was said on the way.
    fn done(&self, result: c_int) -> Result<u32, Failure> {
        let words = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        u32::try_from(result).map_err(|_| Failure { errno: result.saturating_neg(), words })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the device is open, and nobody uses it after this. The log is still in its place.
        unsafe { (self.library.free)(self.device) };
    }
}

/// A function of the library, if it has it.
///
/// # Safety
///
/// `T` must be a pointer to functions of the type that this one has, used no longer than the library stays loaded.
unsafe fn symbol<T: Copy>(library: *mut c_void, name: &'static str) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the handle is that of a loaded library, and the name is a string with a zero at its end.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: both are one pointer in size, it is not null, and the caller vouches for its type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
}

fn why_not_loaded() -> String {
    // SAFETY: takes nothing; gives null or a string with a zero at its end that lives until the next such call of this
    // thread.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: as above, and no such call was made since.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

/// Keeps errors. Secrets are not among them: the library never prints any.
extern "C" fn collect(level: c_int, message: *const c_char, log: *mut c_void) {
    if level != LOG_ERROR || message.is_null() || log.is_null() {
        return;
    }
    // SAFETY: it is the pointer that was given with this function, to a log that outlives the device.
    let log = unsafe { &*log.cast::<Log>() };
    // SAFETY: it is a string with a zero at its end.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(without_paths(message.trim()));
}

extern "C" fn ignore(_level: c_int, _message: *const c_char, _log: *mut c_void) {}

/// The library speaks of `/proc/self/fd/7`, which means nothing to anyone.
fn without_paths(message: &str) -> String {
    let word = |w: &str| match w.strip_prefix("/proc/self/fd/") {
        Some(rest) => format!("(the header){}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => w.to_owned(),
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the next slot would be derived.
    fn kind(context: &Context) -> String {
        // SAFETY: the library is loaded, and the type is that of this function in `libcryptsetup.h`. It gives null or
        // parameters that live as long as the device.
        unsafe {
            let handle = libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW);
            let get = symbol::<unsafe extern "C" fn(*mut Device) -> *const Pbkdf>(handle, "crypt_get_pbkdf_type");
            let pbkdf = get.expect("is there")(context.device).as_ref().expect("was set");
            CStr::from_ptr(pbkdf.kind).to_string_lossy().into_owned()
        }
    }

    #[test]
    fn by_default_a_passphrase_costs_memory() {
        let Some(luks) = crate::luks::tests::luks() else { return };
        if std::fs::read_to_string("/proc/sys/crypto/fips_enabled").is_ok_and(|on| on.trim() == "1") {
            println!("skipped: in FIPS mode libcryptsetup has nothing but PBKDF2");
            return;
        }
        let image = Image::empty(1 << 20).expect("made");
        for cost in [Cost::Default, Cost::Light] {
            // Of what is not yet LUKS2, as when a header is made.
            let context = luks.library.open(&image).expect("opens");
            context.set_cost(cost).expect("set");
            assert_eq!(kind(&context), "argon2id", "{cost:?}");
        }
    }

    #[test]
    fn paths_that_nobody_knows_are_not_told() {
        let said = without_paths("Device /proc/self/fd/17, is too small for /dev/x.");
        assert_eq!(said, "Device (the header), is too small for /dev/x.");
    }
}
