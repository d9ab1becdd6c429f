//! The numbers of the papers' texts that belong to figures 9 to 16 and tables 2 to 5 of PART and to figures 4 to 7 and table 1 of
//! JBMT, to FRRWP, REUSE and Active Access, by the lines of the texts: each is that of a claim, and no claim has a number that is not in the text, or a quotient of two
//! that are and that it names. Of table 2 the columns of timesteps a second and of standard deviations are left out.

use Place::{Figure, Panel, Section, Table};
use pagewire_papers::{Claim, Paper, Place, claims};

/// Line of the text, number as the claim has it, and the claim: the number that it states, or part of what it is of.
type Row = (u32, f64, Place, &'static str);

#[test]
fn every_number_of_parts_text_is_that_of_a_claim() {
    each_row_has_a_claim_and_each_claim_a_row(Paper::Part, &part());
}

#[test]
fn every_number_of_jbmts_text_is_that_of_a_claim() {
    each_row_has_a_claim_and_each_claim_a_row(Paper::Jbmt, JBMT);
}

#[test]
fn every_number_of_frrwps_text_is_that_of_a_claim() {
    each_row_has_a_claim_and_each_claim_a_row(Paper::Frrwp, FRRWP);
}

#[test]
fn every_number_of_reuses_text_is_that_of_a_claim() {
    each_row_has_a_claim_and_each_claim_a_row(Paper::Reuse, REUSE);
}

#[test]
fn every_number_of_active_accesss_text_is_that_of_a_claim() {
    each_row_has_a_claim_and_each_claim_a_row(Paper::Active, ACTIVE);
}

fn each_row_has_a_claim_and_each_claim_a_row(paper: Paper, rows: &[Row]) {
    let claims = claims(paper);
    let is_of = |claim: &Claim, (_, _, place, what): &Row| claim.place == *place && claim.what == *what;
    for row in rows {
        let (line, number, ..) = row;
        let claims: Vec<&Claim> = claims.iter().filter(|claim| is_of(claim, row)).collect();
        let [claim] = claims[..] else { panic!("line {line}: {number}: {} claims", claims.len()) };
        let (least, most) = claim.stated;
        assert!((least..=most).contains(number) || names(claim.what, *number), "line {line}: {claim:?}");
    }
    for claim in &claims {
        assert!(rows.iter().any(|row| is_of(claim, row)), "{}: {}", claim.place, claim.what);
        let written = |number: f64| {
            number.is_infinite()
                || number == 0.0
                || claim.bound_by_us
                || rows.iter().any(|row| is_of(claim, row) && row.1 == number)
        };
        assert!(written(claim.stated.0) && written(claim.stated.1), "{}: {}", claim.place, claim.what);
    }
}

/// Whether a number stands in what a claim is of.
fn names(what: &str, number: f64) -> bool {
    what.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| word.parse() == Ok(number))
}

fn part() -> Vec<Row> {
    [ERRORS, SMALL, STRATEGIES, SENSITIVITY, APPLICATIONS].concat()
}

/// Sections 5.1 and 5.2.
const SMALL: &[Row] = &[
    (761, 16.0, Figure(9), "pinning is dearer for pages in memory than for absent ones below"),
    (766, 6.0, Figure(9), "pinning an absent page adds"),
    (767, 10.0, Figure(9), "pinning an absent page and a WRITE to it"),
    (767, 4.0, Figure(9), "smallest WRITE, all in memory"),
    (769, 13.0, Figure(9), "pinning a page that is in memory adds"),
    (771, 2.0, Figure(9), "pinning pages that are in memory, to transfer only"),
    (794, 3.0, Figure(9), "touching an absent page adds"),
    (797, 0.1, Figure(9), "touching a page in memory adds"),
    (799, 20.0, Figure(9), "touching pages in memory, 1 MB, adds"),
    (800, 152.0, Figure(9), "touching pages in memory, 4 MB, adds"),
    (803, 64.0, Figure(9), "pinning pages in memory is dearer than almost all else but at"),
    (815, 64.0, Figure(9), "64 KB: touching pages in memory first, to transfer only (\"negligible\")"),
    (835, 4.0, Figure(10), "until the first packet is there"),
    (844, 1.0, Figure(10), "interrupt handler"),
    (848, 19.0, Figure(10), "tasklet for one page"),
    (850, 16.0, Figure(10), "reads of the NI FIFO for one page, at most"),
    (856, 8.0, Figure(10), "get_user_pages for one page"),
    (863, 7.0, Figure(10), "Netlink, the kernel's part"),
    (865, 4.0, Figure(10), "other work of the tasklet"),
    (873, 1.0, Figure(10), "ERR"),
    (877, 6.0, Figure(10), "sending the missing page again"),
    (878, 31.0, Figure(10), "parts of a 4 KB fault together"),
    (888, 25.0, Figure(11), "a timeout of 100 us to the base latency"),
    (890, 3.0, Figure(11), "a timeout of 100 us to a fault"),
    (905, 38.0, Figure(11), "4 KB WRITE to an absent page, ERR"),
    (902, 0.5, Figure(10), "miss of the SMMU and walk (\"a few hundreds of nanoseconds\")"),
    (905, 7.0, Figure(11), "what that is above the sum of its parts"),
    (885, 100.0, Figure(11), "4 KB, timeout of 100 us alone: its part of the latency (\"dominated\")"),
    (885, 1.0, Figure(11), "4 KB, timeout of 1 ms alone: its part of the latency (\"dominated\")"),
    (910, 4.0, Figure(11), "WRITE to an absent page, ERR: 4 KB to the smallest (\"similar\")"),
];

/// Section 3.2.
const ERRORS: &[Row] = &[(
    403,
    100.0,
    Section("3.2"),
    "4 KB, a corrupted packet: NACK to a timeout of 100 us (\"do not have to wait\")",
)];

/// Sections 5.3 and 5.4.
const STRATEGIES: &[Row] = &[
    (959, 16.0, Figure(12), "16 KB: PIA to PIO (\"the same latency\")"),
    (962, 2.0, Figure(12), "4 MB, PIA: blocks that are sent again"),
    (967, 1.0, Figure(12), "all sizes up to 1 MB: PIA to touching first, at least (\"worse\")"),
    (968, 2.6, Figure(12), "1 MB: PIA to transfer only"),
    (969, 2.0, Figure(12), "1 MB: touching first to transfer only"),
    (970, 1.2, Figure(12), "1 MB: PIA to touching first"),
    (971, 3.5, Figure(12), "64 KB: PIA to touching first"),
    (1002, 1.46, Figure(12), "4 MB: PIA better than touching first"),
    (1507, 1.46, Figure(12), "4 MB: PIA better than pinning first"),
    (1015, 6.0, Figure(13), "get_user_pages: each call"),
    (1018, 3.0, Figure(13), "get_user_pages: each page that is absent"),
    (1022, 5.7, Figure(13), "4 MB: parts one after the other"),
    (1023, 3.6, Figure(13), "4 MB: PIA as measured"),
    (1024, 1.58, Figure(13), "4 MB: gain of the overlap"),
    (1030, 64.0, Figure(12), "below 64 KB: PIA to touching first, at least (section 5.4: \"beneficial\")"),
    (1031, 256.0, Figure(12), "below 256 KB: PIA to touching first, at least (section 5.4: \"beneficial\")"),
    (1035, 3.2, Figure(12), "256 KB: PIA to transfer only (section 5.4)"),
    (1040, 0.1, Figure(12), "touching a page in memory adds (section 5.4)"),
    (1040, 0.2, Figure(12), "touching a page in memory adds (section 5.4)"),
];

/// Section 6.1.
const SENSITIVITY: &[Row] = &[
    (1102, 100.0, Figure(14), "4 KB: least frequency with page faults"),
    (1103, 80.0, Figure(14), "4 KB: 80 % to no page faults (\"virtually identical\")"),
    (1106, 40.0, Figure(14), "16 KB: least frequency with page faults"),
    (1106, 20.0, Figure(14), "64 KB: least frequency with page faults"),
    (1107, 5.0, Figure(14), "256 KB: least frequency with page faults"),
    (1107, 1.0, Figure(14), "1 MB: least frequency with page faults"),
    (1107, 1.0, Figure(14), "4 MB: least frequency with page faults"),
    (1126, 40.0, Figure(14), "one page fault"),
    (1127, 3.2, Figure(14), "4 KB on a link of 10 Gb/s"),
    (1131, 12.5, Figure(14), "4 MB: PIO to transfer only"),
    (1151, 80.0, Figure(14), "4 MB: PIA, 100 % to 80 % (\"negligible difference\")"),
    (1163, 2.0, Figure(14), "4 KB: PIA slower than PIO by"),
    (1171, 1.0, Figure(14), "16 KB, PIO: runs of the tasklet"),
    (1171, 1.0, Figure(14), "16 KB, PIO: blocks that are sent again"),
    (1175, 7.1, Figure(14), "4 MB: PIA better than PIO"),
    (1177, 1.5, Figure(14), "4 MB: PIA to transfer only"),
    (1177, 2.5, Figure(14), "1 MB: PIA to transfer only"),
    (1177, 6.2, Figure(14), "64 KB: PIA to transfer only"),
    (1219, 16.0, Figure(15), "16 KB: ends before the least timeout"),
    (1222, 100.0, Figure(15), "16 KB: ends before the least timeout"),
    (1222, 256.0, Figure(15), "least size for which a timeout of 100 us is better than 500 us"),
    (1227, 4.0, Figure(15), "4 MB: timeout of 500 us to 100 us (\"similar\")"),
    (1228, 4.0, Figure(15), "4 MB: timeout of 1 ms to 100 us (\"outperform\")"),
    (1228, 4.0, Figure(15), "4 MB: timeout of 1 ms to 500 us (\"outperform\")"),
    (1232, 2.0, Figure(15), "NTO, from 4 KB to 16 KB"),
    (1232, 3.0, Figure(15), "NTO, from 4 KB to 16 KB"),
    (1232, 2.0, Figure(15), "NTO, from 16 KB to 64 KB"),
    (1232, 3.0, Figure(15), "NTO, from 16 KB to 64 KB"),
    (1232, 2.0, Figure(15), "NTO, from 64 KB to 256 KB"),
    (1232, 3.0, Figure(15), "NTO, from 64 KB to 256 KB"),
    (1232, 2.0, Figure(15), "NTO, from 256 KB to 1 MB"),
    (1232, 3.0, Figure(15), "NTO, from 256 KB to 1 MB"),
    (1232, 2.0, Figure(15), "NTO, from 1 MB to 4 MB"),
    (1232, 3.0, Figure(15), "NTO, from 1 MB to 4 MB"),
    (1237, 5.7, Figure(15), "4 MB: NTO"),
    (1237, 3.6, Figure(13), "4 MB: PIA as measured"),
    (1246, 1.8, Figure(15), "1 MB: timeout of 100 us better than NTO"),
    (1246, 1.8, Figure(15), "4 MB: timeout of 100 us better than NTO"),
    (1250, 1.93, Figure(15), "equation 1 for many pages"),
];

/// Section 6.2, and what section 5.1 says of asynchronous sends.
const APPLICATIONS: &[Row] = &[
    (809, 50.0, Figure(16), "touching first holds up a send of 1 to 4 MB by (\"many 10s\" of us)"),
    (1375, 1.1, Table(2), "LAMMPS, 16 processes: slower by at most (a fault a counted handler run)"),
    (1381, 1_489.0, Table(5), "LAMMPS: handler runs"),
    (1391, 239.0, Table(5), "LAMMPS: ERRs"),
    (1391, 6.2, Table(5), "LAMMPS: handler runs for each ERR (1489 / 239)"),
    (1441, 76.47, Table(2), "LAMMPS, 1 process: loop time without page faults"),
    (1442, 79.37, Table(2), "LAMMPS, 2 processes: loop time without page faults"),
    (1443, 84.74, Table(2), "LAMMPS, 4 processes: loop time without page faults"),
    (1444, 90.21, Table(2), "LAMMPS, 8 processes: loop time without page faults"),
    (1445, 98.88, Table(2), "LAMMPS, 16 processes: loop time without page faults"),
    (1450, 76.44, Table(2), "LAMMPS, 1 process: loop time with page faults"),
    (1451, 79.21, Table(2), "LAMMPS, 2 processes: loop time with page faults"),
    (1452, 84.55, Table(2), "LAMMPS, 4 processes: loop time with page faults"),
    (1453, 90.43, Table(2), "LAMMPS, 8 processes: loop time with page faults"),
    (1454, 99.95, Table(2), "LAMMPS, 16 processes: loop time with page faults"),
    (1462, 2.9, Table(3), "HPL: slower by at most"),
    (1462, 2.9, Table(4), "HPCG: slower by at most"),
    (1475, 1_497.0, Table(5), "HPL: handler runs"),
    (1475, 318.0, Table(5), "HPCG: handler runs"),
    (1479, 220.0, Table(5), "HPL: ERRs"),
    (1479, 6.8, Table(5), "HPL: handler runs for each ERR (1497 / 220)"),
    (1480, 48.0, Table(5), "HPCG: ERRs"),
    (1480, 6.6, Table(5), "HPCG: handler runs for each ERR (318 / 48)"),
    (1488, 1.0, Section("6.2"), "all applications: slower by less than (section 6.2.3)"),
];

/// Sections 4.1 to 4.3.
const JBMT: &[Row] = &[
    (139, 19.0, Figure(4), "get of 1 byte"),
    (139, 3.0, Figure(4), "get of 1 byte: processing"),
    (139, 7.0, Figure(4), "get of 1 byte: control message"),
    (146, 112.0, Figure(5), "peak bandwidth"),
    (146, 100.0, Figure(5), "peak bandwidth, of the link's (\"almost saturating\")"),
    (153, 2.0, Table(1), "either of them, less than (section 4.3)"),
    (163, 1.32, Table(1), "registration, any size"),
    (163, 0.25, Table(1), "deregistration, any size"),
];

/// FRRWP: sections 2 to 5.
#[rustfmt::skip]
const FRRWP: &[Row] = &[
    (29, 7.0, Section("2.1"), "a page, 2.4 GHz Xeon"),
    (36, 0.506637, Table(1), "4 KB: fast registration"),
    (36, 40.08733, Table(1), "4 KB: ordinary registration"),
    (37, 0.513922, Table(1), "8 KB: fast registration"),
    (37, 40.32209, Table(1), "8 KB: ordinary registration"),
    (38, 0.561122, Table(1), "16 KB: fast registration"),
    (38, 40.18301, Table(1), "16 KB: ordinary registration"),
    (39, 0.626815, Table(1), "32 KB: fast registration"),
    (39, 40.32764, Table(1), "32 KB: ordinary registration"),
    (40, 0.785199, Table(1), "64 KB: fast registration"),
    (40, 40.22049, Table(1), "64 KB: ordinary registration"),
    (41, 1.026974, Table(1), "128 KB: fast registration"),
    (41, 40.44059, Table(1), "128 KB: ordinary registration"),
    (56, 4.0, Figure(1), "4 KB: registration to RDMA write (\"much higher\")"),
    (58, 40.0, Figure(2), "kernel space less than user space, below 32 KB"),
    (58, 50.0, Figure(2), "part of mapping, pinning and crossings (\"about half\")"),
    (58, 32.0, Figure(2), "largest size of one cost in user space"),
    (58, 32.0, Figure(2), "128 KB to 32 KB, user space (\"increases dramatically\")"),
    (62, 0.77, Section("2.3"), "cost of each page (a)"),
    (62, 7.42, Section("2.3"), "cost of each operation (b)"),
    (62, 50.0, Section("2.3"), "part of the crossing in b (\"main part\")"),
    (102, 4.0, Figure(5), "T1: completion"),
    (102, 5.0, Figure(5), "T2 and T3, each: switch between driver and application"),
    (102, 14.0, Figure(5), "T1 + T2 + T3"),
    (104, 21.42, Section("4"), "saving without its pages: 21.42 + 0.77 p"),
    (104, 22.0, Section("4"), "a page, WRITE"),
    (104, 22.0, Section("4"), "a page, READ"),
    (104, 22.0, Section("4"), "a page, WRITE, client is registered"),
    (104, 21.42, Section("4"), "1,024 pages, WRITE, server is registered, to 21.42 + 0.77 p"),
    (114, 50.0, Section("5"), "fast registration sooner than ordinary by"),
];

/// REUSE: sections VI and VII.
#[rustfmt::skip]
const REUSE: &[Row] = &[
    (112, 128.0, Figure(1), "128 B: Stria to Mutrino (\"faster on Mutrino\")"),
    (112, 2.0, Figure(1), "2 MiB: Mutrino to Stria (\"faster on Stria\")"),
    (114, 90.0, Figure(1), "Mutrino: registration of 2 MiB to 128 B"),
    (114, 4.4, Figure(1), "Stria: registration of 2 MiB to 128 B"),
    (114, 128.0, Figure(2), "Mutrino: a byte of 2 MiB to one of 128 KiB (\"plateaus\")"),
    (147, 10.0, Figure(3), "trial from a slab, less than"),
    (147, 100.0, Figure(3), "trial with a new slab (\"hundreds of microseconds\")"),
    (147, 1.0, Figure(3), "1,000 trials of 512 B: slabs"),
    (147, 1.0, Figure(3), "1,000 trials of 1 KiB: slabs, at least (\"multiple\")"),
    (147, 256.0, Figure(3), "1,000 trials of 256 KiB: slabs, at least (\"multiple\")"),
    (149, 0.0, Figure(3), "1,000 trials of 1 MiB: trials from a slab"),
    (151, 134.0, Figure(4), "128 B, Stria: slabs sooner than by hand"),
    (151, 3.4, Figure(4), "128 B, Mutrino: slabs sooner than by hand"),
    (158, 1.0, Figure(4), "least size without a gain"),
    (166, 11.3, Figure(4), "1 MiB, Stria: slabs later than by hand"),
    (174, 1.0, Figure(5), "Mutrino: reuse, less than"),
    (174, 883.0, Figure(5), "Mutrino: malloc and registration, at most"),
    (174, 882.0, Figure(5), "Mutrino: reuse saves up to"),
    (174, 2054.0, Figure(5), "Mutrino: reuse sooner, up to"),
    (176, 2.5, Figure(5), "Stria: reuse, less than"),
    (176, 311.0, Figure(5), "Stria: malloc and registration, at most"),
    (176, 310.0, Figure(5), "Stria: reuse saves up to"),
    (176, 253.0, Figure(5), "Stria: reuse sooner, up to"),
    (185, 4.5, Figure(6), "Mutrino: put of reused memory sooner, up to"),
    (185, 60.0, Figure(6), "Stria: put of reused memory sooner, up to"),
    (204, 77.0, Figure(7), "Mutrino, up to 2 KiB: registered space sooner than by hand"),
    (204, 42.0, Figure(7), "Stria, up to 2 KiB: registered space sooner than by hand"),
    (204, 9.4, Figure(7), "Mutrino: registered space sooner than copied, up to"),
    (204, 19.4, Figure(7), "Stria: registered space sooner than copied, up to"),
    (204, 4.2, Figure(7), "Mutrino: registered space sooner than by hand, up to"),
    (204, 50.0, Figure(7), "Stria: registered space sooner than by hand, up to"),
];

/// Active Access: sections 1.1, 5 and 8.
#[rustfmt::skip]
const ACTIVE: &[Row] = &[
    (54, 10.0, Figure(1), "RMA: no collision to only collisions (\"varies by\")"),
    (326, 5.0, Section("5.1"), "the IOMMU's own work"),
    (328, 1.0, Panel(6, 'a'), "packets, of 512 bytes by assumption: e-iommu slower by"),
    (328, 5.0, Panel(6, 'a'), "packets, of 512 bytes by assumption: e-iommu slower by"),
    (328, 1.0, Panel(6, 'b'), "TCP stream, full frames: e-iommu slower by"),
    (328, 5.0, Panel(6, 'b'), "TCP stream, full frames: e-iommu slower by"),
    (328, 1.0, Panel(6, 'b'), "UDP stream, messages of 64 bytes by assumption: e-iommu slower by"),
    (328, 5.0, Panel(6, 'b'), "UDP stream, messages of 64 bytes by assumption: e-iommu slower by"),
    (330, 3.0, Panel(6, 'c'), "25 % collisions: AA to RMA"),
    (338, 3.0, Section("5.2"), "an interrupt"),
    (338, 70.0, Section("5.2"), "an access to memory"),
    (338, 15.0, Section("5.2"), "an access to the scratchpad"),
    (340, 32.0, Section("5.2"), "processes of a node"),
    (361, 5.0, Panel(7, 'a'), "AA-Int: an interrupt each 100 to each 10, more by"),
    (361, 5.0, Panel(7, 'a'), "AM-Ints: an interrupt each 100 to each 10, more by"),
    (363, 11.0, Panel(6, 'd'), "best number of processes that handle"),
    (363, 11.0, Section("5.2.1"), "processes that handle, of AM-Onload"),
    (365, 2.0, Panel(7, 'a'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints"),
    (365, 2.0, Panel(7, 'b'), "AA-Poll to the best of RMA, AM, AM-Exp, AM-Onload, AM-Ints (25 %)"),
    (365, 1.0, Panel(7, 'a'), "AA-SP more than AA-Poll"),
    (365, 1.0, Panel(7, 'a'), "AA-Int to AM-Ints (\"comparable\")"),
    (365, 6.0, Section("5.2.1"), "further operations of RMA for a collision"),
    (367, 95.0, Section("5.2.1"), "AA-Poll to RMA, 95 % computation to none (differences \"smaller\")"),
    (371, 16.0, Panel(7, 'c'), "lru_af more than lru_a4, up to"),
    (371, 1.0, Panel(7, 'c'), "lru to rnd of 2 and more ways, at least (\"always better\")"),
    (373, 1.0, Panel(7, 'd'), "AA-Poll to RMA (\"outperforms\")"),
    (373, 1.0, Panel(7, 'd'), "AA-Poll to A-KV (\"outperforms\")"),
    (373, 1.0, Panel(7, 'd'), "AA-Poll to Allreduce (\"outperforms\")"),
    (377, 1.0, Panel(9, 'b'), "AA longer than No-FT, less than"),
    (383, 50.0, Panel(9, 'b'), "AA less than AM"),
    (383, 80.0, Panel(9, 'b'), "AA less than RMA"),
    (389, 1.0, Panel(8, 'a'), "network cards: the least of AM and RMA to AA (\"lowest\")"),
    (391, 1.0, Panel(8, 'b'), "routers of each topology: the least of AM and RMA to AA (\"lowest\")"),
    (442, 1.0, Panel(9, 'a'), "a get that is logged, longer by (section 8, of run times)"),
    (442, 5.0, Panel(9, 'a'), "a get that is logged, longer by (section 8, of run times)"),
];
