//! The command line, as clap sees it: names, help texts and examples.

mod checkpoint;
mod fail_each;
mod serve;

pub use self::checkpoint::CheckpointArguments;
pub use self::fail_each::FailEachArguments;
pub use self::serve::{GetArguments, PutArguments, ServeArguments};
use crate::external;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use pagewire_checkpoint::CheckpointChoice;
use pagewire_fabric::{ConnectTo, InvalidConnectTo, TlsChoice};
pub use pagewire_nic::PathChoice;
use pagewire_nic::{DeviceNames, FaultHandling, InvalidDeviceName, PageFaultChoice, PageIn, UnknownPath};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// RDMA verbs on memory that is never pinned: no RDMA hardware, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "pagewire", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    pagewire doctor                                    what this machine allows\n  \
    pagewire run -- ibv_devinfo                        show the devices\n  \
    pagewire run --path udp -- ib_write_bw             a server, over UDP\n  \
    pagewire explain                                   who is connected, how, and why so\n  \
    pagewire top                                       how busy they are\n  \
    pagewire fail-each -- ./program                    fail each of its calls once\n  \
    pagewire demo                                      see real programs run\n\n\
    The manual: man pagewire, man 7 pagewire.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `run` does, in the help.
const RUN: &str = "Run a verbs program on Pagewire";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(about = RUN)]
    Run(Box<RunArguments>),
    /// Say what this machine allows, what that costs, and how to mend it
    Doctor(DoctorArguments),
    /// Show live connections: the path of each, why not a better one, counters
    Explain(ExplainArguments),
    /// Watch live processes: operations, bytes, packets and page faults a second
    Top(TopArguments),
    /// Serve files, or fresh memory, for others to get and put
    Serve(ServeArguments),
    /// Get files that another process serves, or list them
    Get(GetArguments),
    /// Put files into what another process serves
    Put(PutArguments),
    /// List, verify and extract the checkpoints of a file; have a program save now
    Checkpoint(CheckpointArguments),
    /// Run a verbs program again and again, each time with another call failing, and report what goes wrong
    FailEach(FailEachArguments),
    /// Run other people's RDMA programs between two hosts on this machine
    Demo(DemoArguments),
    /// Print a Container Device Interface specification, by which containers of any image get Pagewire
    Cdi(CdiArguments),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `pagewire cdi`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewire cdi --output /etc/cdi/pagewire.json                       (as root, once)\n  \
    podman run --device pagewire.dev/rdma=all IMAGE ibv_devinfo\n  \
    podman run --device pagewire.dev/rdma=udp IMAGE ib_write_bw        (RoCEv2 in UDP alone)\n\n\
    Exit status: 0; 1 if the installation is not complete, or the file cannot be written;\n\
    2 for a wrong command line.")]
pub struct CdiArguments {
    /// Write it to FILE, not to the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// One side of a real try: `pagewire probe`, by which doctor starts this command once more. It is no subcommand,
/// so that neither help nor completions know it.
#[derive(Debug, Parser)]
#[command(name = "pagewire probe")]
pub struct ProbeArguments {
    /// Which side of which try
    #[arg(value_enum)]
    pub kind: crate::running::probe::Kind,
    /// Its operands
    pub operands: Vec<String>,
}

/// `pagewire run` alone, without what the other subcommands take: programs wait for it when they start.
#[derive(Debug, Parser)]
#[command(name = "pagewire-run", bin_name = "pagewire run", version, about = RUN, long_about = None)]
struct RunAlone {
    #[command(flatten)]
    arguments: RunArguments,
}

impl Arguments {
    /// What a command line asks for.
    ///
    /// # Errors
    /// What is wrong with it, or what is to be shown in its place (help, version).
    pub fn of(line: &[OsString]) -> Result<Arguments, clap::Error> {
        match line.get(1) {
            Some(word) if word == "run" => {
                let RunAlone { arguments } = RunAlone::try_parse_from(&line[1..])?;
                Ok(Arguments { command: Command::Run(Box::new(arguments)) })
            }
            Some(word) if external::is_own(word) && word != "help" => Arguments::try_parse_from(line),
            // For clap a word after `help` is the name of a command.
            Some(word)
                if word == "help" && line.get(2).is_some_and(|next| next == "--help" || next == "-h") =>
            {
                Arguments::of_all(&[line[0].clone(), "--help".into()])
            }
            _ => Arguments::of_all(line),
        }
    }

    /// What a command line asks for that may have the name of a command of another program, which is no more than a name here.
    fn of_all(line: &[OsString]) -> Result<Arguments, clap::Error> {
        let mut command = Arguments::all_commands();
        let parsed = command.try_get_matches_from_mut(line);
        let parsed = parsed.and_then(|matches| Arguments::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let mut error = error.format(&mut command);
            if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) {
                let mut tips: Vec<StyledStr> =
                    external::missing(name).into_iter().map(StyledStr::from).collect();
                if let Some(ContextValue::StyledStrs(others)) = error.get(ContextKind::Suggested) {
                    tips.extend_from_slice(others);
                }
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            }
            error
        })
    }

    /// The command line with the commands of other programs ([`external`]), as help and completions show it.
    fn all_commands() -> clap::Command {
        // The one that is changed becomes the last.
        let all = Arguments::command().subcommands(external::commands());
        all.mut_subcommand("completions", |command| command.display_order(LAST))
    }
}

/// The place of a subcommand behind all others, but before `help`, in the help.
const LAST: usize = 998;

/// The completion script for `shell`.
pub fn completion_script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::all_commands(), "pagewire", &mut script);
    script
}

/// The names of the choices, with what they mean.
fn path_choice() -> impl TypedValueParser<Value = PathChoice> {
    let help = |choice| match choice {
        PathChoice::Auto => "The best that each connection can have",
        PathChoice::Local => "Inside this host, from memory to memory; fails where the kernel refuses that",
        PathChoice::Tcp => "The same packets in TCP connections, between Pagewires, on one host too",
        PathChoice::Udp => "RoCEv2 in UDP datagrams, on one host too",
    };
    let named = |choice: PathChoice| PossibleValue::new(choice.name()).help(help(choice));
    PossibleValuesParser::new(PathChoice::ALL.map(named)).try_map(|name| name.parse())
}

/// The choice that a value of `PAGEWIRE_PATH` stands for; as in the engine, an empty one is none.
///
/// # Errors
/// With what is wrong with the value.
pub fn path_of_variable(value: &OsStr) -> Result<Option<PathChoice>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let choice = value.to_string_lossy().parse();
    choice
        .map(Some)
        .map_err(|error: UnknownPath| format!("the environment variable PAGEWIRE_PATH is {error}"))
}

/// What may become of packets at absent pages: one of the names, with what they mean, or `DEVICE=` before it.
#[derive(Clone)]
struct PageFaultWord;

impl TypedValueParser for PageFaultWord {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let checked = |word: String| word.parse::<PageFaultChoice>().map(|_| word);
        StringValueParser::new().try_map(checked).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let help = |handling| match handling {
            FaultHandling::Stash => "Keep them until the page is there",
            FaultHandling::Err => "Drop them; say when to send them again",
            FaultHandling::ErrWithoutTimeout => "The same, and until then the source's timer rests",
            FaultHandling::Rnr => "Refuse them with an RNR NAK",
            FaultHandling::Timeout => "Drop them in silence",
        };
        let named = move |handling: FaultHandling| PossibleValue::new(handling.name()).help(help(handling));
        Some(Box::new(FaultHandling::ALL.into_iter().map(named)))
    }
}

/// Where regions are saved, and how often.
#[derive(Clone)]
struct CheckpointWord;

impl TypedValueParser for CheckpointWord {
    type Value = CheckpointChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<CheckpointChoice, clap::Error> {
        let checked = |word: OsString| CheckpointChoice::parse(&word);
        clap::builder::OsStringValueParser::new().try_map(checked).parse_ref(command, argument, value)
    }
}

/// The names of how pages come in, with what they mean.
fn page_in() -> impl TypedValueParser<Value = PageIn> {
    let help = |strategy| match strategy {
        PageIn::Page => "Only what is accessed",
        PageIn::Block => "The blocks of 16 KiB in which that lies",
        PageIn::Transfer => "What follows in the transfer, too, as far as that is known",
        PageIn::Dynamic => "More and more while accesses follow each other",
    };
    let named = |strategy: PageIn| PossibleValue::new(strategy.name()).help(help(strategy));
    PossibleValuesParser::new(PageIn::ALL.map(named)).try_map(|name| name.parse())
}

/// A name of a device, as the engine will take it.
fn device_name(name: &str) -> Result<String, InvalidDeviceName> {
    name.parse::<DeviceNames>().map(|_| name.to_owned())
}

/// Where connections to a peer go, as the engine will take it.
fn connect_to(word: &str) -> Result<String, InvalidConnectTo> {
    word.parse::<ConnectTo>().map(|_| word.to_owned())
}

/// A name for a process in rules of failures: one word.
fn role_name(name: &str) -> Result<String, String> {
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    match is_word {
        true => Ok(name.to_owned()),
        false => Err("it is to be a word of letters, digits, '-', '_' and '.'".to_owned()),
    }
}

/// The time between two looks of `pagewire top`.
fn interval(seconds: &str) -> Result<Duration, String> {
    let allowed = crate::limits::TOP_INTERVAL;
    match seconds.parse() {
        Ok(seconds) if allowed.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("it is to be {} to {} seconds", allowed.start(), allowed.end())),
        Err(_) => Err("it is to be a number of seconds".to_owned()),
    }
}

/// Arguments of `pagewire run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire run -- ibv_rc_pingpong -g 0\n  \
    pagewire run --path udp --pcap /tmp/wire.pcap -- ibv_rc_pingpong -g 0 127.0.0.1\n  \
    pagewire run --stats -- ib_write_bw --size 1048576 192.0.2.7\n  \
    pagewire run --watch writes=count,reads=count -- ./server\n  \
    pagewire run --checkpoint saved,every=60 -- ./server\n  \
    pagewire run --check -- ./server\n  \
    pagewire run --tls secret=job.secret -- ./server\n  \
    pagewire run --path tcp --connect-to 10.0.0.5=192.0.2.7:31791 -- ./client\n  \
    pagewire run --fail 'verb=ibv_reg_mr nth=2 errno=ENOMEM' -- ./client\n  \
    pagewire run --fail rules.toml --fail-log failures.jsonl -- ./client\n  \
    pagewire run --device-name mlx5_0 -- ibv_rc_pingpong -d mlx5_0 -g 0\n\n\
    Exit status: the program's own; 126 if it cannot be run, 127 if it is not found,\n\
    128 + N if signal N ended it (with --stats, --watch or --check), 125 if Pagewire itself failed,\n\
    23 if --check found something and the program's own is 0, 2 for a wrong command line.")]
#[command(group(ArgGroup::new("printed").args(["watch", "check"]).multiple(true)))]
pub struct RunArguments {
    /// How connections travel; where it is not given, as the environment variable PAGEWIRE_PATH says, else auto
    #[arg(long, value_parser = path_choice())]
    pub path: Option<PathChoice>,
    /// Connect to another address than that of a peer's GID, on the path tcp, as where containers have mapped ports; may be given several times
    #[arg(long, value_name = "GID_ADDRESS=ADDRESS:PORT", value_parser = connect_to)]
    pub connect_to: Vec<String>,
    /// Encrypt what goes to other hosts, and take nothing else from them: secret=FILE, or cert=FILE,key=FILE,ca=FILE (,name=NAME)
    #[arg(long, value_name = "KEYS")]
    pub tls: Option<TlsChoice>,
    /// What becomes of packets that find a page absent, over UDP, or, as DEVICE=WHAT, of those that come to one device; may be given
    /// several times; where it is not given, as the environment variable PAGEWIRE_PAGE_FAULTS says, else stash
    #[arg(long, value_name = "WHAT", value_parser = PageFaultWord)]
    pub page_faults: Vec<String>,
    /// How much is brought in where pages are absent; where it is not given, as the environment variable PAGEWIRE_PAGE_IN says,
    /// else dynamic
    #[arg(long, value_name = "HOW", value_parser = page_in())]
    pub page_in: Option<PageIn>,
    /// Write the packets sent and received to FILE (classic pcap, one file a process: its PID is put before the
    /// extension)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Print, on standard error, what the connections did when the program has ended (the counters of pagewire explain)
    #[arg(long)]
    pub stats: bool,
    /// Count accesses of peers to the program's regions, by page: writes=count, reads=count, or both with a comma. The counts are printed, on
    /// standard error, when the program has ended; pagewire top shows them before
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["writes=count", "reads=count"])]
    pub watch: Vec<String>,
    /// Save each memory region of the program to a file in FOLDER/PROGRAM.PID, what has changed of it: every 10 seconds, or as often as said (0: only
    /// when pagewire checkpoint --now or the program asks), and when the program exits
    #[arg(long, value_name = "FOLDER[,every=SECONDS]", value_parser = CheckpointWord)]
    pub checkpoint: Option<CheckpointChoice>,
    /// Print, on standard error, what the program left when it has ended (verbs objects, completions, events) and what it misused (keys, states,
    /// queues), with the place of each call; buffers: also what it wrote to buffers of outstanding requests. Slower
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "objects")]
    #[arg(value_parser = ["objects", "buffers"])]
    pub check: Option<String>,
    /// With --check: the exit status if something was found and the program's own is 0 (0: no other)
    #[arg(long, value_name = "STATUS", requires = "check", default_value = "23")]
    pub check_exit: u8,
    /// With --watch or --check: print the counts or findings as one JSON object a line
    #[arg(long, requires = "printed")]
    pub json: bool,
    /// What the ports say that they carry, in Gb/s (else the more of the interface's speed and, without --path udp, 100)
    #[arg(long, value_name = "GBITS", value_parser = ["10", "20", "25", "40", "50", "100", "200", "400"])]
    pub rate: Option<String>,
    /// How the first verbs device is named; the others count on from its number (default: pagewire0)
    #[arg(long, value_name = "NAME", value_parser = device_name)]
    pub device_name: Option<String>,
    /// Show the program no files of the devices in /sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband
    #[arg(long)]
    pub no_device_files: bool,
    /// Take the program's malloc(3) from the registered heap: peers of this host that may trace it map the heap, so transfers need no system
    /// call. A forked child gets a copy, which fork(2) waits for
    #[arg(long)]
    pub heap: bool,
    /// Make calls, requests, completions, packets, pages or connections fail: rules of the form "verb=ibv_reg_mr nth=3 errno=ENOMEM" with ; between them, or
    /// a file of them (@FILE, FILE.toml), or the log of an earlier run (FILE.jsonl), which is repeated; may be given several times
    #[arg(long, value_name = "RULES", value_hint = ValueHint::FilePath)]
    pub fail: Vec<String>,
    /// With --fail: append a line of JSON to FILE for each failure
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "fail")]
    pub fail_log: Option<PathBuf>,
    /// What rules with role=NAME call the program
    #[arg(long, value_name = "NAME", value_parser = role_name)]
    pub role: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Arguments of `pagewire doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire doctor\n  \
    pagewire doctor --json | grep forbids\n\n\
    Exit status: 0, or 1 if something keeps Pagewire from running at all.")]
pub struct DoctorArguments {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagewire explain`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire explain\n  \
    pagewire explain --watch 4711\n  \
    pagewire explain --json | grep '\"path\":\"udp\"'\n\n\
    Exit status: 0; 1 if a process named by PID did not answer.")]
pub struct ExplainArguments {
    /// The processes; all that may be asked where none is named
    #[arg(value_name = "PID")]
    pub processes: Vec<u32>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Show again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
}

/// Arguments of `pagewire top`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire top\n  \
    pagewire top --interval 0.5 ib_write_bw\n  \
    pagewire top --once 4711\n  \
    pagewire top --json | jq '.processes[].rates.page_faults'\n\n\
    Where there is no terminal: as with --once. ? shows the keys of the display.\n\n\
    Exit status: 0; with --once 1 if a process that was named did not answer;\n\
    128 + N if signal N ended the display.")]
pub struct TopArguments {
    /// The processes, by PID or by the name of the program; all that may be asked where none is named
    #[arg(value_name = "PID|NAME")]
    pub processes: Vec<String>,
    /// The time between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Two looks, then one table (with --json: one object)
    #[arg(long)]
    pub once: bool,
    /// One JSON object for each interval
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `pagewire demo`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    pagewire demo\n  \
    pagewire demo --one-host\n\n\
    Takes less than a minute and leaves nothing behind.\n\
    Exit status: 0 if every program did its work, 1 otherwise.")]
pub struct DemoArguments {
    /// Do not make two hosts, even where the kernel allows it
    #[arg(long)]
    pub one_host: bool,
    /// One JSON object for each program, instead of a table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// A misspelt option of `run` is not taken for the program; what stands behind the program is the program's.
    #[test]
    fn options_before_the_program_are_ours() {
        let parse = |words: &str| Arguments::try_parse_from(words.split(' '));
        let program = |words| match parse(words).map(|arguments| arguments.command) {
            Ok(Command::Run(run)) => run.program,
            other => panic!("{words}: {other:?}"),
        };
        let refused = parse("pagewire run --faults drop=1 -- ib_send_lat").expect_err("no such option");
        assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument);
        assert_eq!(
            program("pagewire run ib_send_lat -s 8 --stats -- x"),
            ["ib_send_lat", "-s", "8", "--stats", "--", "x"]
        );
        assert_eq!(program("pagewire run --stats -- ib_send_lat --help"), ["ib_send_lat", "--help"]);
        assert_eq!(program("pagewire run -- -odd -x"), ["-odd", "-x"]);
    }

    /// `run` by itself answers as it does beside the other subcommands.
    #[test]
    fn run_is_the_same_alone() {
        let lines = [
            "--help",
            "-h",
            "--version",
            "--wrong",
            "--path tcp x",
            "--path udp",
            "",
            "help",
            "--stats -- x -y",
            "--page-faults rnr --page-faults pagewire0=err --page-in pia --pcap f --rate 25 --device-name mlx5_0 --no-device-files --checkpoint d,every=1 x --help",
            "--checkpoint d,every=x y",
            "--device-name a/b x",
        ];
        for line in lines {
            let words =
                ["pagewire", "run"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let shown = |parsed: Result<Arguments, clap::Error>| match parsed {
                Ok(arguments) => format!("{arguments:?}"),
                Err(error) => format!("{:?} {} {error}", error.kind(), error.exit_code()),
            };
            assert_eq!(shown(Arguments::of(&words)), shown(Arguments::try_parse_from(&words)), "{line}");
        }
    }

    #[test]
    fn the_variable_takes_what_the_option_takes() {
        for choice in PathChoice::ALL {
            let words = ["pagewire", "run", "--path", choice.name(), "true"];
            match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
                Ok(Command::Run(run)) => assert_eq!(run.path, Some(choice)),
                other => panic!("{words:?}: {other:?}"),
            }
            assert_eq!(path_of_variable(choice.name().as_ref()), Ok(Some(choice)));
        }
        let refused =
            Arguments::try_parse_from(["pagewire", "run", "--path", "rdma", "true"]).expect_err("none");
        assert!(refused.to_string().contains("[possible values: auto, local, tcp, udp]"), "{refused}");
        assert_eq!(path_of_variable("".as_ref()), Ok(None));
        let refused = path_of_variable("rdma".as_ref()).expect_err("no such path");
        assert!(
            refused.contains("PAGEWIRE_PATH") && refused.contains("auto, local, tcp or udp"),
            "{refused}"
        );
    }

    #[test]
    fn every_way_to_treat_packets_at_absent_pages_can_be_asked_for() {
        for handling in FaultHandling::ALL {
            let words = ["pagewire", "run", "--page-faults", handling.name(), "true"];
            match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
                Ok(Command::Run(run)) => assert_eq!(run.page_faults, [handling.name()]),
                other => panic!("{words:?}: {other:?}"),
            }
        }
        let words = ["pagewire", "run", "--page-faults", "err", "--page-faults", "pagewire1=timeout", "true"];
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Run(run)) => assert_eq!(run.page_faults, ["err", "pagewire1=timeout"]),
            other => panic!("{words:?}: {other:?}"),
        }
        for wrong in ["nto", "pagewire1=nto"] {
            let words = ["pagewire", "run", "--page-faults", wrong, "true"];
            let refused = Arguments::try_parse_from(words).expect_err("none").to_string();
            assert!(refused.contains("stash") && refused.contains("err,nto"), "{refused}");
        }
    }

    #[test]
    fn completions_offer_every_command_and_nothing_hidden() {
        for shell in clap_complete::Shell::value_variants() {
            let script = String::from_utf8(completion_script(*shell)).expect("UTF-8");
            for command in Arguments::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(!script.contains("probe"), "{shell}");
        }
    }
}
