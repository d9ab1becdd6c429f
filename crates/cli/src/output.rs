//! What commands print and draw.

pub mod datagrams;
pub mod figures;
pub mod progress;
pub mod report;
pub mod table;
pub mod watched;
