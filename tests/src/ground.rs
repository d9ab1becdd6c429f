//! What the tests stand on: an installation, two hosts, and three ways of putting programs on them.

use crate::limits::{LINK_MTU, RUN};
use anyhow::{Context, Result, bail, ensure};
use pagewire_cli::arguments::PathChoice;
use pagewire_cli::hosts::{Host, Hosts};
use pagewire_cli::install::Installation;
use pagewire_cli::stage::Stage;
use pagewire_cli::workload::{Workload, WorkloadOutcome};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the two ends of a connection are, and which path is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Both on one host, from memory to memory.
    Local,
    /// Both on one host, in UDP datagrams.
    Udp,
    /// On two hosts, in UDP datagrams.
    Hosts,
    /// Both on one host, in TCP streams.
    Tcp,
    /// On two hosts, in TCP streams.
    TcpHosts,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 5] =
        [Setting::Local, Setting::Udp, Setting::Hosts, Setting::Tcp, Setting::TcpHosts];

    /// One for each path of one host.
    pub const PATHS: [Setting; 3] = [Setting::Local, Setting::Udp, Setting::Tcp];

    /// Whether packets travel in streams: of such runs `make test` has a part, as the protocol is the one of UDP.
    pub const fn is_tcp(self) -> bool {
        matches!(self, Setting::Tcp | Setting::TcpHosts)
    }

    /// For the names of tests.
    pub const fn name(self) -> &'static str {
        match self {
            Setting::Local => "local",
            Setting::Udp => "udp",
            Setting::Hosts => "hosts",
            Setting::Tcp => "tcp",
            Setting::TcpHosts => "tcp hosts",
        }
    }

    /// The path that is asked for.
    pub const fn path(self) -> PathChoice {
        match self {
            Setting::Local => PathChoice::Local,
            Setting::Udp | Setting::Hosts => PathChoice::Udp,
            Setting::Tcp | Setting::TcpHosts => PathChoice::Tcp,
        }
    }
}

/// The installation under test and two hosts.
#[derive(Debug)]
pub struct Ground {
    /// The installation, where an unprivileged user can run it.
    pub stage: Arc<Stage>,
    /// Two hosts that nobody else uses.
    pub hosts: Hosts,
}

impl Ground {
    /// Takes the install tree that `PAGEWIRE_BUILD` names (`build` in the project by default) and makes hosts.
    ///
    /// # Errors
    /// If the tree is not built, or the kernel refuses namespaces: these tests then cannot tell anything.
    pub fn prepare() -> Result<Ground> {
        let tree = std::env::var_os("PAGEWIRE_BUILD")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../build"), PathBuf::from);
        let command = tree.join("bin/pagewire");
        let command =
            command.canonicalize().with_context(|| format!("{} (make build)", command.display()))?;
        let stage = Arc::new(Stage::prepare(&Installation::of(&command)?)?);
        Ok(Ground { stage, hosts: Hosts::make(LINK_MTU)? })
    }

    /// Two more hosts with this installation: nothing on them disturbs what runs on these.
    ///
    /// # Errors
    /// If the kernel refuses more namespaces.
    pub fn with_other_hosts(&self) -> Result<Ground> {
        Ok(Ground { stage: self.stage.clone(), hosts: Hosts::make(LINK_MTU)? })
    }

    /// The host of the server and that of the client in a setting.
    pub const fn ends(&self, setting: Setting) -> (&Host, &Host) {
        match setting {
            Setting::Local | Setting::Udp | Setting::Tcp => (&self.hosts.first, &self.hosts.first),
            Setting::Hosts | Setting::TcpHosts => (&self.hosts.first, &self.hosts.second),
        }
    }

    /// Runs `program` at both ends.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self, setting: Setting, program: &str, arguments: &[&str]) -> Result<WorkloadOutcome> {
        self.run_with(&[], setting, program, arguments)
    }

    /// Runs `program` at both ends with more options of `pagewire run`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run_with(
        &self,
        options: &[&str],
        setting: Setting,
        program: &str,
        arguments: &[&str],
    ) -> Result<WorkloadOutcome> {
        let (server, client) = self.ends(setting);
        let workload = Workload {
            program,
            arguments,
            server,
            client,
            path: setting.path(),
            options,
            environment: &[],
            limit: RUN,
        };
        workload.run(&self.stage)
    }

    /// Runs `program` at both ends; both must succeed, and every byte must have taken the path asked for.
    ///
    /// # Errors
    /// If one fails, hangs, or another path was used.
    pub fn must_run(&self, setting: Setting, program: &str, arguments: &[&str]) -> Result<WorkloadOutcome> {
        self.must_run_with(&[], setting, program, arguments)
    }

    /// As [`must_run`](Self::must_run), with more options of `pagewire run`.
    ///
    /// # Errors
    /// Those of `must_run`.
    pub fn must_run_with(
        &self,
        options: &[&str],
        setting: Setting,
        program: &str,
        arguments: &[&str],
    ) -> Result<WorkloadOutcome> {
        let outcome = self.run_with(options, setting, program, arguments)?;
        if !outcome.pair.success() {
            bail!("{program} {}\n  {}", arguments.join(" "), outcome.pair.complaint());
        }
        let asked = setting.path().name();
        for (end, reports) in [("server", &outcome.server), ("client", &outcome.client)] {
            ensure!(!reports.is_empty(), "{program}: the {end}'s engine left no counters");
        }
        // Not each end by itself: the target of a local WRITE or READ takes no part, and counts nothing.
        ensure!(
            outcome.paths() == [asked],
            "{program}: asked for the path {asked}, by the counters bytes took {:?}",
            outcome.paths()
        );
        Ok(outcome)
    }
}
