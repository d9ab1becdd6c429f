//! The C interface of PMIx (libpmix.so.2), loaded at run time. This is the only module of the bootstrap with `unsafe`.
//!
//! The structures are those of `pmix_common.h` of OpenPMIx 3, 4 and 5, which are the same for what is used here: OpenPMIx keeps
//! its ABI within the library's soname 2, and numbers once given. [`Library::load`] refuses every other version, and a library
//! without one of the functions. The loaded library stays for the life of the process, because it has threads.
//!
//! Strings and bytes go in as Rust slices and come out as copies. No pointer of the library leaves this module.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of, zeroed};
use std::ptr;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

/// The file that holds PMIx, by its soname.
pub const LIBRARY: &str = "libpmix.so.2";
/// Major versions whose structures are those of this module.
const MAJORS: std::ops::RangeInclusive<u32> = 3..=5;

const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;
const SUCCESS: c_int = 0;
const SCOPE_GLOBAL: u8 = 3;
const TYPE_BOOL: u16 = 1;
const TYPE_INT: u16 = 6;
const TYPE_UINT32: u16 = 14;
const TYPE_BYTE_OBJECT: u16 = 27;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const KEY_JOB_SIZE: &CStr = c"pmix.job.size";
const KEY_COLLECT_DATA: &CStr = c"pmix.collect";
const KEY_TIMEOUT: &CStr = c"pmix.timeout";

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct RawProcess {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct RawBytes {
    bytes: *mut c_char,
    size: usize,
}

/// The union of `pmix_value_t`, as far as it is used. The longest member of the C union is `pmix_envar_t`: two pointers and a char.
#[repr(C)]
#[derive(Clone, Copy)]
union RawData {
    flag: bool,
    integer: c_int,
    uint32: u32,
    bytes: RawBytes,
    longest: [usize; 3],
}

/// `pmix_value_t`
#[repr(C)]
struct RawValue {
    kind: u16,
    data: RawData,
}

/// `pmix_info_t`
#[repr(C)]
struct RawInfo {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: RawValue,
}

// What a C compiler says of pmix_common.h of OpenPMIx 4.2.2 on a 64-bit Linux.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<RawProcess>() == 260 && offset_of!(RawProcess, rank) == 256);
    assert!(size_of::<RawBytes>() == 16);
    assert!(size_of::<RawValue>() == 32 && offset_of!(RawValue, data) == 8);
    assert!(
        size_of::<RawInfo>() == 552 && offset_of!(RawInfo, flags) == 512 && offset_of!(RawInfo, value) == 520
    );
};

type InitFn = unsafe extern "C" fn(*mut RawProcess, *mut RawInfo, usize) -> c_int;
type FinalizeFn = unsafe extern "C" fn(*const RawInfo, usize) -> c_int;
type PutFn = unsafe extern "C" fn(u8, *const c_char, *mut RawValue) -> c_int;
type CommitFn = unsafe extern "C" fn() -> c_int;
type FenceFn = unsafe extern "C" fn(*const RawProcess, usize, *const RawInfo, usize) -> c_int;
type GetFn = unsafe extern "C" fn(
    *const RawProcess,
    *const c_char,
    *const RawInfo,
    usize,
    *mut *mut RawValue,
) -> c_int;
type GetVersionFn = unsafe extern "C" fn() -> *const c_char;
type ErrorStringFn = unsafe extern "C" fn(c_int) -> *const c_char;

/// Why the library is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("{LIBRARY} cannot be loaded ({0})")]
    Missing(String),
    #[error("{LIBRARY} lacks {0}")]
    Symbol(&'static str),
    #[error("the version of {LIBRARY} is {0:?}, and only versions 3 to 5 are known")]
    Version(String),
}

/// A call of the library that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmixFailure {
    pub call: &'static str,
    pub status: i32,
    pub name: String,
}

/// A process of a job, as PMIx names it.
#[derive(Clone, Copy)]
pub struct PmixProcess(RawProcess);

impl PmixProcess {
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Another process of the same job.
    pub fn with_rank(&self, rank: u32) -> Self {
        Self(RawProcess { rank, ..self.0 })
    }

    pub fn namespace(&self) -> String {
        let bytes: Vec<u8> = self.0.namespace.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
        String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
    }
}

/// The functions of a loaded libpmix. They may be called from any thread (PMIx Standard 4.1, section 2.2, "thread safety").
#[derive(Clone, Copy)]
pub struct Library {
    init: InitFn,
    finalize: FinalizeFn,
    put: PutFn,
    commit: CommitFn,
    fence: FenceFn,
    get: GetFn,
    error_string: ErrorStringFn,
    version: &'static CStr,
}

impl Library {
    /// Loads the library and checks its version.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: the initialisers of libpmix only set up its own data. Whoever can put another file in its place under this
        // soname decides over this process anyway (ld.so(8), LD_LIBRARY_PATH).
        let loaded = unsafe { Loaded::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) };
        let loaded = loaded.map_err(|error| LoadError::Missing(error.to_string()))?;
        let version = {
            let get_version: GetVersionFn = symbol(&loaded, "PMIx_Get_version")?;
            // SAFETY: PMIx_Get_version(3) takes nothing, may be called before PMIx_Init, and returns a constant string.
            let text = unsafe { get_version() };
            if text.is_null() {
                return Err(LoadError::Version(String::new()));
            }
            // SAFETY: the string is constant and ends with a zero, and the library is never unloaded (below).
            unsafe { CStr::from_ptr(text) }
        };
        let text = version.to_string_lossy();
        if !major(&text).is_some_and(|major| MAJORS.contains(&major)) {
            return Err(LoadError::Version(text.into_owned()));
        }
        let library = Self {
            init: symbol(&loaded, "PMIx_Init")?,
            finalize: symbol(&loaded, "PMIx_Finalize")?,
            put: symbol(&loaded, "PMIx_Put")?,
            commit: symbol(&loaded, "PMIx_Commit")?,
            fence: symbol(&loaded, "PMIx_Fence")?,
            get: symbol(&loaded, "PMIx_Get")?,
            error_string: symbol(&loaded, "PMIx_Error_string")?,
            version,
        };
        // The functions stay valid only as long as the library is loaded: it stays for ever.
        std::mem::forget(loaded);
        Ok(library)
    }

    /// What the library says of its version.
    pub fn version(&self) -> String {
        let text = self.version.to_string_lossy();
        text.split(" (").next().unwrap_or_default().split(", repo").next().unwrap_or_default().to_string()
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), PmixFailure> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: PMIx_Error_string takes any number and returns a constant string.
        let text = unsafe { (self.error_string)(status) };
        let name = if text.is_null() {
            "unknown".to_string()
        } else {
            // SAFETY: the string is constant and ends with a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(PmixFailure { call, status, name })
    }

    /// Joins the job of the environment, and returns this process. Blocks until the local PMIx server has answered.
    pub fn init(&self) -> Result<PmixProcess, PmixFailure> {
        // SAFETY: all bytes zero are a valid `pmix_proc_t` (PMIX_PROC_CONSTRUCT).
        let mut process: RawProcess = unsafe { zeroed() };
        // SAFETY: `process` is writable for the call, and no info is given (PMIx_Init(3)).
        let status = unsafe { (self.init)(&raw mut process, ptr::null_mut(), 0) };
        self.check("PMIx_Init", status).map(|()| PmixProcess(process))
    }

    /// Leaves the job. The library counts its users, so another one in this process keeps what it has.
    pub fn finalize(&self) -> Result<(), PmixFailure> {
        // SAFETY: no info is given (PMIx_Finalize(3)); the caller has called `init`, else the library returns an error.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    /// Number of processes of the job.
    pub fn job_size(&self, own: &PmixProcess) -> Result<u32, PmixFailure> {
        let value = self.get_value(&own.with_rank(RANK_WILDCARD), KEY_JOB_SIZE, &[])?;
        let Some(value) = value.filter(|value| value.kind() == TYPE_UINT32) else {
            return Err(unexpected("PMIx_Get of pmix.job.size"));
        };
        // SAFETY: the type of the value says that the union holds this member.
        Ok(unsafe { (*value.0).data.uint32 })
    }

    /// Gives a value for other processes. They see it after a commit and a fence.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), PmixFailure> {
        let key = to_key(key);
        let object = RawBytes { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = RawValue { kind: TYPE_BYTE_OBJECT, data: RawData { bytes: object } };
        // SAFETY: the key ends with a zero and is shorter than PMIX_MAX_KEYLEN. PMIx_Put(3) copies the value and does not
        // write to it, so a pointer to shared bytes serves.
        let status = unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)
    }

    /// Sends what was put to the local server.
    pub fn commit(&self) -> Result<(), PmixFailure> {
        // SAFETY: PMIx_Commit(3) takes nothing.
        let status = unsafe { (self.commit)() };
        self.check("PMIx_Commit", status)
    }

    /// Waits for all processes of the job, and fetches what they have put if `collect` is set. All give the same `collect`.
    pub fn fence(&self, collect: bool) -> Result<(), PmixFailure> {
        let info = info(KEY_COLLECT_DATA, TYPE_BOOL, RawData { flag: collect });
        // SAFETY: no processes mean all of this job, and `info` is one readable element (PMIx_Fence(3)).
        let status = unsafe { (self.fence)(ptr::null(), 0, &raw const info, 1) };
        self.check("PMIx_Fence", status)
    }

    /// What a process has put. With `seconds`, the search ends after that time.
    pub fn get(
        &self,
        process: &PmixProcess,
        key: &str,
        seconds: Option<i32>,
    ) -> Result<Vec<u8>, PmixFailure> {
        let infos = seconds.map(|seconds| info(KEY_TIMEOUT, TYPE_INT, RawData { integer: seconds }));
        let value = self.get_value(process, &to_key(key), infos.as_slice())?;
        let Some(value) = value.filter(|value| value.kind() == TYPE_BYTE_OBJECT) else {
            return Err(unexpected("PMIx_Get"));
        };
        // SAFETY: the type of the value says that the union holds this member.
        let object = unsafe { (*value.0).data.bytes };
        if object.bytes.is_null() || object.size == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the library filled the object with `size` bytes, which belong to this value until it is dropped.
        Ok(unsafe { std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.size) }.to_vec())
    }

    fn get_value(
        &self,
        process: &PmixProcess,
        key: &CStr,
        infos: &[RawInfo],
    ) -> Result<Option<PmixValue>, PmixFailure> {
        let mut value = ptr::null_mut();
        // SAFETY: the process, the key and `infos` are readable for the call, and `value` is writable (PMIx_Get(3)).
        let status = unsafe {
            (self.get)(&raw const process.0, key.as_ptr(), infos.as_ptr(), infos.len(), &raw mut value)
        };
        self.check("PMIx_Get", status)?;
        Ok(if value.is_null() { None } else { Some(PmixValue(value)) })
    }
}

/// A value that PMIx_Get returned. The caller owns it (PMIx_Get(3)).
struct PmixValue(*mut RawValue);

impl PmixValue {
    fn kind(&self) -> u16 {
        // SAFETY: the pointer is not null, and the value is owned.
        unsafe { (*self.0).kind }
    }
}

impl Drop for PmixValue {
    fn drop(&mut self) {
        match self.kind() {
            TYPE_UINT32 => {}
            // SAFETY: the bytes came from malloc(3) with the value (PMIX_VALUE_DESTRUCT frees them so), and nobody else has them.
            TYPE_BYTE_OBJECT => unsafe { libc::free((*self.0).data.bytes.bytes.cast::<c_void>()) },
            // What another type owns is not known here. The few bytes stay, rather than being freed by a guess.
            _ => return,
        }
        // SAFETY: the value came from malloc(3) (PMIX_VALUE_RELEASE frees it so), and nobody else has it.
        unsafe { libc::free(self.0.cast::<c_void>()) };
    }
}

fn symbol<T: Copy>(loaded: &Loaded, name: &'static str) -> Result<T, LoadError> {
    // SAFETY: `T` is the type of this function in pmix.h, which has not changed from version 3 to 5. The caller keeps the library.
    unsafe { loaded.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| LoadError::Symbol(name))
}

fn info(key: &CStr, kind: u16, data: RawData) -> RawInfo {
    let mut info = RawInfo { key: [0; KEY_BYTES], flags: 0, value: RawValue { kind, data } };
    for (to, from) in info.key.iter_mut().zip(key.to_bytes()) {
        *to = c_char::from_ne_bytes([*from]);
    }
    info
}

fn to_key(key: &str) -> CString {
    assert!(key.len() < KEY_BYTES, "keys of the bootstrap are short");
    CString::new(key).expect("keys of the bootstrap have no zero")
}

/// A value of a type that the standard does not give to it.
fn unexpected(call: &'static str) -> PmixFailure {
    PmixFailure { call, status: SUCCESS, name: "a value of an unexpected type".to_string() }
}

/// The major version: the first number in texts such as "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, ...)" and "PMIx v3.2.3, ...".
fn major(version: &str) -> Option<u32> {
    let numbers = version.trim_start_matches(|character: char| !character.is_ascii_digit());
    let (major, rest) = numbers.split_once('.')?;
    rest.starts_with(|first: char| first.is_ascii_digit()).then(|| major.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_versions_are_accepted() {
        assert_eq!(
            major("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)"),
            Some(4)
        );
        assert_eq!(major("PMIx v3.2.3, repo rev: v3.2.3, Aug 2021"), Some(3));
        for text in ["", "PMIx", "OpenPMIx x.y", "OpenPMIx 4", "OpenPMIx 4.", "OpenPMIx 99999999999.1"] {
            assert_eq!(major(text), None, "{text}");
        }
    }

    #[test]
    fn infos_are_those_of_the_header() {
        let it = info(KEY_TIMEOUT, TYPE_INT, RawData { integer: 7 });
        let key: Vec<u8> = it.key.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
        assert_eq!(CStr::from_bytes_until_nul(&key), Ok(c"pmix.timeout"));
        assert_eq!((it.flags, it.value.kind), (0, TYPE_INT));
    }
}
