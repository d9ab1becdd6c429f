//! Everything that is not supported yet, in one place: the code below is what refuses it, and `ALL` is its list.
//! Each answers EOPNOTSUPP (creating verbs: NULL with `errno` EOPNOTSUPP). The list of docs/COMPATIBILITY.md is made of it; a test compares them.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, set_errno};
use libc::{EOPNOTSUPP, c_int, c_void};
use pagewire_nic::attributes::QueuePairType;

/// How a program comes to a thing that is not supported.
#[derive(Debug, Clone, Copy)]
pub enum UnsupportedCall {
    /// A function of the library that gives an `errno` value.
    Status(unsafe extern "C" fn() -> c_int),
    /// A function of the library that gives a number, here -1 with `errno` set.
    Number(unsafe extern "C" fn() -> c_int),
    /// A function of the library that gives a pointer, here NULL with `errno` set.
    Pointer(unsafe extern "C" fn() -> *mut c_void),
    /// A function of the library that gives nothing.
    Nothing(unsafe extern "C" fn()),
    /// An operation of `verbs_context` that is NULL: the inline function of the header answers.
    Operation,
    /// A function in the tables of operations, or of the library, that looks at its arguments before it refuses.
    Function,
    /// A request, flag or type that a verb refuses.
    Request,
}

/// One thing that is not supported.
#[derive(Debug, Clone, Copy)]
pub struct Unsupported {
    /// What it is a part of.
    pub feature: &'static str,
    /// The function's or operation's name, or the constant's.
    pub name: &'static str,
    /// How a program comes to it.
    pub entry: UnsupportedCall,
}

impl Unsupported {
    /// As programs write it: operations by the names of their verbs.
    pub fn written(&self) -> String {
        match self.entry {
            UnsupportedCall::Operation if !self.name.starts_with("ibv_") => format!("ibv_{}", self.name),
            // An inline function of the header calls it.
            _ => self.name.trim_start_matches('_').to_owned(),
        }
    }
}

macro_rules! unsupported {
    ($($feature:literal { $($kind:ident { $($name:ident)* })* })*) => {
        $($($(unsupported! { @define $kind $name })*)*)*

        /// Everything that is not supported.
        pub const ALL: &[Unsupported] = &[$($($(
            Unsupported { feature: $feature, name: stringify!($name), entry: unsupported!(@entry $kind $name) },
        )*)*)*];

        /// Whether an operation of `verbs_context` is absent.
        #[cfg(test)]
        fn is_absent(operations: &verbs_context, name: &str) -> bool {
            $($($(unsupported! { @absent $kind $name, operations, name })*)*)*
            false
        }
    };
    (@define status $name:ident) => {
        /// Not supported: EOPNOTSUPP.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            EOPNOTSUPP
        }
    };
    (@define number $name:ident) => {
        /// Not supported: -1 with `errno` EOPNOTSUPP.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            set_errno(EOPNOTSUPP);
            -1
        }
    };
    (@define pointer $name:ident) => {
        /// Not supported: NULL with `errno` EOPNOTSUPP.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            set_errno(EOPNOTSUPP);
            std::ptr::null_mut()
        }
    };
    (@define nothing $name:ident) => {
        /// Not supported: does nothing, as nothing can exist that it would act on.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            set_errno(EOPNOTSUPP);
        }
    };
    (@define $kind:ident $name:ident) => {};
    (@entry status $name:ident) => { UnsupportedCall::Status($name) };
    (@entry number $name:ident) => { UnsupportedCall::Number($name) };
    (@entry pointer $name:ident) => { UnsupportedCall::Pointer($name) };
    (@entry nothing $name:ident) => { UnsupportedCall::Nothing($name) };
    (@entry operation $name:ident) => { UnsupportedCall::Operation };
    (@entry function $name:ident) => { UnsupportedCall::Function };
    (@entry request $name:ident) => { UnsupportedCall::Request };
    (@absent operation $name:ident, $operations:ident, $wanted:ident) => {
        if $wanted == stringify!($name) {
            return $operations.$name.is_none();
        }
    };
    (@absent $kind:ident $name:ident, $operations:ident, $wanted:ident) => {};
}

// Functions of the C calling convention may be called with more arguments than they read (x86-64, AArch64: the caller
// cleans up), so that these need not know their parameters.
unsupported! {
    "some operations of the extended posting interface (`ibv_wr_*`)" {
        request { IBV_QP_EX_WITH_TSO }
    }
    "raw packets, segmentation, receive-side scaling and other creation options" {
        operation { create_wq modify_wq destroy_wq create_rwq_ind_table destroy_rwq_ind_table }
        request {
            IBV_QPT_RAW_PACKET IBV_QPT_DRIVER IBV_WR_TSO IBV_WR_DRIVER1 IBV_QP_INIT_ATTR_CREATE_FLAGS
            IBV_QP_INIT_ATTR_MAX_TSO_HEADER IBV_QP_INIT_ATTR_IND_TABLE IBV_QP_INIT_ATTR_RX_HASH
        }
    }
    "flow steering" {
        operation {
            ibv_create_flow ibv_destroy_flow create_flow_action_esp modify_flow_action_esp destroy_flow_action
        }
    }
    "counters of flows" {
        operation { create_counters destroy_counters attach_counters_point_flow read_counters }
    }
    "DMA buffers and DMA handles" {
        pointer { ibv_reg_dmabuf_mr ibv_alloc_dmah }
        number { ibv_dm_export_dmabuf_fd }
        status { ibv_dealloc_dmah }
        request { IBV_REG_MR_MASK_FD IBV_REG_MR_MASK_FD_OFFSET IBV_REG_MR_MASK_DMAH }
    }
    "VLAN tags, flow tags and tag matching of completions" {
        operation { post_srq_ops }
        request {
            IBV_WC_EX_WITH_CVLAN IBV_WC_EX_WITH_FLOW_TAG IBV_WC_EX_WITH_TM_INFO
        }
    }
    "alternate paths, rate limits, connection options" {
        operation { modify_qp_rate_limit }
        function { ibv_query_ece ibv_set_ece }
        request { IBV_QP_ALT_PATH IBV_QP_PATH_MIG_STATE }
    }
}

/// Why a queue pair of a type is refused.
pub fn queue_pair_type(kind: ibv_qp_type) -> Errno {
    match kind {
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Errno(EOPNOTSUPP),
        _ => Errno(libc::EINVAL),
    }
}

/// Why a send request with an opcode is refused.
pub fn send_opcode(opcode: ibv_wr_opcode) -> Errno {
    match opcode {
        IBV_WR_TSO | IBV_WR_DRIVER1 => Errno(EOPNOTSUPP),
        _ => Errno(libc::EINVAL),
    }
}

/// Refuses what the extended creation of queue pairs cannot do. Options that are named but ask for nothing pass.
pub fn queue_pair_options(init: &ibv_qp_init_attr_ex) -> Result<()> {
    const KNOWN: u32 = (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1) - 1;
    if init.comp_mask & !KNOWN != 0 {
        return invalid("comp_mask");
    }
    let named = |flag| init.comp_mask & flag != 0;
    let refused = named(IBV_QP_INIT_ATTR_IND_TABLE)
        || named(IBV_QP_INIT_ATTR_RX_HASH)
        || named(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0
        || named(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && init.max_tso_header != 0
        || named(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && has_other_operations(init);
    if refused { Err(Errno(EOPNOTSUPP)) } else { Ok(()) }
}

// verbs.h, `enum ibv_qp_create_send_ops_flags`.
const WITH_RDMA_WRITE: u64 = 1 << 0;
const WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
const WITH_SEND: u64 = 1 << 2;
const WITH_SEND_WITH_IMM: u64 = 1 << 3;
const WITH_RDMA_READ: u64 = 1 << 4;
const WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
const WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
const WITH_LOCAL_INV: u64 = 1 << 7;
const WITH_BIND_MW: u64 = 1 << 8;
const WITH_SEND_WITH_INV: u64 = 1 << 9;
const WITH_FLUSH: u64 = 1 << 11;
const WITH_ATOMIC_WRITE: u64 = 1 << 12;

/// The operations that queue pairs of a type can be created with.
fn operations_of(kind: QueuePairType) -> u64 {
    let sends = WITH_SEND | WITH_SEND_WITH_IMM;
    let writes = WITH_RDMA_WRITE | WITH_RDMA_WRITE_WITH_IMM;
    let windows = WITH_LOCAL_INV | WITH_BIND_MW;
    match kind {
        QueuePairType::Ud => sends,
        QueuePairType::Uc => sends | writes | windows,
        QueuePairType::XrcReceive => 0,
        QueuePairType::Rc => operations_of(QueuePairType::XrcSend) | WITH_SEND_WITH_INV,
        QueuePairType::XrcSend => {
            let atomics = WITH_ATOMIC_CMP_AND_SWP | WITH_ATOMIC_FETCH_AND_ADD | WITH_ATOMIC_WRITE;
            sends | writes | windows | WITH_RDMA_READ | WITH_FLUSH | atomics
        }
    }
}

/// Whether operations of the extended interface for posting are asked for that this type of queue pair does not have. An unknown type is refused
/// where it is created.
fn has_other_operations(init: &ibv_qp_init_attr_ex) -> bool {
    let operations = match init.qp_type {
        IBV_QPT_RC => operations_of(QueuePairType::Rc),
        IBV_QPT_UC => operations_of(QueuePairType::Uc),
        IBV_QPT_UD => operations_of(QueuePairType::Ud),
        IBV_QPT_XRC_SEND => operations_of(QueuePairType::XrcSend),
        _ => 0,
    };
    init.send_ops_flags & !operations != 0
}

/// The list of docs/COMPATIBILITY.md: a row for each feature, with what answers EOPNOTSUPP.
#[cfg(test)]
fn list() -> String {
    let mut text = String::from("| not built yet | what answers `EOPNOTSUPP` |\n|---|---|\n");
    let mut rest = ALL;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|thing| thing.feature == first.feature).count();
        let (of_feature, others) = rest.split_at(count);
        let names: Vec<String> = of_feature.iter().map(|thing| format!("`{}`", thing.written())).collect();
        text.push_str(&format!("| {} | {} |\n", first.feature, names.join(", ")));
        rest = others;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::verbs_operations;

    #[test]
    fn each_answers_that_it_is_not_supported() {
        let operations = verbs_operations();
        for thing in ALL {
            set_errno(0);
            let error = || std::io::Error::last_os_error().raw_os_error();
            // SAFETY: the functions read no arguments.
            unsafe {
                match thing.entry {
                    UnsupportedCall::Status(function) => assert_eq!(function(), EOPNOTSUPP, "{}", thing.name),
                    UnsupportedCall::Number(function) => {
                        assert_eq!((function(), error()), (-1, Some(EOPNOTSUPP)), "{}", thing.name);
                    }
                    UnsupportedCall::Pointer(function) => {
                        let refused = function().is_null() && error() == Some(EOPNOTSUPP);
                        assert!(refused, "{}", thing.name);
                    }
                    UnsupportedCall::Nothing(function) => function(),
                    UnsupportedCall::Operation => {
                        assert!(is_absent(&operations, thing.name), "{} is there", thing.name)
                    }
                    // Need objects: tests/c/refused.c.
                    UnsupportedCall::Function | UnsupportedCall::Request => {}
                }
            }
        }
    }

    /// What is not built is told once, and nothing else is said to be so.
    #[test]
    fn the_documents_have_exactly_this_list() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMPATIBILITY.md");
        let page = std::fs::read_to_string(page).unwrap();
        let list = list();
        assert!(page.contains(&list), "docs/COMPATIBILITY.md must have this table:\n\n{list}");
        let mut names: Vec<&str> = ALL.iter().map(|thing| thing.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn types_and_opcodes_that_do_not_exist_are_invalid() {
        assert_eq!(queue_pair_type(IBV_QPT_RAW_PACKET), Errno(EOPNOTSUPP));
        assert_eq!(queue_pair_type(77), Errno(libc::EINVAL));
        assert_eq!(send_opcode(IBV_WR_TSO), Errno(EOPNOTSUPP));
        assert_eq!(send_opcode(IBV_WR_FLUSH), Errno(libc::EINVAL));
        assert_eq!(send_opcode(77), Errno(libc::EINVAL));
    }

    #[test]
    fn each_type_has_its_operations() {
        let operations = [QueuePairType::Ud, QueuePairType::Uc, QueuePairType::Rc].map(operations_of);
        assert_eq!(operations, [0x0C, 0x18F, 0x1BFF]);
    }
}
