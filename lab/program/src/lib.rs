//! The lab: what reproduces papers and compares designs, for `pagewire bench` and `pagewire reproduce`.
//!
//! Pagewire is measured beside peers and the limits of the machine ([`bench`]). What the papers measured is put beside models of their
//! machines and what this machine does ([`reproduce`]). The processes that measure are this program itself ([`probe`]).
//!
//! It uses the product as any other program does, and the library of the command for hosts, stages and tables. No crate of the product
//! uses it: `pagewire NAME` starts it by its file (`pagewire_cli::external`).
#![forbid(unsafe_code)]

pub mod arguments;
pub mod bench;
mod chart;
mod datagrams;
mod figures;
mod helper;
mod limits;
mod native;
pub mod probe;
mod progress;
mod registered;
pub mod reproduce;
mod streams;
