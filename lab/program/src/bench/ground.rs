//! Where programs are measured: on this host, and on two hosts of our own, each program on one processor.

use crate::limits::BENCH_RUN;
use anyhow::{Context, Result, anyhow};
use pagewire_cli::hosts::{Host, Hosts, processors};
use pagewire_cli::pair::{Pair, run_pair};
use pagewire_cli::stage::Stage;
use pagewire_nic::PathChoice;
use std::path::PathBuf;
use std::process::Command;

/// The MTU between the two hosts: Ethernet's.
pub(super) const LINK_MTU: u32 = 1500;

/// The places, and the installation.
pub(super) struct Ground {
    pub(super) stage: Stage,
    /// This program, where every host may run it: the processes that measure.
    pub(super) program: PathBuf,
    /// Server and client on this host.
    here: [Host; 2],
    /// Server and client on hosts of their own; or why there are none.
    two_hosts: Result<[Host; 2], String>,
    /// The processors of initiator and target.
    pub(super) processors: Option<[usize; 2]>,
}

impl Ground {
    /// Makes the two hosts, if `path` needs any.
    pub(super) fn prepare(stage: Stage, path: PathChoice) -> Result<Ground> {
        let own = std::env::current_exe().context("cannot find the program's own file")?;
        let program = stage.helpers.join(own.file_name().unwrap_or_default());
        let processors = processors()?;
        let [client, server] = processors.map_or([None; 2], |both| both.map(Some));
        let two_hosts = match path {
            PathChoice::Local => Err("only the local path was asked for".to_owned()),
            PathChoice::Auto | PathChoice::Tcp | PathChoice::Udp => Hosts::make(LINK_MTU)
                .map(|hosts| [hosts.first.on_processor(server), hosts.second.on_processor(client)])
                .map_err(|error| format!("there are no two hosts: {error:#}")),
        };
        let here = [Host::here().on_processor(server), Host::here().on_processor(client)];
        Ok(Ground { stage, program, here, two_hosts, processors })
    }

    /// The hosts of server and client for a path.
    ///
    /// # Errors
    /// If the kernel refuses a second host to this user.
    pub(super) fn ends(&self, path: PathChoice) -> Result<(&Host, &Host)> {
        match (path, &self.two_hosts) {
            (PathChoice::Tcp | PathChoice::Udp, Ok([server, client])) => Ok((server, client)),
            (PathChoice::Tcp | PathChoice::Udp, Err(reason)) => Err(anyhow!("{reason}")),
            (PathChoice::Local | PathChoice::Auto, _) => Ok((&self.here[0], &self.here[1])),
        }
    }

    /// Runs a server and a client for a path, as `commands` makes them of both hosts, and gives the client's output if the run
    /// is good; the inner error says what went wrong with it.
    pub(super) fn run_pair(
        &self,
        path: PathChoice,
        port: u16,
        is_good: fn(&Pair) -> bool,
        commands: impl FnOnce(&Host, &Host) -> (Command, Command),
    ) -> Result<Result<String, String>> {
        let (server, client) = match self.ends(path) {
            Ok(ends) => ends,
            Err(reason) => return Ok(Err(format!("{reason:#}"))),
        };
        let (server, client) = commands(server, client);
        let pair = run_pair(server, client, port, BENCH_RUN)?;
        let client = pair.client.as_ref().filter(|_| is_good(&pair));
        Ok(client.map(|client| client.output.clone()).ok_or_else(|| pair.complaint()))
    }
}
