//! Resident memory of this process.

/// Bytes that are resident now and that were at most, as the kernel counts them; `None`: it does not say.
pub fn resident_bytes() -> Option<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some((field(&status, "VmRSS:")?, field(&status, "VmHWM:")?))
}

/// A field in kB.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let (before, _) = resident_bytes().unwrap();
        let bytes = vec![1u8; 64 << 20];
        let (after, most) = resident_bytes().unwrap();
        assert!(after >= before + (48 << 20) && most >= after, "{before} {after} {most}");
        assert_eq!(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        assert_eq!(field("VmRSS:\t  12 kB\nVmHWM: 3 kB\n", "VmHWM:"), Some(3072));
    }
}
