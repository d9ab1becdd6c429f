//! What the files of a device say, in the words of the kernel's RoCE drivers. Each text ends with a line feed.
//!
//! What a device says by a verb, too, comes from the same function as the verb's answer.

use crate::devices::device_attributes::port_attributes;
use pagewire_nic::device::Device;
use std::fmt::Write;

/// Codes of `active_speed`, with the name and ten times the Gb/s of one lane (InfiniBand specification, volume 1, section
/// 14.2.5.6; the words are those of the kernel's `rate_show`).
const SPEEDS: [(u32, &str, u32); 9] = [
    (1, "", 25),
    (2, " DDR", 50),
    (4, " QDR", 100),
    (8, " FDR10", 100),
    (16, " FDR", 140),
    (32, " EDR", 250),
    (64, " HDR", 500),
    (128, " NDR", 1000),
    (256, " XDR", 2000),
];

/// Codes of `active_width`, with the number of lanes.
const WIDTHS: [(u8, u32); 5] = [(1, 1), (2, 4), (4, 8), (8, 12), (16, 2)];

/// By `enum ibv_port_state`.
const STATES: [&str; 6] = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];

/// By `phys_state` of `struct ibv_port_attr`.
const PHYSICAL_STATES: [&str; 8] = [
    "<unknown>",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "Phy Test",
];

/// `node_guid` and `sys_image_guid`.
pub fn guid(device: &Device) -> String {
    words(&device.guid.to_be_bytes())
}

/// An entry of `gids`.
pub fn gid(raw: &[u8; 16]) -> String {
    words(raw)
}

/// Groups of four hexadecimal digits.
fn words(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":") + "\n"
}

/// The attributes of a port that are numbers and names of what `ibv_query_port` says.
pub fn port(device: &Device) -> [(&'static str, String); 9] {
    let attributes = port_attributes(device);
    [
        ("state", with_name(attributes.state as usize, &STATES)),
        ("phys_state", with_name(usize::from(attributes.phys_state), &PHYSICAL_STATES)),
        ("rate", rate(attributes.active_width, u32::from(attributes.active_speed))),
        ("link_layer", "Ethernet\n".into()),
        ("lid", format!("{:#x}\n", attributes.lid)),
        ("lid_mask_count", format!("{}\n", attributes.lmc)),
        ("sm_lid", format!("{:#x}\n", attributes.sm_lid)),
        ("sm_sl", format!("{}\n", attributes.sm_sl)),
        ("cap_mask", format!("{:#010x}\n", attributes.port_cap_flags)),
    ]
}

/// A value with its name.
fn with_name(value: usize, names: &[&str]) -> String {
    format!("{value}: {}\n", names.get(value).unwrap_or(&"<unknown>"))
}

/// `rate`, from the codes of width and speed.
fn rate(width: u8, speed: u32) -> String {
    let lanes = WIDTHS.iter().find(|(code, _)| *code == width).map_or(1, |(_, lanes)| *lanes);
    let (_, name, tenths) = SPEEDS.iter().find(|(code, ..)| *code == speed).unwrap_or(&SPEEDS[0]);
    let all = tenths * lanes;
    let half = if all % 10 == 0 { "" } else { ".5" };
    format!("{}{half} Gb/sec ({lanes}X{name})\n", all / 10)
}

/// The numbers of CPUs as the kernel lists them (`0-3,8`), from ranges in order; empty if there is none.
pub fn parse_list(list: &str) -> Vec<u32> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// A mask of CPUs in groups of 32, the highest first, as wide as `possible` CPUs need.
pub fn mask(cpus: &[u32], possible: u32) -> String {
    let possible = possible.max(cpus.iter().max().map_or(1, |last| last + 1));
    let groups = possible.div_ceil(32);
    let mut text = String::new();
    for group in (0..groups).rev() {
        let word =
            cpus.iter().filter(|cpu| **cpu / 32 == group).fold(0u32, |word, cpu| word | 1 << (cpu % 32));
        let bits = if group + 1 == groups { possible - group * 32 } else { 32 };
        let digits = bits.div_ceil(4) as usize;
        let comma = if group == 0 { "\n" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(text, "{word:0digits$x}{comma}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_worded_as_by_the_kernel() {
        for (width, speed, wanted) in [
            (1, 1, "2.5 Gb/sec (1X)\n"),
            (1, 8, "10 Gb/sec (1X FDR10)\n"),
            (2, 2, "20 Gb/sec (4X DDR)\n"),
            (2, 32, "100 Gb/sec (4X EDR)\n"),
            (2, 128, "400 Gb/sec (4X NDR)\n"),
        ] {
            assert_eq!(rate(width, speed), wanted);
        }
    }

    #[test]
    fn identifiers_are_groups_of_four_digits() {
        let raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1];
        assert_eq!(gid(&raw), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    }

    #[test]
    fn masks_are_as_wide_as_the_machine() {
        assert_eq!(mask(&parse_list("0-1\n"), 2), "3\n");
        assert_eq!(mask(&parse_list("0-1"), 6), "03\n");
        assert_eq!(mask(&parse_list("0,33"), 64), "00000002,00000001\n");
        assert_eq!(mask(&parse_list(""), 1), "0\n");
        assert_eq!(mask(&[40], 1), "100,00000000\n");
    }
}
