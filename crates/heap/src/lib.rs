//! The registered heap: one range of addresses whose memory peers may map (REUSE-1 to REUSE-5).
