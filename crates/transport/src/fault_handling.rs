//! What becomes of packets that find a page absent.

/// What a queue pair does with a packet whose access has to wait for a page.
///
/// On a link that loses nothing packets are always kept: nobody would send them again in time. A READ's responses whose page
/// is absent at the responder (a fault at the source, PART-9) wait there in every mode: there is no packet to drop, and
/// nothing of it takes memory. So does a request that the requester itself cannot read yet. UC and UD have no repetition: what
/// is dropped there is lost, in every mode but `Stash`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Hash, strum::Display, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownFaultHandling, parse_err_fn = unknown)]
pub enum FaultHandling {
    /// It is kept, in bounded memory, and executed when the page is there. What finds no room is dropped, and asked for by
    /// RESUME once the kept ones are executed.
    #[default]
    Stash,
    /// It is dropped. HOLD tells the source so, and RESUME tells it when the page is there; the source's timer runs on, so that
    /// it may send again while other pages still come in (PART, sections 3.2 and 3.3). Towards a peer that knows no RESUME: as `Rnr`.
    Err,
    /// As `Err`, but HOLD has the source wait for RESUME (no timeouts: PART, section 6.1.2). The acknowledgement timeout stays, a
    /// second at most: the peer may have ended, and RESUME may be lost.
    #[strum(serialize = "err,nto")]
    ErrWithoutTimeout,
    /// It is dropped with an RNR NAK, after whose time (`min_rnr_timer`) the source comes again: what standard peers understand.
    /// An `rnr_retry` of 7 at the peer is without end; with any other the peer counts, and may give up.
    Rnr,
    /// It is dropped in silence: the source's timer has it sent again. What already waits for its turn stays, without a word.
    Timeout,
}

impl FaultHandling {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Stash, Self::Err, Self::ErrWithoutTimeout, Self::Rnr, Self::Timeout];

    /// The name by which it is chosen and reported.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A name that is none of [`FaultHandling`]'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be stash, err, err,nto, rnr or timeout")]
pub struct UnknownFaultHandling(String);

fn unknown(name: &str) -> UnknownFaultHandling {
    UnknownFaultHandling(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for handling in FaultHandling::ALL {
            assert_eq!(handling.name().parse(), Ok(handling));
        }
        for wrong in ["", "nto", "err, nto", "ERR"] {
            let told = wrong.parse::<FaultHandling>().unwrap_err().to_string();
            assert!(told.contains(&format!("'{wrong}'")) && told.contains("err,nto"), "{told}");
        }
    }
}
