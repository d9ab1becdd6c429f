//! Which queue pairs are attached to which multicast groups (`ibv_attach_mcast(3)`).

use crate::types::error::{Error, Result};
use crate::types::limits::{MAX_GROUP_MEMBERS, MAX_GROUPS};
use pagewire_fabric::{Fabric, GroupMembership};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A queue pair of a group, and what has datagrams of the group come in at its interface.
struct Member {
    queue_pair: u32,
    interface: u32,
    membership: Arc<GroupMembership>,
}

/// The groups of a process.
#[derive(Default)]
pub struct Groups(RwLock<HashMap<IpAddr, Vec<Member>>>);

impl Groups {
    /// Attaches a queue pair of the device with an interface. Attached already, it stays so.
    ///
    /// # Errors
    /// The kernel's: it lets a process join no more groups, or does not deliver to it.
    pub fn attach<F: Fabric>(
        &self,
        fabric: &F,
        group: IpAddr,
        queue_pair: u32,
        interface: u32,
    ) -> Result<()> {
        let mut groups = self.0.write();
        if !groups.contains_key(&group) && groups.len() >= MAX_GROUPS {
            return Err(Error::NoMemory("multicast groups"));
        }
        let members = groups.entry(group).or_default();
        if members.iter().any(|member| member.queue_pair == queue_pair) {
            return Ok(());
        }
        if members.len() >= MAX_GROUP_MEMBERS {
            return Err(Error::NoMemory("queue pairs of a multicast group"));
        }
        let there = members.iter().find(|member| member.interface == interface);
        let membership = match there.map(|member| member.membership.clone()) {
            Some(membership) => membership,
            None => match fabric.join_group(group, interface) {
                Ok(membership) => Arc::new(membership),
                Err(error) => {
                    if members.is_empty() {
                        groups.remove(&group);
                    }
                    return Err(error.into());
                }
            },
        };
        members.push(Member { queue_pair, interface, membership });
        Ok(())
    }

    /// Detaches a queue pair.
    ///
    /// # Errors
    /// `InvalidArgument`: it is not attached.
    pub fn detach(&self, group: IpAddr, queue_pair: u32) -> Result<()> {
        let mut groups = self.0.write();
        let members = groups.get_mut(&group);
        let members = members.ok_or(Error::InvalidArgument("the queue pair is not attached to the group"))?;
        let at = members.iter().position(|member| member.queue_pair == queue_pair);
        members.remove(at.ok_or(Error::InvalidArgument("the queue pair is not attached to the group"))?);
        if members.is_empty() {
            groups.remove(&group);
        }
        Ok(())
    }

    /// Whether a queue pair is attached to a group.
    pub fn has(&self, queue_pair: u32) -> bool {
        self.0.read().values().flatten().any(|member| member.queue_pair == queue_pair)
    }

    /// The queue pairs of a group.
    pub fn members(&self, group: IpAddr) -> SmallVec<[u32; 8]> {
        let groups = self.0.read();
        groups.get(&group).into_iter().flatten().map(|member| member.queue_pair).collect()
    }
}
