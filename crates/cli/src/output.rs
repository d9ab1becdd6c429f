//! What commands print and draw.

pub mod connections;
pub mod findings;
pub mod json_lines;
pub mod median;
pub mod report;
pub mod symbols;
pub mod table;
pub mod watched;
