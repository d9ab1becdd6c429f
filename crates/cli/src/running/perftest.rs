//! What perftest and the pingpong programs print, as figures.

/// One line of a perftest table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Message size in bytes.
    pub size: u64,
    /// Messages.
    pub iterations: u64,
    /// The other columns. Bandwidth tests: peak and average MB/s (or Gb/s), million messages a second. Latency tests:
    /// minimum, maximum, typical, average, deviation, 99 % and 99.9 %, in microseconds.
    pub figures: Vec<f64>,
}

impl Row {
    /// Average bandwidth of a bandwidth test, in the unit asked for.
    pub fn average_bandwidth(&self) -> Option<f64> {
        self.figures.get(1).copied()
    }

    /// Typical (median) latency of a latency test, in microseconds.
    pub fn typical_latency(&self) -> Option<f64> {
        // Atomics and READs have the same columns as the rest.
        self.figures.get(2).copied()
    }
}

/// The rows of the table in a perftest program's output.
pub fn rows(output: &str) -> Vec<Row> {
    output
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let size = fields.next()?.parse().ok()?;
            let iterations = fields.next()?.parse().ok()?;
            let figures: Option<Vec<f64>> = fields.map(|field| field.parse().ok()).collect();
            let figures = figures.filter(|figures| figures.len() >= 2)?;
            Some(Row { size, iterations, figures })
        })
        .collect()
}

/// Microseconds a round trip, as the pingpong programs print it (`1000 iters in 0.01 seconds = 5.00 usec/iter`).
pub fn pingpong_microseconds(output: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.ends_with(" usec/iter"))?;
    line.rsplit(" = ").next()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_from_the_rest() {
        let output = "\
---------------------------------------------------------------------------------------\n \
 TX depth        : 128\n \
local address: LID 0000 QPN 0x0011 PSN 0x1\n \
#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
65536      1000             100.50             99.25		   0.001588\n\
---------------------------------------------------------------------------------------\n";
        let rows = rows(output);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].size, rows[0].iterations), (65536, 1000));
        assert_eq!(rows[0].average_bandwidth(), Some(99.25));
    }

    #[test]
    fn the_pingpong_figure_is_found() {
        let output = "8192000 bytes in 0.01 seconds = 6553.60 Mbit/sec\n1000 iters in 0.01 seconds = 10.25 usec/iter\n";
        assert_eq!(pingpong_microseconds(output), Some(10.25));
        assert_eq!(pingpong_microseconds("nothing"), None);
    }
}
