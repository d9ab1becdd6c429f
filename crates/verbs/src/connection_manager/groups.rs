//! Multicast groups of IDs (`JOIN_IP_MCAST`, `JOIN_MCAST`, `LEAVE_MCAST`). To join announces how the group is reached; what is sent to it comes
//! in as soon as a queue pair is attached (`ibv_attach_mcast(3)`), which librdmacm does itself.

use super::abi::{
    AddressVector, AskId, DatagramParam, EventAnswer, EventsReported, IdAnswer, JoinIpMcast, JoinMcast,
    event, join,
};
use super::addresses;
use super::channel::QueuedEvent;
use super::commands::{Call, HOP_LIMIT};
use super::qp_attributes::{PORT, UDP_QKEY};
use super::service::JoinedGroup;
use crate::boundary::{Errno, Result};
use libc::{EINVAL, ENOENT};
use pagewire_cm::{EndpointState, gid};
use pagewire_nic::GROUP_QUEUE_PAIR;
use std::net::{IpAddr, SocketAddr};
use zerocopy::{FromZeros, IntoBytes};

impl Call<'_> {
    pub fn join_ip_mcast(&mut self) -> Result<()> {
        let command: JoinIpMcast = self.written.read()?;
        let group = addresses::read(&command.address)?;
        self.join(command.id, command.uid, group, command.response)
    }

    pub fn join_mcast(&mut self) -> Result<()> {
        let command: JoinMcast = self.written.read()?;
        if command.flags != join::FULL_MEMBER && command.flags != join::SEND_ONLY {
            return Err(Errno(EINVAL));
        }
        let group = addresses::read(&command.address)?;
        self.join(command.id, command.uid, group, command.response)
    }

    fn join(&mut self, number: u32, uid: u64, group: Option<SocketAddr>, response: u64) -> Result<()> {
        let group = group.map(|group| group.ip()).filter(IpAddr::is_multicast).ok_or(Errno(EINVAL))?;
        let endpoint = self.id(number)?.endpoint;
        let is_bound = self.service.manager.state(endpoint) == Some(EndpointState::AddressBound);
        let id = self.id(number)?;
        let (Some(source), Some(local)) = (id.source, &id.local) else { return Err(Errno(EINVAL)) };
        if !is_bound || !id.is_datagram() || source.is_ipv4() != group.is_ipv4() {
            return Err(Errno(EINVAL));
        }
        let address = AddressVector {
            destination_gid: gid(group),
            source_gid_index: local.gid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: id.options.traffic_class,
            is_global: 1,
            port: PORT,
            ..AddressVector::new_zeroed()
        };
        let channel = id.channel;
        let joined = self.service.groups.insert(JoinedGroup { id: number, reported: 0 }) as u32;
        if let Err(error) = self.written.answer(response, IdAnswer { id: joined }.as_bytes()) {
            self.service.groups.remove(joined as usize);
            return Err(error);
        }
        let param = DatagramParam {
            queue_pair: GROUP_QUEUE_PAIR,
            queue_key: UDP_QKEY,
            address,
            ..DatagramParam::new_zeroed()
        };
        let mut answer = EventAnswer::new_zeroed();
        (answer.uid, answer.id, answer.event) = (uid, joined, event::MULTICAST_JOIN);
        answer.param.copy_from_slice(param.as_bytes());
        if let Some(channel) = self.service.channels.get_mut(&channel) {
            channel.push(QueuedEvent { counted_for: number, group: Some(joined), request: None, answer });
        }
        Ok(())
    }

    pub fn leave_mcast(&mut self) -> Result<()> {
        let command: AskId = self.written.read()?;
        let joined = self.service.groups.get(command.id as usize).ok_or(Errno(ENOENT))?;
        let id = joined.id;
        let channel = self.id(id)?.channel;
        let left = self.service.groups.remove(command.id as usize);
        if let Some(channel) = self.service.channels.get_mut(&channel) {
            channel.take(|event| event.group == Some(command.id));
            channel.unmark(self.written.descriptor);
        }
        self.written.answer(command.response, EventsReported { count: left.reported }.as_bytes())
    }
}
