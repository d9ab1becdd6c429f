//! Names of enumeration values. Programs print them and scripts match them, so that the texts are those of rdma-core.

use crate::abi::*;
use std::ffi::{CStr, c_char};

/// `ibv_node_type_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    match node_type {
        IBV_NODE_CA => c"InfiniBand channel adapter",
        IBV_NODE_SWITCH => c"InfiniBand switch",
        IBV_NODE_ROUTER => c"InfiniBand router",
        IBV_NODE_RNIC => c"iWARP NIC",
        IBV_NODE_USNIC => c"usNIC",
        IBV_NODE_USNIC_UDP => c"usNIC UDP",
        IBV_NODE_UNSPECIFIED => c"unspecified",
        _ => c"unknown",
    }
    .as_ptr()
}

/// `ibv_port_state_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    match port_state {
        IBV_PORT_NOP => c"no state change (NOP)",
        IBV_PORT_DOWN => c"down",
        IBV_PORT_INIT => c"init",
        IBV_PORT_ARMED => c"armed",
        IBV_PORT_ACTIVE => c"active",
        IBV_PORT_ACTIVE_DEFER => c"active defer",
        _ => c"unknown",
    }
    .as_ptr()
}

/// By `enum ibv_event_type`.
const EVENT_TYPES: [&CStr; 21] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"Device link speed change",
];

/// By `enum ibv_wr_opcode`.
const WORK_REQUEST_OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

/// By `enum ibv_wc_status`.
const COMPLETION_STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// `ibv_event_type_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    EVENT_TYPES.get(event as usize).copied().unwrap_or(c"unknown").as_ptr()
}

/// The name of a completion's status.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    COMPLETION_STATUSES.get(status as usize).copied().unwrap_or(c"unknown").as_ptr()
}

/// `ibv_wr_opcode_str`, by way of `c/private.c`: the name of a send request's operation.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_wr_opcode_str(opcode: ibv_wr_opcode) -> *const c_char {
    WORK_REQUEST_OPCODES.get(opcode as usize).copied().unwrap_or(c"unknown").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> &'static str {
        // SAFETY: the functions under test give NUL-terminated constants.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap()
    }

    #[test]
    fn values_and_texts_agree() {
        assert_eq!(text(ibv_port_state_str(IBV_PORT_ACTIVE)), "active");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR)), "transport retry counter exceeded");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE)), "TM software rendezvous");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_SRQ_LIMIT_REACHED)), "SRQ limit reached");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_WQ_FATAL)), "WQ fatal");
        assert_eq!(text(ibv_node_type_str(IBV_NODE_UNSPECIFIED)), "unspecified");
        assert_eq!(text(pagewire_wr_opcode_str(IBV_WR_DRIVER1)), "driver1");
        assert_eq!(text(pagewire_wr_opcode_str(IBV_WR_ATOMIC_WRITE)), "atomic-write");
    }

    #[test]
    fn values_that_do_not_exist_are_unknown() {
        for value in [24, 255, u32::MAX] {
            assert_eq!(text(ibv_wc_status_str(value)), "unknown");
            assert_eq!(text(ibv_event_type_str(value)), "unknown");
            assert_eq!(text(pagewire_wr_opcode_str(value)), "unknown");
            assert_eq!(text(ibv_port_state_str(value)), "unknown");
        }
        assert_eq!(text(ibv_node_type_str(-1)), "unknown");
    }
}
