//! The commands that a program's librdmacm writes to its channel, each as the kernel's `ucma.c` answers it.

use super::abi::{
    Accept, AskId, BindIp, Connect, ConnectionParam, CreateId, EventAnswer, EventsReported, GetEvent, Header,
    Id, IdAnswer, InitQpAttr, Listen, MigrateId, Notify, PathRecord, Reject, ResolveIp, ResolveRoute,
    RouteAnswer, SetOption, WriteEvent, command, event, option,
};
use super::addresses::{self, LocalDevice};
use super::channel::{ChannelKey, QueuedEvent};
use super::ports::PortAddress;
use super::qp_attributes::{QpSituation, UDP_QKEY, attributes};
use super::service::{CmId, CmService, IdOptions, queue_pair_type, with_service};
use super::user_memory;
use crate::boundary::{Errno, Result};
use crate::limits::MAX_WAITING_EVENTS;
use libc::{EAGAIN, EBADF, EINVAL, EISCONN, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENXIO};
use pagewire_cm::{
    ConnectionParameters, EndpointState, Error, LocalQueuePair, PortSpace, Route, gid, limits,
};
use pagewire_failures::Verb;
use pagewire_wire::bth::DEFAULT_PARTITION;
use rustix::fs::{OFlags, fcntl_getfl};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The longest of all: five bits.
const LONGEST_ACK_TIMEOUT: u8 = 31;
/// `IBV_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: u32 = 4;
/// Q_Key, where the program has given none.
const NO_QKEY: u32 = 0;
/// Local ACK timeout of a queue pair where the program asks for none: 2.1 s.
const ACK_TIMEOUT: u8 = 19;
pub const HOP_LIMIT: u8 = 64;
/// A path has an exact MTU, rate and lifetime (`IB_SA_EQ`).
const EXACTLY: u8 = 2;

/// A command, and who writes it.
pub struct Written<'a> {
    pub channel: ChannelKey,
    pub descriptor: BorrowedFd<'a>,
    pub header: Header,
    pub body: &'a [u8],
}

/// Bytes of an event that a program gives it.
const USER_BYTES: usize = 8;
/// Bytes of the command that writes one, as far as they are needed.
const WRITTEN_EVENT: usize = 16 + USER_BYTES;

/// How far a command has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    Complete,
    /// It is to be executed again as soon as the descriptor is readable.
    WaitsForEvent,
}

/// The function of librdmacm that writes a command.
pub fn function_of(command: u32) -> Option<Verb> {
    Some(match command {
        command::CREATE_ID => Verb::RdmaCreateId,
        command::DESTROY_ID => Verb::RdmaDestroyId,
        command::BIND_IP => Verb::RdmaBindAddr,
        command::RESOLVE_IP => Verb::RdmaResolveAddr,
        command::RESOLVE_ROUTE => Verb::RdmaResolveRoute,
        command::QUERY_ROUTE => Verb::RdmaQueryRoute,
        command::CONNECT => Verb::RdmaConnect,
        command::LISTEN => Verb::RdmaListen,
        command::ACCEPT => Verb::RdmaAccept,
        command::REJECT => Verb::RdmaReject,
        command::DISCONNECT => Verb::RdmaDisconnect,
        command::INIT_QP_ATTR => Verb::RdmaInitQpAttr,
        command::GET_EVENT => Verb::RdmaGetCmEvent,
        command::SET_OPTION => Verb::RdmaSetOption,
        command::NOTIFY => Verb::RdmaNotify,
        command::JOIN_IP_MCAST | command::JOIN_MCAST => Verb::RdmaJoinMulticast,
        command::LEAVE_MCAST => Verb::RdmaLeaveMulticast,
        command::MIGRATE_ID => Verb::RdmaMigrateId,
        command::WRITE_CM_EVENT => Verb::RdmaWriteCmEvent,
        _ => return None,
    })
}

/// Does what a command says.
///
/// # Errors
/// As the kernel's: EINVAL, ENOENT (there is no such ID on this channel), and those of each command.
pub fn execute(written: &Written<'_>) -> Result<Execution> {
    if written.header.output < command::least_answer(written.header.command) {
        return Err(Errno(ENOSPC));
    }
    if written.header.command == command::GET_EVENT {
        return get_event(written);
    }
    with_service(|service| {
        // A forked child has a connection manager of its own, once it has opened a channel.
        if !service.channels.contains_key(&written.channel) {
            return Err(Errno(EBADF));
        }
        let mut call = Call { service, written };
        match written.header.command {
            command::CREATE_ID => call.create_id(),
            command::DESTROY_ID => call.destroy_id(),
            command::BIND_IP => call.bind_ip(),
            command::RESOLVE_IP => call.resolve_ip(),
            command::RESOLVE_ROUTE => call.resolve_route(),
            command::QUERY_ROUTE => call.query_route(),
            command::CONNECT => call.connect(),
            command::LISTEN => call.listen(),
            command::ACCEPT => call.accept(),
            command::REJECT => call.reject(),
            command::DISCONNECT => call.disconnect(),
            command::INIT_QP_ATTR => call.init_qp_attr(),
            command::SET_OPTION => call.set_option(),
            command::NOTIFY => call.notify(),
            command::JOIN_IP_MCAST => call.join_ip_mcast(),
            command::JOIN_MCAST => call.join_mcast(),
            command::LEAVE_MCAST => call.leave_mcast(),
            command::MIGRATE_ID => call.migrate_id(),
            command::WRITE_CM_EVENT => call.write_event(),
            // librdmacm asks for addresses of InfiniBand first, and takes the commands for IP where there are none.
            number if number > command::LAST => Err(Errno(EINVAL)),
            _ => Err(Errno(ENOSYS)),
        }
    })
    .unwrap_or(Err(Errno(EBADF)))
    .map(|()| Execution::Complete)
}

/// Takes an event, if there is one. Else the caller waits, unless the descriptor says not to.
fn get_event(written: &Written<'_>) -> Result<Execution> {
    let command: GetEvent = written.read()?;
    // Another thread may close the descriptor from here on.
    let waits = !fcntl_getfl(written.descriptor)?.contains(OFlags::NONBLOCK);
    let taken = with_service(|service| {
        let is_own = service.channels.contains_key(&written.channel);
        is_own.then(|| service.take_event(written.channel, written.descriptor))
    });
    let Some(taken) = taken.flatten() else {
        // Of a channel that another thread has closed since the call began the kernel's command still waits.
        let is_closed = ChannelKey::of(written.descriptor) != Some(written.channel);
        return if is_closed && waits { Ok(Execution::WaitsForEvent) } else { Err(Errno(EBADF)) };
    };
    if let Some(event) = taken {
        let answered = written.answer(command.response, event.answer.as_bytes());
        if answered.is_err() {
            with_service(|service| service.put_back(written.channel, event));
        }
        return answered.map(|()| Execution::Complete);
    }
    if waits { Ok(Execution::WaitsForEvent) } else { Err(Errno(EAGAIN)) }
}

impl Written<'_> {
    /// The command's body; a shorter one is of an older library, or wrong.
    pub fn read<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T> {
        T::read_from_prefix(self.body).map(|(body, _)| body).map_err(|_| Errno(EINVAL))
    }

    /// The beginning of a command that has grown since, with zeros for the rest; `least` bytes have to be there.
    fn read_grown<T: FromBytes + IntoBytes + KnownLayout + Immutable>(&self, least: usize) -> Result<T> {
        let mut body = T::new_zeroed();
        let bytes = body.as_mut_bytes();
        let length = self.body.len().min(bytes.len());
        if length < least {
            return Err(Errno(EINVAL));
        }
        bytes[..length].copy_from_slice(&self.body[..length]);
        Ok(body)
    }

    /// Writes an answer, as much of it as the program has room for.
    pub fn answer(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let length = bytes.len().min(usize::from(self.header.output));
        user_memory::write(address, &bytes[..length])
    }
}

impl CmService {
    /// The next event of a channel.
    fn take_event(&mut self, channel: ChannelKey, descriptor: BorrowedFd<'_>) -> Option<QueuedEvent> {
        let event = self.channels.get_mut(&channel)?.pop(descriptor)?;
        if let Some(reported) = self.reported(&event) {
            *reported += 1;
        }
        if let Some(request) = event.request.and_then(|request| self.ids.get(request as usize)) {
            self.manager.request_delivered(request.endpoint);
        }
        Some(event)
    }

    /// An event that could not be told stays the next one.
    fn put_back(&mut self, channel: ChannelKey, event: QueuedEvent) {
        if let Some(reported) = self.reported(&event) {
            *reported -= 1;
        }
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.put_back(event);
        }
    }

    /// How many events the program has heard of the ID, or the membership, that an event is about.
    fn reported(&mut self, event: &QueuedEvent) -> Option<&mut u32> {
        match event.group {
            Some(group) => self.groups.get_mut(group as usize).map(|joined| &mut joined.reported),
            None => self.ids.get_mut(event.counted_for as usize).map(|id| &mut id.reported),
        }
    }
}

/// A command that is being executed.
pub struct Call<'a> {
    pub service: &'a mut CmService,
    pub written: &'a Written<'a>,
}

impl Call<'_> {
    /// An ID of the program, on this channel, whose device is there (else ENXIO).
    pub fn id(&mut self, number: u32) -> Result<&mut CmId> {
        let id = self.any_id(number)?;
        if id.is_removed { Err(Errno(ENXIO)) } else { Ok(id) }
    }

    /// An ID of the program, on this channel.
    fn any_id(&mut self, number: u32) -> Result<&mut CmId> {
        let channel = self.written.channel;
        let id = self.service.ids.get_mut(number as usize).ok_or(Errno(ENOENT))?;
        if id.channel == channel { Ok(id) } else { Err(Errno(EINVAL)) }
    }

    fn create_id(&mut self) -> Result<()> {
        let command: CreateId = self.written.read()?;
        let space = PortSpace::of_number(command.space).ok_or(Errno(EINVAL))?;
        let endpoint = self.service.manager.create(space).map_err(errno)?;
        let number = self.service.add_id(CmId {
            uid: command.uid,
            channel: self.written.channel,
            endpoint,
            space,
            queue_pair_type: queue_pair_type::of_space(space, command.queue_pair_type),
            source: None,
            destination: None,
            local: None,
            is_route_resolved: false,
            is_removed: false,
            reported: 0,
            port: None,
            options: IdOptions::default(),
        });
        let answered = self.written.answer(command.response, IdAnswer { id: number }.as_bytes());
        if answered.is_err() {
            self.service.destroy_id(number);
        }
        answered
    }

    fn destroy_id(&mut self) -> Result<()> {
        let command: AskId = self.written.read()?;
        self.any_id(command.id)?;
        let count = self.service.destroy_id(command.id);
        if let Some(channel) = self.service.channels.get_mut(&self.written.channel) {
            channel.unmark(self.written.descriptor);
        }
        self.written.answer(command.response, EventsReported { count }.as_bytes())
    }

    fn bind_ip(&mut self) -> Result<()> {
        let command: BindIp = self.written.read()?;
        let address = addresses::read(&command.address)?.ok_or(Errno(EINVAL))?;
        self.bind(command.id, address, None)
    }

    /// `peer`: to which the ID is about to connect.
    fn bind(&mut self, number: u32, address: SocketAddr, peer: Option<SocketAddr>) -> Result<()> {
        let id = self.id(number)?;
        if id.source.is_some() {
            return Err(Errno(EINVAL));
        }
        let (space, endpoint) = (id.space.number(), id.endpoint);
        let at = PortAddress {
            address: address.ip(),
            is_shared: id.options.is_address_shared,
            is_family_only: id.options.is_family_only || address.is_ipv4(),
        };
        addresses::check_scope(&address)?;
        let local = addresses::own_device(address.ip())?;
        let port = match peer {
            Some(peer) if address.port() == 0 => {
                self.service.ports.bind_connecting(number, space, at, peer)?
            }
            _ => self.service.ports.bind(number, (space, address.port()), at)?,
        };
        let address = addresses::with_port(address.ip(), port.port, local.as_ref());
        let is_bound = self.service.manager.bind(endpoint, address).map_err(errno);
        if let Err(error) = is_bound.and_then(|()| self.service.watch_port(space, &port)) {
            drop(port);
            self.service.ports.release(number);
            return Err(error);
        }
        let id = self.id(number)?;
        (id.source, id.port, id.local) = (Some(address), Some(port), local);
        Ok(())
    }

    fn resolve_ip(&mut self) -> Result<()> {
        let command: ResolveIp = self.written.read()?;
        let destination = addresses::read(&command.destination)?.ok_or(Errno(EINVAL))?;
        let given = addresses::read(&command.source)?;
        let id = self.id(command.id)?;
        let (endpoint, has_peer, bound) = (id.endpoint, id.destination.is_some(), id.source);
        let state = self.service.manager.state(endpoint);
        if has_peer || !matches!(state, Some(EndpointState::Idle | EndpointState::AddressBound)) {
            return Err(Errno(EINVAL));
        }
        let source = bound.or(given);
        let (local, own, peer) = addresses::resolve(source.map(|source| source.ip()), &destination)?;
        if bound.is_none() {
            let port = given.map_or(0, |given| given.port());
            let peer = SocketAddr::new(peer, destination.port());
            self.bind(command.id, addresses::with_port(own, port, Some(&local)), Some(peer))?;
        }
        let id = self.id(command.id)?;
        let port = id.port.as_ref().map_or(0, |port| port.port);
        id.source = Some(addresses::with_port(own, port, Some(&local)));
        id.destination = Some(addresses::with_port(peer, destination.port(), Some(&local)));
        id.local = Some(local);
        self.service.announce_plain(command.id, event::ADDR_RESOLVED);
        Ok(())
    }

    fn resolve_route(&mut self) -> Result<()> {
        let command: ResolveRoute = self.written.read()?;
        let destination = self.id(command.id)?.destination;
        let is_on_this_host =
            destination.is_some_and(|destination| self.service.is_of_this_host(destination.ip()));
        let takes_standard_answers = is_on_this_host || !self.service.is_standard_port_foreign();
        let id = self.id(command.id)?;
        let (Some(source), Some(destination), Some(local)) = (id.source, destination, &id.local) else {
            return Err(Errno(EINVAL));
        };
        if id.is_route_resolved || command.timeout == 0 {
            return Err(Errno(EINVAL));
        }
        let route = Route {
            source,
            destination,
            mtu: local.device.mtu as u8,
            traffic_class: id.options.traffic_class,
            hop_limit: HOP_LIMIT,
            is_on_this_host,
            takes_standard_answers,
            ack_timeout: id.options.ack_timeout.unwrap_or(ACK_TIMEOUT),
        };
        let endpoint = id.endpoint;
        self.service.manager.resolve(endpoint, route).map_err(errno)?;
        self.id(command.id)?.is_route_resolved = true;
        self.service.announce_plain(command.id, event::ROUTE_RESOLVED);
        Ok(())
    }

    fn query_route(&mut self) -> Result<()> {
        let command: AskId = self.written.read()?;
        let id = self.id(command.id)?;
        let mut answer = RouteAnswer::new_zeroed();
        (answer.source, answer.destination) = (addresses::write(id.source), addresses::write(id.destination));
        if let Some(local) = &id.local {
            answer.node_guid = local.device.guid.to_be_bytes();
            (answer.port, answer.device_index) = (1, local.device.index);
            if let (true, Some(source), Some(destination)) = (id.is_route_resolved, id.source, id.destination)
            {
                answer.number_of_paths = 1;
                answer.paths[0] =
                    path_record(local, (source.ip(), destination.ip()), id.options.traffic_class);
            }
        }
        self.written.answer(command.response, answer.as_bytes())
    }

    fn connect(&mut self) -> Result<()> {
        // Without what a later version has after it.
        let command: Connect = self.written.read_grown(280)?;
        let now = self.service.now();
        let id = self.id(command.id)?;
        let (endpoint, is_datagram) = (id.endpoint, id.is_datagram());
        let queue_pair = queue_pair_of(id, &command.param);
        if !id.is_route_resolved {
            return Err(Errno(EINVAL));
        }
        let done = if is_datagram {
            self.service.manager.ask_for_service(endpoint, private_data(&command.param), now)
        } else {
            self.service.manager.connect(endpoint, queue_pair, &parameters(&command.param), now)
        };
        done.map_err(errno)
    }

    fn listen(&mut self) -> Result<()> {
        let command: Listen = self.written.read()?;
        if self.id(command.id)?.source.is_none() {
            self.bind(command.id, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), None)?;
        }
        let id = self.id(command.id)?;
        let endpoint = id.endpoint;
        if id.destination.is_some()
            || self.service.manager.state(endpoint) != Some(EndpointState::AddressBound)
        {
            return Err(Errno(EINVAL));
        }
        let id = self.id(command.id)?;
        if let Some(port) = id.port.clone() {
            let space = id.space.number();
            let opened = self.service.ports.open(space, &port)?;
            self.service.watch_port(space, &opened)?;
            self.id(command.id)?.port = Some(opened);
        }
        let id = self.id(command.id)?;
        let (endpoint, takes_ipv4) = (id.endpoint, !id.options.is_family_only);
        self.service.ports.end_sharing(command.id)?;
        let backlog = usize::try_from(command.backlog).unwrap_or(0);
        self.service.manager.listen(endpoint, backlog, takes_ipv4).map_err(errno)
    }

    fn accept(&mut self) -> Result<()> {
        let command: Accept = self.written.read_grown(288)?;
        let now = self.service.now();
        let id = self.id(command.id)?;
        let (endpoint, is_datagram) = (id.endpoint, id.is_datagram());
        let queue_pair = queue_pair_of(id, &command.param);
        // Without parameters it is the active side's `rdma_establish`.
        let is_accepting_reply = command.param.valid == 0 && !is_datagram;
        let done = if is_accepting_reply {
            self.service.manager.establish(endpoint)
        } else if is_datagram {
            let key = command.param.queue_key;
            let answer = (command.param.queue_pair, if key == NO_QKEY { UDP_QKEY } else { key });
            self.service.manager.accept_service(endpoint, answer, private_data(&command.param))
        } else {
            self.service.manager.accept(endpoint, queue_pair, &parameters(&command.param), now)
        };
        if let Err(error) = done {
            // As with the kernel the peer learns of it, unless it is too late for a REJ.
            let _is_refused = self.service.manager.reject(endpoint, &[], now);
            return Err(errno(error));
        }
        if command.param.valid != 0 {
            self.id(command.id)?.uid = command.uid;
        }
        Ok(())
    }

    fn reject(&mut self) -> Result<()> {
        let command: Reject = self.written.read()?;
        let now = self.service.now();
        let endpoint = self.id(command.id)?.endpoint;
        let data = &command.private_data[..usize::from(command.private_data_length)];
        self.service.manager.reject(endpoint, data, now).map_err(errno)
    }

    fn disconnect(&mut self) -> Result<()> {
        let command: Id = self.written.read()?;
        let now = self.service.now();
        let id = self.id(command.id)?;
        let (endpoint, has_device) = (id.endpoint, id.local.is_some());
        let has_begun = match self.service.manager.state(endpoint) {
            Some(EndpointState::Connect | EndpointState::Disconnect) => true,
            Some(EndpointState::Listen) => has_device,
            _ => false,
        };
        if !has_begun {
            return Err(Errno(EINVAL));
        }
        // Where nothing is established there is nothing to end, and the kernel says nothing of it.
        let _is_sent = self.service.manager.disconnect(endpoint, now);
        Ok(())
    }

    fn init_qp_attr(&mut self) -> Result<()> {
        let command: InitQpAttr = self.written.read()?;
        self.id(command.id)?;
        let id = self.service.ids.get(command.id as usize).ok_or(Errno(ENOENT))?;
        let situation = QpSituation {
            device: id.local.as_ref().ok_or(Errno(EINVAL))?,
            endpoint: self.service.manager.state(id.endpoint).ok_or(Errno(ENOENT))?,
            connection: self.service.manager.connection(id.endpoint),
            is_unreliable: id.queue_pair_type == queue_pair_type::UC,
            is_datagram: id.is_datagram(),
        };
        let mut found = attributes(&situation, command.state).ok_or(Errno(EINVAL))?;
        if let (true, Some(timeout)) = (found.has_timeout(), id.options.ack_timeout) {
            found.timeout = timeout;
        }
        self.written.answer(command.response, found.as_bytes())
    }

    fn set_option(&mut self) -> Result<()> {
        let command: SetOption = self.written.read()?;
        let endpoint = self.id(command.id)?.endpoint;
        let state = self.service.manager.state(endpoint).ok_or(Errno(ENOENT))?;
        let length = match (command.level, command.name) {
            (option::LEVEL_ID, option::TOS | option::ACK_TIMEOUT) => 1,
            (option::LEVEL_ID, option::REUSEADDR | option::AFONLY) => 4,
            // A path of InfiniBand; none of RoCE is set by this.
            (option::LEVEL_IB, option::IB_PATH) => return Err(Errno(EINVAL)),
            _ => return Err(Errno(ENOSYS)),
        };
        if command.length != length {
            return Err(Errno(EINVAL));
        }
        let mut value = [0; 4];
        user_memory::read(command.value, &mut value[..length as usize])?;
        let id = self.id(command.id)?;
        let is_on = value != [0; 4];
        let is_unresolved = id.destination.is_none() && state != EndpointState::Listen;
        match command.name {
            option::TOS => id.options.traffic_class = value[0],
            option::ACK_TIMEOUT if !id.is_reliable() || value[0] > LONGEST_ACK_TIMEOUT => {
                return Err(Errno(EINVAL));
            }
            option::ACK_TIMEOUT => id.options.ack_timeout = Some(value[0]),
            option::REUSEADDR if is_on && state == EndpointState::Listen => return Err(Errno(EINVAL)),
            option::REUSEADDR if !is_on && state != EndpointState::Idle => return Err(Errno(EINVAL)),
            option::REUSEADDR => id.options.is_address_shared = is_on,
            _ if !is_unresolved => return Err(Errno(EINVAL)),
            _ => id.options.is_family_only = is_on,
        }
        Ok(())
    }

    fn notify(&mut self) -> Result<()> {
        let command: Notify = self.written.read()?;
        let endpoint = self.id(command.id)?.endpoint;
        if command.event != COMMUNICATION_ESTABLISHED {
            return Err(Errno(EINVAL));
        }
        self.service.manager.notify_established(endpoint).map_err(errno)
    }

    /// Queues an event that the program, or its librdmacm, wants to read at an ID: 8 bytes of its own.
    fn write_event(&mut self) -> Result<()> {
        let command: WriteEvent = self.written.read_grown(WRITTEN_EVENT)?;
        let uid = self.any_id(command.id)?.uid;
        if !matches!(command.event, event::USER | event::INTERNAL) {
            return Err(Errno(EINVAL));
        }
        let mut answer = EventAnswer::new_zeroed();
        (answer.uid, answer.id) = (uid, command.id);
        (answer.event, answer.status) = (command.event, command.status);
        answer.param[..USER_BYTES].copy_from_slice(&command.param[..USER_BYTES]);
        let channel = self.service.channels.get_mut(&self.written.channel).ok_or(Errno(EBADF))?;
        if channel.waiting() >= MAX_WAITING_EVENTS {
            return Err(Errno(ENOMEM));
        }
        channel.push(QueuedEvent { counted_for: command.id, group: None, request: None, answer });
        Ok(())
    }

    /// Moves an ID from the channel whose descriptor the command names to the one that it is written to.
    fn migrate_id(&mut self) -> Result<()> {
        let command: MigrateId = self.written.read()?;
        if command.descriptor < 0 {
            return Err(Errno(ENOENT));
        }
        // SAFETY: only asked what it is; a number that is no descriptor is refused (EBADF).
        let former = unsafe { BorrowedFd::borrow_raw(command.descriptor) };
        fcntl_getfl(former).map_err(|_| Errno(ENOENT))?;
        let from = ChannelKey::of(former).filter(|key| self.service.channels.contains_key(key));
        let from = from.ok_or(Errno(EINVAL))?;
        let to = self.written.channel;
        let number = command.id;
        let id = self.service.ids.get_mut(number as usize).ok_or(Errno(ENOENT))?;
        if id.channel != from {
            return Err(Errno(EINVAL));
        }
        id.channel = to;
        let count = id.reported;
        let own = |event: &QueuedEvent| event.counted_for == number;
        let moved = self.service.channels.get_mut(&from).map(|channel| channel.take(own)).unwrap_or_default();
        for event in moved {
            if let Some(request) =
                event.request.and_then(|request| self.service.ids.get_mut(request as usize))
            {
                request.channel = to;
            }
            if let Some(channel) = self.service.channels.get_mut(&to) {
                channel.push(event);
            }
        }
        if former.as_raw_fd() != self.written.descriptor.as_raw_fd() {
            if let Some(channel) = self.service.channels.get_mut(&from) {
                channel.unmark(former);
            }
        }
        self.written.answer(command.response, EventsReported { count }.as_bytes())
    }
}

/// The `errno` of a refusal.
fn errno(error: Error) -> Errno {
    Errno(match error {
        Error::Invalid => EINVAL,
        Error::TooManyEndpoints => ENOMEM,
        Error::AlreadyConnected => EISCONN,
    })
}

fn queue_pair_of(id: &CmId, param: &ConnectionParam) -> LocalQueuePair {
    LocalQueuePair {
        number: param.queue_pair,
        has_srq: param.srq != 0,
        is_unreliable: id.queue_pair_type == queue_pair_type::UC,
    }
}

fn private_data(param: &ConnectionParam) -> &[u8] {
    &param.private_data[..usize::from(param.private_data_length)]
}

fn parameters(param: &ConnectionParam) -> ConnectionParameters {
    ConnectionParameters {
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        private_data: private_data(param).to_vec(),
    }
}

fn path_record(
    local: &LocalDevice,
    (source, destination): (IpAddr, IpAddr),
    traffic_class: u8,
) -> PathRecord {
    PathRecord {
        destination_gid: gid(destination),
        source_gid: gid(source),
        reversible: 1,
        mtu: local.device.mtu as u32,
        partition: DEFAULT_PARTITION.to_be_bytes(),
        hop_limit: HOP_LIMIT,
        traffic_class,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        lifetime_selector: EXACTLY,
        lifetime: limits::PACKET_LIFETIME,
        ..PathRecord::new_zeroed()
    }
}
