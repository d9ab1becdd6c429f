//! What commands print and draw.

pub mod connections;
pub mod median;
pub mod report;
pub mod table;
pub mod watched;
