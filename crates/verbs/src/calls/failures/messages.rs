//! Messages of the connection manager, before they leave.

use crate::calls::MessageFate;
use crate::calls::failures::{apply, decide};
use pagewire_failures::{Action, CmMessageKind, FailureEvent, Point};
use pagewire_wire::cm::CmMessage;
use std::net::IpAddr;
use std::time::Duration;

/// What the rules make of a message to an address.
pub fn fate_of(message: &CmMessage, peer: IpAddr) -> MessageFate {
    let Some(kind) = kind_of(message) else { return MessageFate::Leaves };
    let event = FailureEvent { message: Some(kind), peer: Some(peer), ..FailureEvent::at(Point::Message) };
    match decide(&event).and_then(apply::end_or_stop) {
        Some(Action::Lose) => MessageFate::Lost,
        Some(Action::Reject) => MessageFate::Refused,
        Some(Action::Delay(delay)) => MessageFate::Late(Duration::from_nanos(delay)),
        _ => MessageFate::Leaves,
    }
}

fn kind_of(message: &CmMessage) -> Option<CmMessageKind> {
    Some(match message {
        CmMessage::Req(_) => CmMessageKind::Req,
        CmMessage::Rep(_) => CmMessageKind::Rep,
        CmMessage::Rtu(_) => CmMessageKind::Rtu,
        CmMessage::Rej(_) => CmMessageKind::Rej,
        CmMessage::Dreq(_) => CmMessageKind::Dreq,
        CmMessage::Drep(_) => CmMessageKind::Drep,
        CmMessage::Mra(_) => CmMessageKind::Mra,
        CmMessage::SidrReq(_) => CmMessageKind::SidrReq,
        CmMessage::SidrRep(_) => CmMessageKind::SidrRep,
        // They are Pagewire's own.
        CmMessage::PortQuery(_) | CmMessage::PortAnswer(_) => return None,
    })
}
