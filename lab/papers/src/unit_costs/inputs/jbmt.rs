//! What the model of JBMT reads.

mod costs {
    use super::super::Source::{Other, Text};
    use super::super::{Input, table};
    use crate::figure::Place::{Figure, Table};
    use crate::unit_costs::JbmtCosts;

    const PAPER: JbmtCosts = JbmtCosts::PAPER;

    const fn us(nanoseconds: u64) -> f64 {
        nanoseconds as f64 / 1_000.0
    }

    #[rustfmt::skip]
    table! { JbmtCosts from 32:
        0 section: u64 = Input::new("section", &[PAPER.section as f64], "bytes", Text("4.4"), &[]);
        1 processing: u64 = Input::new("processing of helper threads", &[us(PAPER.processing)], "us", Text("4.1"), &[(Figure(4), "get of 1 byte: processing")]);
        2 message: u64 = Input::new("short VNIC message", &[us(PAPER.message)], "us", Text("4.1"), &[(Figure(4), "get of 1 byte: control message")]);
        3 pin_page: u64 = Input::new("pinning of a page after the first", &[us(PAPER.pin_page)], "us", Other("frrwp, of another testbed"), &[]);
        4 link: u64 = Input::new("link", &[PAPER.link as f64 / 1_000.0], "Gb/s", Text("4"), &[]);
        5 payload: u64 = Input::new("user data of a frame", &[PAPER.payload as f64], "bytes", Other("IEEE 802.3, TCP"), &[]);
        6 overhead: u64 = Input::new("bytes around the user data", &[PAPER.overhead as f64], "bytes", Other("IEEE 802.3, TCP"), &[]);
        7 register: u64 = Input::new("registration", &[us(PAPER.register)], "us", Text("4.3"), &[(Table(1), "registration, any size"), (Table(1), "either of them, less than (section 4.3)")]);
        8 deregister: u64 = Input::new("deregistration", &[us(PAPER.deregister)], "us", Text("4.3"), &[(Table(1), "deregistration, any size"), (Table(1), "either of them, less than (section 4.3)")]);
    }
}

mod limits {
    use super::super::Source::Assumption;
    use super::super::{Input, table};
    use crate::unit_costs::JbmtLimits;

    const PLENTY: JbmtLimits = JbmtLimits::PLENTY;

    #[rustfmt::skip]
    table! { JbmtLimits from 44:
        0 window: usize = Input::new("window of gets", &[PLENTY.window as f64], "gets", Assumption, &[]);
        1 local_credits: usize = Input::new("local credits", &[PLENTY.local_credits as f64], "sections", Assumption, &[]);
        2 control_credits: u64 = Input::new("control credits", &[PLENTY.control_credits as f64], "messages", Assumption, &[]);
        3 remote_credits: usize = Input::new("remote credits", &[PLENTY.remote_credits as f64], "sections", Assumption, &[]);
        4 pinnable: u64 = Input::new("pages that may be pinned", &[PLENTY.pinnable as f64], "pages", Assumption, &[]);
        5 fault_threads: usize = Input::new("fault threads", &[PLENTY.fault_threads as f64], "threads", Assumption, &[]);
        6 fault_portion: u64 = Input::new("pages of a request to a fault thread", &[PLENTY.fault_portion as f64], "pages", Assumption, &[]);
        7 swap_in: u64 = Input::new("page-in", &[PLENTY.swap_in as f64 / 1_000.0], "us", Assumption, &[]);
        8 retry: u64 = Input::new("retry timer", &[PLENTY.retry as f64 / 1_000.0], "us", Assumption, &[]);
    }
}
