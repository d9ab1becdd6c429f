//! The figures as pictures: one SVG file for each benchmark and path, both axes logarithmic.

use crate::chart::{Axis, CURVES, Curve, Drawing, Panel, Picture, Unit};
use crate::figures::Line;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Draws all benchmarks of more than one size into `directory`, which exists; gives the files.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn draw(lines: &[Line], directory: &Path) -> Result<Vec<PathBuf>> {
    let mut benches: BTreeMap<(&str, &str), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        benches.entry((line.bench, line.path)).or_default().push(line);
    }
    let mut files = Vec::new();
    for ((bench, path), lines) in benches {
        let curves = curves(&lines);
        if curves.iter().all(|(_, points)| points.len() < 2) {
            continue;
        }
        let on = if path == "-" { String::new() } else { format!("-{path}") };
        let Some((own, peers)) = curves.split_first() else { continue };
        // Pagewire's own curve is in each picture.
        for (index, peers) in peers.chunks(CURVES - 1).enumerate() {
            let again = if index == 0 { String::new() } else { format!("-{}", index + 1) };
            let file = directory.join(format!("{bench}{on}{again}.svg"));
            if picture(bench, path, lines[0].unit, [own].into_iter().chain(peers)).draw(&file)? {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// A name, and points of size and value.
type Series = (String, Vec<(f64, f64)>);

fn picture<'a>(bench: &str, path: &str, unit: &str, curves: impl Iterator<Item = &'a Series>) -> Picture {
    let upwards = if unit == "us" { "time" } else { "bandwidth" };
    let axis = |label, unit: &str| Axis { label, unit: Unit::of(unit), logarithmic: true };
    let across = if super::queue_pairs::NAMES.contains(&bench) {
        axis("queue pairs", "")
    } else {
        axis("size", "bytes")
    };
    let curve = |(style, (name, points)): (usize, &Series)| Curve {
        name: name.clone(),
        style,
        points: points.clone(),
        intervals: Vec::new(),
    };
    let on = match path {
        "local" => ", inside one host",
        "udp" => ", over UDP",
        _ => "",
    };
    let drawing = Drawing::Curves {
        axes: (across, axis(upwards, unit)),
        curves: curves.enumerate().map(curve).collect(),
        stated: Vec::new(),
        beside: Vec::new(),
    };
    Picture {
        title: format!("{bench}: {}{on}", subject(bench)),
        source:
            "Medians of runs in turn on one machine: Pagewire, its peers, and what the machine itself can do."
                .to_owned(),
        panels: vec![Panel { heading: String::new(), drawing }],
    }
}

/// What a benchmark measures, in words.
fn subject(bench: &str) -> &'static str {
    match bench {
        "reg_mr" => "registering memory",
        "dereg_mr" => "deregistering memory",
        "write_lat" => "RDMA WRITE, half a round trip",
        "write_bw" => "bandwidth of RDMA WRITEs",
        "send_lat" => "SEND, half a round trip",
        "send_bw" => "bandwidth of SENDs",
        "read_lat" => "latency of an RDMA READ",
        "read_bw" => "bandwidth of RDMA READs",
        "atomic_lat" => "latency of an atomic",
        "atomic_bw" => "bandwidth of atomics",
        "write_to_polling" => "RDMA WRITE to and fro, both sides poll",
        "write_to_sleeping" => "RDMA WRITE to a target that sleeps",
        "write_to_computing" => "RDMA WRITE to a target that computes",
        "write_to_stopped" => "RDMA WRITE to a target that is stopped",
        "slow_page_target" => "99th percentile beside a page of 10 ms at the target",
        "slow_page_poster" => "99th percentile beside a page of 10 ms at the poster",
        "hostile_faults" => "median beside 512 WRITEs that wait for pages",
        "hostile_faults_p99" => "99th percentile beside 512 WRITEs that wait for pages",
        "create_qp" => "ibv_create_qp where there are many",
        "many_qps_write" => "8-byte WRITE on one of many queue pairs",
        "many_qps_send" => "8-byte SEND on one of many queue pairs",
        "put" => "put, half a round trip",
        "put_bw" => "bandwidth of puts",
        "get" => "latency of a get",
        "get_bw" => "bandwidth of gets",
        "signal" => "put with a signal, half a round trip",
        "counter" => "put that is counted",
        "get_logged" => "get that is logged",
        "log_order" => "put of one of two sources to a log",
        "sort" => "exchange of a sort by logged gets",
        "batch" => "puts to a handler, in batches",
        "conditional_write" => "transfer to memory that the peer names first",
        "conditional_write_file" => "transfer to a file of the peer, named first",
        "heap" => "memory of the registered heap, had and given back",
        "hostile_faults_rate" => "each of 32 WRITEs under way beside 512 that wait for pages",
        "checkpoint" => "checkpoint of what has changed",
        _ => "RDMA to and from absent pages",
    }
}

/// The points of each curve, by its name: Pagewire's first, then the peers' as they were measured.
fn curves(lines: &[&Line]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = vec![("Pagewire".to_owned(), Vec::new())];
    for line in lines {
        let own = ("Pagewire".to_owned(), line.value);
        for (name, value) in [own, (line.peer.clone().unwrap_or_default(), line.peer_value)] {
            let Some(value) = value.filter(|value| *value > 0.0) else { continue };
            let index = curves.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                curves.push((name, Vec::new()));
                curves.len() - 1
            });
            // Pagewire's figure stands beside each peer's.
            let points = &mut curves[index].1;
            if !points.contains(&(line.size as f64, value)) {
                points.push((line.size as f64, value));
            }
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_a_picture_with_pagewire_and_at_most_five_peers() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut lines = Vec::new();
        for path in ["local", "udp"] {
            for peer in 0..7 {
                for size in [8, 4096] {
                    let beside = (Some(format!("peer {peer}")), Some(1.0 + f64::from(peer)));
                    lines.push(Line::new(("write_lat", size, path, "us"), Some(size as f64 / 8.0), beside));
                }
            }
        }
        lines.push(Line::new(("atomic_lat", 8, "local", "us"), Some(1.0), (None, None)));
        let files = draw(&lines, directory.path()).expect("written");
        let names: Vec<_> =
            files.iter().map(|file| file.file_name().expect("a name").to_string_lossy()).collect();
        assert_eq!(
            names,
            ["write_lat-local.svg", "write_lat-local-2.svg", "write_lat-udp.svg", "write_lat-udp-2.svg"]
        );
        for file in &files {
            let svg = std::fs::read_to_string(file).expect("text");
            assert!(svg.matches("<polyline").count() <= 2 * CURVES, "{}", file.display());
            assert!(svg.contains(">Pagewire<") && svg.contains(">4 KiB<"), "{svg}");
            assert!(svg.contains("write_lat: RDMA WRITE, half a round trip, "), "{svg}");
        }
    }
}
