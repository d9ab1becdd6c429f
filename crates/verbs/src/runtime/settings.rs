//! What the environment asks of the engine. `pagewire run` sets these variables from its options.

use crate::calls;
use crate::calls::failures::settings::FailureSettings;
use crate::checking::CheckSettings;
use log::LevelFilter;
use pagewire_checkpoint::CheckpointChoice;
use pagewire_fabric::{ConnectTo, FaultPlan, TlsChoice};
use pagewire_nic::{
    DELAY_VARIABLE, DeviceNames, Options, PageFaultChoice, PageIn, PathChoice, UnknownPageIn,
};
use pagewire_watching::WatchedAccesses;
use std::ffi::OsString;
use std::path::PathBuf;

/// Whether the files of devices are shown; read before there are any settings, when a program first looks for one.
const DEVICE_FILES_VARIABLE: &str = "PAGEWIRE_DEVICE_FILES";

/// How devices are named; read whenever they are listed.
const DEVICE_NAME_VARIABLE: &str = "PAGEWIRE_DEVICE_NAME";

/// Gb/s that a port can be said to carry: products of the codes of width and speed that the kernel gives for RoCE.
const RATES: [u32; 8] = [10, 20, 25, 40, 50, 100, 200, 400];

/// The settings of one process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `PAGEWIRE_PATH`: `auto` (default), `local`, `tcp` or `udp`.
    pub path: PathChoice,
    /// `PAGEWIRE_DELAY`: how much later each packet of the paths udp and tcp leaves, on purpose ([`pagewire_nic::delay`]).
    pub delay: FaultPlan,
    /// `PAGEWIRE_CONNECT_TO`: where connections go whose address is not that of the peer's GID ([`ConnectTo`]).
    pub connect_to: ConnectTo,
    /// `PAGEWIRE_TLS`: by what the ends of encrypted streams know each other ([`TlsChoice`]). Without it nothing is encrypted.
    pub tls: Option<TlsChoice>,
    /// `PAGEWIRE_PAGE_IN`: how much is brought in where pages are absent, `pio`, `pi4`, `pia` or `dynamic` (default).
    pub page_in: PageIn,
    /// Whether pages that come cheaply are brought in at once; `,threads` behind the strategy: by threads, as all others.
    pub faults_at_once: bool,
    /// `PAGEWIRE_PAGE_FAULTS`: `stash` (default), `err`, `err,nto`, `rnr` or `timeout`, for all devices or by device ([`PageFaultChoice`]).
    pub page_faults: PageFaultChoice,
    /// `PAGEWIRE_RATE`: what ports say that they carry, in Gb/s; where it is absent, the path and the interface decide.
    pub rate: Option<u32>,
    /// `PAGEWIRE_STATS`: a file to which one line of JSON is appended at exit (the form is that of `pagewire explain`).
    pub statistics: Option<PathBuf>,
    /// `PAGEWIRE_WATCH`: which accesses of peers to the program's regions are counted.
    pub watch: WatchedAccesses,
    /// `PAGEWIRE_CHECKPOINT`: where the regions of the program are saved, and how often.
    pub checkpoint: Option<CheckpointChoice>,
    /// `PAGEWIRE_LOG`: what of the engine's log is shown on standard error, as in `RUST_LOG`.
    pub log: String,
}

impl Settings {
    /// The settings in the environment, or what is wrong with them.
    pub fn from_environment() -> Result<Self, String> {
        if std::env::var_os("PAGEWIRE_TLS").is_some_and(|keys| keys.is_empty()) {
            return Err("PAGEWIRE_TLS is empty: it must name keys, or not be set".to_owned());
        }
        Self::from(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let path = match variable("PAGEWIRE_PATH").as_ref().map(|value| value.to_string_lossy()) {
            None => PathChoice::Auto,
            Some(value) => value.parse().map_err(|error| format!("PAGEWIRE_PATH is {error}"))?,
        };
        let delay = variable(DELAY_VARIABLE).map(|value| value.to_string_lossy().into_owned());
        let delay = pagewire_nic::delay(delay.as_deref(), path);
        let delay = delay.map_err(|error| format!("{DELAY_VARIABLE} is {error}"))?;
        let connect_to = match variable("PAGEWIRE_CONNECT_TO").as_ref().map(|value| value.to_string_lossy()) {
            None => ConnectTo::default(),
            Some(value) => value.parse().map_err(|error| format!("PAGEWIRE_CONNECT_TO has {error}"))?,
        };
        let tls = variable("PAGEWIRE_TLS").map(|value| value.to_string_lossy().parse()).transpose();
        let tls: Option<TlsChoice> = tls.map_err(|error| format!("PAGEWIRE_TLS is {error}"))?;
        if tls.is_some() && path == PathChoice::Udp {
            return Err(
                "PAGEWIRE_TLS is set, and PAGEWIRE_PATH is udp: datagrams are not encrypted".to_owned()
            );
        }
        let page_faults = match variable("PAGEWIRE_PAGE_FAULTS").as_ref().map(|value| value.to_string_lossy())
        {
            None => PageFaultChoice::default(),
            Some(value) => value.parse().map_err(|error| format!("PAGEWIRE_PAGE_FAULTS is {error}"))?,
        };
        let (page_in, faults_at_once) = match variable("PAGEWIRE_PAGE_IN") {
            None => (PageIn::default(), true),
            Some(value) => page_in(&value.to_string_lossy())
                .map_err(|error| format!("PAGEWIRE_PAGE_IN is {error}, with ',threads' behind it or not"))?,
        };
        let rate = variable("PAGEWIRE_RATE").map(|value| rate(&value.to_string_lossy())).transpose()?;
        shows_device_files(variable(DEVICE_FILES_VARIABLE))?;
        names_of(variable(DEVICE_NAME_VARIABLE))?;
        let log = match variable("PAGEWIRE_LOG") {
            None => "off".into(),
            Some(value) => log_filter(value.to_string_lossy().into_owned())?,
        };
        let watch = match variable("PAGEWIRE_WATCH") {
            None => WatchedAccesses::default(),
            Some(value) => watched(&value.to_string_lossy())?,
        };
        FailureSettings::from(&variable)?;
        let statistics = variable("PAGEWIRE_STATS").map(PathBuf::from);
        CheckSettings::from(&variable)?;
        let checkpoint = variable("PAGEWIRE_CHECKPOINT").map(checkpoint).transpose()?;
        Ok(Settings {
            path,
            delay,
            connect_to,
            tls,
            page_faults,
            page_in,
            faults_at_once,
            rate,
            statistics,
            watch,
            checkpoint,
            log,
        })
    }

    /// How the engine is set up.
    pub fn options(&self) -> Options {
        Options {
            path: self.path,
            is_encrypted: self.tls.is_some(),
            page_faults: self.page_faults.clone(),
            page_in: self.page_in,
            faults_at_once: self.faults_at_once && !calls::delays_pages(),
        }
    }
}

/// `PAGEWIRE_DEVICE_FILES`: whether programs find files of the devices in sysfs and `/dev`.
///
/// # Errors
/// What is wrong with the value.
pub fn device_files() -> Result<bool, String> {
    shows_device_files(std::env::var_os(DEVICE_FILES_VARIABLE).filter(|value| !value.is_empty()))
}

fn shows_device_files(value: Option<OsString>) -> Result<bool, String> {
    match value.as_ref().map(|value| value.to_string_lossy()).as_deref() {
        None | Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(value) => Err(format!("{DEVICE_FILES_VARIABLE} is '{value}': it must be yes or no")),
    }
}

/// `PAGEWIRE_DEVICE_NAME`: the name of the first device, from which the others count on.
///
/// # Errors
/// What is wrong with the value.
pub fn device_names() -> Result<DeviceNames, String> {
    names_of(std::env::var_os(DEVICE_NAME_VARIABLE).filter(|value| !value.is_empty()))
}

fn names_of(value: Option<OsString>) -> Result<DeviceNames, String> {
    let Some(value) = value else { return Ok(DeviceNames::default()) };
    value.to_string_lossy().parse().map_err(|error| format!("{DEVICE_NAME_VARIABLE} is {error}"))
}

fn rate(value: &str) -> Result<u32, String> {
    value.parse().ok().filter(|rate| RATES.contains(rate)).ok_or_else(|| {
        let rates = RATES.map(|rate| rate.to_string()).join(", ");
        format!("PAGEWIRE_RATE is '{value}': it must be one of {rates} (Gb/s)")
    })
}

/// A strategy, and whether pages that come cheaply are brought in at once.
fn page_in(value: &str) -> Result<(PageIn, bool), UnknownPageIn> {
    match value.strip_suffix(",threads") {
        Some(strategy) => Ok((strategy.parse()?, false)),
        None => Ok((value.parse()?, true)),
    }
}

/// What `PAGEWIRE_WATCH` names.
fn watched(value: &str) -> Result<WatchedAccesses, String> {
    let mut all = WatchedAccesses::default();
    for word in value.split(',') {
        match word {
            "writes=count" => all.writes = true,
            "reads=count" => all.reads = true,
            _ => {
                return Err(format!(
                    "PAGEWIRE_WATCH is '{value}': it must be writes=count, reads=count, or both with a comma between them"
                ));
            }
        }
    }
    Ok(all)
}

/// What `PAGEWIRE_CHECKPOINT` asks for.
fn checkpoint(value: OsString) -> Result<CheckpointChoice, String> {
    CheckpointChoice::parse(&value)
        .map_err(|error| format!("PAGEWIRE_CHECKPOINT is '{}': {error}", value.to_string_lossy()))
}

/// Checks a filter of the log. `env_logger` takes any word for the name of a part, and then shows nothing.
fn log_filter(value: String) -> Result<String, String> {
    let is_level = |text: &str| text.trim().parse::<LevelFilter>().is_ok();
    let is_part = |text: &str| text.starts_with("pagewire");
    let (parts, text) = value.split_once('/').unwrap_or((&value, ""));
    let shows_something = |part: &str| match part.trim().split_once('=') {
        None => is_level(part) || is_part(part.trim()),
        Some((part, level)) => is_part(part) && is_level(level),
    };
    if text.contains('/') || !parts.split(',').all(shows_something) {
        return Err(format!(
            "PAGEWIRE_LOG is '{value}': it must be off, error, warn, info, debug or trace, or such a level for a part, as in \
             warn,pagewire_nic=trace"
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_nic::FaultHandling;
    use std::time::Duration;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, String> {
        Settings::from(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn paths_have_names() {
        assert_eq!(Settings::from(|_| None).unwrap().path, PathChoice::Auto);
        for path in PathChoice::ALL {
            assert_eq!(with("PAGEWIRE_PATH", path.name()).unwrap().path, path);
        }
    }

    #[test]
    fn packets_are_delayed_where_there_are_some() {
        let on_path = |path: &'static str| {
            Settings::from(|name| match name {
                "PAGEWIRE_DELAY" => Some("20us".into()),
                "PAGEWIRE_PATH" => Some(path.into()),
                _ => None,
            })
        };
        assert_eq!(on_path("udp").unwrap().delay.delay, Duration::from_micros(20));
        let refused = on_path("local").unwrap_err();
        assert!(refused.starts_with("PAGEWIRE_DELAY is '20us', and PAGEWIRE_PATH is local: "), "{refused}");
        let refused = with("PAGEWIRE_DELAY", "soon").unwrap_err();
        assert!(refused.starts_with("PAGEWIRE_DELAY is 'soon': it must be "), "{refused}");
    }

    #[test]
    fn connections_go_where_the_map_says() {
        let map = with("PAGEWIRE_CONNECT_TO", "10.0.0.5=192.0.2.7:31791").unwrap().connect_to;
        assert_eq!(map.target([10, 0, 0, 5].into()), Some("192.0.2.7:31791".parse().unwrap()));
        let refused = with("PAGEWIRE_CONNECT_TO", "10.0.0.5").unwrap_err();
        assert!(refused.starts_with("PAGEWIRE_CONNECT_TO has '10.0.0.5': "), "{refused}");
    }

    #[test]
    fn encryption_excludes_datagrams() {
        assert_eq!(
            with("PAGEWIRE_TLS", "secret=/run/secret").unwrap().tls,
            Some(TlsChoice::Secret("/run/secret".into()))
        );
        assert!(with("PAGEWIRE_TLS", "on").unwrap_err().starts_with("PAGEWIRE_TLS is 'on': "));
        let both = Settings::from(|name| match name {
            "PAGEWIRE_TLS" => Some("secret=/run/secret".into()),
            "PAGEWIRE_PATH" => Some("udp".into()),
            _ => None,
        });
        assert!(both.unwrap_err().contains("datagrams are not encrypted"));
    }

    #[test]
    fn pages_come_in_by_strategies() {
        let strategy = |value| {
            let settings = with("PAGEWIRE_PAGE_IN", value).unwrap();
            (settings.page_in, settings.faults_at_once)
        };
        assert_eq!(strategy("pi4"), (PageIn::Block, true));
        assert_eq!(strategy("pio,threads"), (PageIn::Page, false));
        let defaults = Settings::from(|_| None).unwrap();
        assert_eq!((defaults.page_in, defaults.faults_at_once), (PageIn::Dynamic, true));
        for wrong in ["all", "pio,thread", ",threads"] {
            assert!(with("PAGEWIRE_PAGE_IN", wrong).unwrap_err().contains("pio, pi4, pia or dynamic"));
        }
    }

    #[test]
    fn what_becomes_of_packets_at_absent_pages_has_names() {
        assert_eq!(Settings::from(|_| None).unwrap().page_faults, FaultHandling::Stash.into());
        for handling in FaultHandling::ALL {
            assert_eq!(with("PAGEWIRE_PAGE_FAULTS", handling.name()).unwrap().page_faults, handling.into());
        }
    }

    #[test]
    fn wrong_values_are_reported() {
        assert!(
            with("PAGEWIRE_PAGE_FAULTS", "drop").unwrap_err().contains("stash, err, err,nto, rnr or timeout")
        );
        assert!(with("PAGEWIRE_PATH", "rdma").unwrap_err().contains("auto, local, tcp or udp"));
    }

    #[test]
    fn accesses_are_watched_by_kind() {
        let watched = |value| with("PAGEWIRE_WATCH", value).map(|settings| settings.watch);
        assert_eq!(Settings::from(|_| None).unwrap().watch, WatchedAccesses::default());
        assert_eq!(watched("writes=count"), Ok(WatchedAccesses { writes: true, reads: false }));
        assert_eq!(watched("reads=count,writes=count"), Ok(WatchedAccesses { writes: true, reads: true }));
        for wrong in ["writes", "writes=", "writes=count,", "all=count", "writes=log"] {
            assert!(watched(wrong).unwrap_err().contains("writes=count, reads=count"), "{wrong}");
        }
    }

    #[test]
    fn checkpoint_choice_is_parsed() {
        assert_eq!(Settings::from(|_| None).unwrap().checkpoint, None);
        let chosen = with("PAGEWIRE_CHECKPOINT", "/tmp,every=2").unwrap().checkpoint.unwrap();
        assert_eq!(chosen, CheckpointChoice { folder: "/tmp".into(), every: Some(Duration::from_secs(2)) });
        let wrong = with("PAGEWIRE_CHECKPOINT", "/tmp,every=").unwrap_err();
        assert!(wrong.starts_with("PAGEWIRE_CHECKPOINT is '/tmp,every=':"), "{wrong}");
    }

    #[test]
    fn log_filter_is_checked() {
        assert_eq!(Settings::from(|_| None).unwrap().log, "off");
        let filters =
            ["debug", "TRACE", "pagewire_nic", "warn, pagewire_nic=trace", "pagewire_nic::drive=off/text"];
        for filter in filters {
            assert_eq!(with("PAGEWIRE_LOG", filter).unwrap().log, filter);
        }
        for wrong in ["yes", "1", "debgu", "pagewire_nic=much", "nic=trace", "debug,", "debug/a/b"] {
            let told = with("PAGEWIRE_LOG", wrong).unwrap_err();
            assert!(told.contains(wrong) && told.contains("off, error, warn"), "{told}");
        }
    }
}
