//! The connection manager: which message of communication management follows which (InfiniBand specification, volume 1, chapter 12), and what
//! a program that uses librdmacm hears of it (`rdma_cm(7)`).
//!
//! Datagrams, calls and time go in. Datagrams and events come out. Nothing here knows a socket, a port table or a clock.
//!
//! [`ConnectionManager`] has the endpoints of a process: begin there. [`connection`] is the state machine of one connection, and
//! [`service_request`] that of one request for the queue pair of a UD service.
#![forbid(unsafe_code)]

mod active_request;
pub mod connection;
mod effects;
mod endpoint;
mod error;
mod event;
mod exchange;
mod incoming;
mod inquiry;
pub mod limits;
mod manager;
mod parameters;
mod refusals;
mod repetition;
mod report;
pub mod service_request;

pub use endpoint::{EndpointId, EndpointState, PortSpace, Route, gid};
pub use error::{Error, Result};
pub use event::{CmEvent, EventKind, PrivateData};
pub use incoming::{IncomingDatagram, Origin};
pub use inquiry::ServiceQuery;
pub use manager::{ConnectionManager, LastWords, ManagerSettings, OutgoingDatagram};
pub use parameters::{ConnectionParameters, LocalQueuePair, RemoteParameters};
pub use refusals::{KeptRefusal, Refusal, RefusalCause, RefusalDirection, RefusalLog};
pub use report::{EndpointReport, ListenerReport};
