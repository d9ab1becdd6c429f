//! Commands and answers of `/dev/infiniband/rdma_cm`, as the kernel's `rdma_user_cm.h` has them (version 4 of the interface).

use std::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers of the commands.
pub mod command {
    pub const CREATE_ID: u32 = 0;
    pub const DESTROY_ID: u32 = 1;
    pub const BIND_IP: u32 = 2;
    pub const RESOLVE_IP: u32 = 3;
    pub const RESOLVE_ROUTE: u32 = 4;
    pub const QUERY_ROUTE: u32 = 5;
    pub const CONNECT: u32 = 6;
    pub const LISTEN: u32 = 7;
    pub const ACCEPT: u32 = 8;
    pub const REJECT: u32 = 9;
    pub const DISCONNECT: u32 = 10;
    pub const INIT_QP_ATTR: u32 = 11;
    pub const GET_EVENT: u32 = 12;
    pub const SET_OPTION: u32 = 14;
    pub const NOTIFY: u32 = 15;
    pub const JOIN_IP_MCAST: u32 = 16;
    pub const LEAVE_MCAST: u32 = 17;
    pub const MIGRATE_ID: u32 = 18;
    pub const JOIN_MCAST: u32 = 22;
    /// That of Linux 6.18 and later, by which librdmacm and its programs write events to themselves.
    pub const WRITE_CM_EVENT: u32 = 24;
    /// Numbers after it are none.
    pub const LAST: u32 = WRITE_CM_EVENT;

    /// Bytes that a program must have room for at the address of the answer.
    pub fn least_answer(number: u32) -> u16 {
        match number {
            CREATE_ID | DESTROY_ID | JOIN_IP_MCAST | JOIN_MCAST | LEAVE_MCAST => 4,
            // Without what has been added since.
            QUERY_ROUTE => 200,
            GET_EVENT => 324,
            INIT_QP_ATTR => 144,
            _ => 0,
        }
    }
}

/// Numbers of the events (`enum rdma_cm_event_type`).
pub mod event {
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const UNREACHABLE: u32 = 7;
    pub const REJECTED: u32 = 8;
    pub const ESTABLISHED: u32 = 9;
    pub const DISCONNECTED: u32 = 10;
    pub const DEVICE_REMOVAL: u32 = 11;
    pub const MULTICAST_JOIN: u32 = 12;
    pub const TIMEWAIT_EXIT: u32 = 15;
    pub const USER: u32 = 18;
    pub const INTERNAL: u32 = 19;
}

/// Options of an ID (`RDMA_OPTION_ID_*`).
pub mod option {
    pub const LEVEL_ID: u32 = 0;
    pub const TOS: u32 = 0;
    pub const REUSEADDR: u32 = 1;
    pub const AFONLY: u32 = 2;
    pub const ACK_TIMEOUT: u32 = 3;
    pub const LEVEL_IB: u32 = 1;
    pub const IB_PATH: u32 = 1;
}

/// As what a member joins a group (`RDMA_MC_JOIN_FLAG_*`).
pub mod join {
    pub const FULL_MEMBER: u16 = 0;
    pub const SEND_ONLY: u16 = 1;
}

/// In front of each command.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Header {
    pub command: u32,
    /// Bytes of the command after this.
    pub input: u16,
    /// Bytes that the program has room for at the address of the answer.
    pub output: u16,
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
            #[repr(C)]
            pub struct $name {
                $(pub $field: $type,)*
            }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

structures! {
    /// `struct sockaddr_in6`, or a `struct sockaddr_in` in its first bytes.
    Address = 28 { family: u16, port: [u8; 2], rest: [u8; 24], }
    CreateId = 24 { uid: u64, response: u64, space: u16, queue_pair_type: u8, reserved: [u8; 5], }
    IdAnswer = 4 { id: u32, }
    /// `DESTROY_ID`, `QUERY_ROUTE`: an answer about an ID.
    AskId = 16 { response: u64, id: u32, reserved: u32, }
    EventsReported = 4 { count: u32, }
    BindIp = 40 { response: u64, address: Address, id: u32, }
    ResolveIp = 64 { source: Address, destination: Address, id: u32, timeout: u32, }
    ResolveRoute = 8 { id: u32, timeout: u32, }
    PathRecord = 64 {
        destination_gid: [u8; 16], source_gid: [u8; 16], lids: [u16; 2], raw_traffic: u32, flow_label: [u8; 4],
        reversible: u32, mtu: u32, partition: [u8; 2], hop_limit: u8, traffic_class: u8, number_of_paths: u8,
        service_level: u8, mtu_selector: u8, rate_selector: u8, rate: u8, lifetime_selector: u8, lifetime: u8,
        preference: u8,
    }
    RouteAnswer = 208 {
        node_guid: [u8; 8], paths: [PathRecord; 2], source: Address, destination: Address, number_of_paths: u32,
        port: u8, reserved: [u8; 3], device_index: u32, reserved1: u32,
    }
    ConnectionParam = 272 {
        queue_pair: u32, queue_key: u32, private_data: [u8; 256], private_data_length: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8, rnr_retry_count: u8,
        valid: u8,
    }
    AddressVector = 32 {
        destination_gid: [u8; 16], flow_label: u32, source_gid_index: u8, hop_limit: u8, traffic_class: u8,
        reserved: u8, destination_lid: u16, service_level: u8, source_path_bits: u8, static_rate: u8,
        is_global: u8, port: u8, reserved1: u8,
    }
    DatagramParam = 304 {
        queue_pair: u32, queue_key: u32, address: AddressVector, private_data: [u8; 256], private_data_length: u8,
        reserved: [u8; 7],
    }
    Connect = 288 { param: ConnectionParam, id: u32, reserved: u32, ece_vendor: u32, ece_options: u32, }
    Listen = 8 { id: u32, backlog: i32, }
    Accept = 296 {
        uid: u64, param: ConnectionParam, id: u32, reserved: u32, ece_vendor: u32, ece_options: u32,
    }
    Reject = 264 { id: u32, private_data_length: u8, reason: u8, reserved: [u8; 2], private_data: [u8; 256], }
    Id = 4 { id: u32, }
    InitQpAttr = 16 { response: u64, id: u32, state: u32, }
    Notify = 8 { id: u32, event: u32, }
    GetEvent = 8 { response: u64, }
    SetOption = 24 { value: u64, id: u32, level: u32, name: u32, length: u32, }
    WriteEvent = 320 { id: u32, reserved: u32, event: u32, status: i32, param: [u8; 304], }
    MigrateId = 16 { response: u64, id: u32, descriptor: i32, }
    JoinIpMcast = 48 { response: u64, uid: u64, address: Address, id: u32, }
    JoinMcast = 152 {
        response: u64, uid: u64, id: u32, address_length: u16, flags: u16, address: Address, rest: [u8; 100],
    }
    EventAnswer = 336 {
        uid: u64, id: u32, event: u32, status: i32, param: [u8; 304], reserved: u32, ece_vendor: u32,
        ece_options: u32,
    }
    QpAttributes = 144 {
        mask: u32, state: u32, current_state: u32, path_mtu: u32, migration: u32, queue_key: u32,
        receive_psn: u32, send_psn: u32, destination: u32, access: u32, address: AddressVector,
        alternate: AddressVector, capabilities: [u32; 5], pkey_index: u16, alternate_pkey_index: u16,
        sqd_notify: u8, draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port: u8,
        timeout: u8, retry_count: u8, rnr_retry: u8, alternate_port: u8, alternate_timeout: u8, reserved: [u8; 5],
    }
}
