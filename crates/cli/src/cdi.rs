//! `pagewire cdi`: how a container gets Pagewire, as a Container Device Interface specification.
//!
//! A runtime that reads it mounts the library into a container of any image and sets the variables that `pagewire run` would set. The image
//! needs glibc 2.28 or later; nothing in it is changed.

use crate::arguments::CdiArguments;
use crate::running::install::{Installation, LIBRARY, VERBS_NAMES};
use crate::running::launch::PATH_VARIABLE;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The version of the specification that has all that is used here (cncf-tags/container-device-interface, SPEC.md).
const VERSION: &str = "0.5.0";

/// Vendor and class of the devices.
const KIND: &str = "pagewire.dev/rdma";

/// Where containers find Pagewire.
const FOLDER: &str = "/opt/pagewire";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Specification {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: &'static str,
    container_edits: Edits,
}

#[derive(Serialize)]
struct Edits {
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
    options: [&'static str; 4],
}

/// Prints the specification.
///
/// # Errors
/// If the installation is not complete, or the output cannot be written.
pub fn cdi(arguments: &CdiArguments) -> Result<u8> {
    let specification = specification(&Installation::find()?)?;
    let text = serde_json::to_string_pretty(&specification)? + "\n";
    match &arguments.output {
        Some(file) => write(file, &text).with_context(|| format!("--output {}", file.display()))?,
        None => std::io::stdout().write_all(text.as_bytes())?,
    }
    Ok(0)
}

/// Writes a file that all users may read, at once: a runtime that looks meanwhile sees the old one or the new one.
fn write(file: &Path, text: &str) -> Result<()> {
    // What a link leads to is replaced, not the link.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    if file.exists() && !file.is_file() {
        return Ok(std::fs::write(&file, text)?);
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    // Whatever the umask: the runtime may be another user.
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    new.as_file().sync_all()?;
    new.persist(&file)?;
    Ok(())
}

/// A device for each path, and what all have in common.
fn specification(installation: &Installation) -> Result<Specification> {
    let library = installation.library.join(LIBRARY);
    let names = installation.library.join(VERBS_NAMES);
    let of_path = |name, path| Device {
        name,
        container_edits: Edits { env: vec![format!("{PATH_VARIABLE}={path}")], mounts: Vec::new() },
    };
    Ok(Specification {
        cdi_version: VERSION,
        kind: KIND,
        devices: vec![of_path("all", "auto"), of_path("local", "local"), of_path("udp", "udp")],
        container_edits: Edits {
            env: vec![
                format!("LD_PRELOAD={FOLDER}/lib/{LIBRARY}"),
                format!("LD_LIBRARY_PATH={FOLDER}/lib/{VERBS_NAMES}"),
            ],
            mounts: vec![
                // The files themselves: a link would lead to where it leads inside the container.
                mount(&library, &format!("lib/{LIBRARY}"))?,
                mount(&names, &format!("lib/{VERBS_NAMES}"))?,
                mount(&installation.command, "bin/pagewire")?,
            ],
        },
    })
}

fn mount(host: &Path, place: &str) -> Result<Mount> {
    let host = host.canonicalize().with_context(|| host.display().to_string())?;
    let host_path = host.to_str().with_context(|| format!("{} is not UTF-8", host.display()))?.to_owned();
    let container_path = format!("{FOLDER}/{place}");
    Ok(Mount { host_path, container_path, options: ["bind", "ro", "nosuid", "nodev"] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_at_once_and_readable_to_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, link) = (directory.path().join("pagewire.json"), directory.path().join("link.json"));
        write(&file, "old").expect("written");
        let before = std::fs::metadata(&file).expect("a file");
        assert_eq!(before.permissions().mode() & 0o7777, 0o644);
        std::os::unix::fs::symlink("pagewire.json", &link).expect("made");
        let reader = std::fs::File::open(&file).expect("opened");
        write(&link, "new").expect("written");
        assert_eq!(std::io::read_to_string(reader).expect("read"), "old", "whoever reads has a whole file");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "new");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 2, "nothing is left");
        assert!(write(Path::new("/no/such/folder/pagewire.json"), "").is_err());
        write(Path::new("/dev/null"), "").expect("no regular file is replaced");
    }

    #[test]
    fn mounts_name_files_behind_links() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("it is there");
        for folder in ["bin", "real", "lib/pagewire"] {
            std::fs::create_dir_all(root.join(folder)).expect("made");
        }
        for file in ["bin/pagewire", "real/libpagewire.so.1"] {
            std::fs::write(root.join(file), "").expect("written");
        }
        std::os::unix::fs::symlink("../real/libpagewire.so.1", root.join("lib").join(LIBRARY)).expect("made");
        let made =
            specification(&Installation::of(&root.join("bin/pagewire")).expect("whole")).expect("made");
        let mounts = &made.container_edits.mounts;
        assert_eq!(mounts[0].host_path, root.join("real/libpagewire.so.1").to_str().expect("UTF-8"));
        assert_eq!(mounts[0].container_path, "/opt/pagewire/lib/libpagewire.so.1");
        assert!(mounts.iter().all(|mount| mount.options.contains(&"ro")));
        assert_eq!(
            made.devices.iter().map(|device| device.name).collect::<Vec<_>>(),
            ["all", "local", "udp"]
        );
    }
}
