//! `pagewire serve`, `get` and `put` as they are run: on both paths, with files of all sizes, and with all that goes wrong.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagewire::{Failure, Node, Rule};
use pagewire_cli::directory::{Ask, Client, Reply, ServedPlace};
use pagewire_cli::serve::identity;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For what takes a moment where nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

/// The paths, as `PAGEWIRE_PATH` names them.
const PATHS: [&str; 2] = ["local", "udp"];

/// Whole pieces, whole pages, and a part of one.
const LENGTH: usize = (5 << 20) + 4096 + 5;

fn pagewire(path: &str, directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
    command.args(words).env("PAGEWIRE_PATH", path).env_remove("PAGEWIRE_ADDRESS").current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(path: &str, directory: &Path, words: &[&str]) -> Output {
    pagewire(path, directory, words).output().unwrap()
}

fn text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// Runs what must succeed with one JSON object.
fn json(path: &str, directory: &Path, words: &[&str]) -> Value {
    let output = run(path, directory, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs what must fail with a status of 1 and a text. Returns all that it says.
fn fails(path: &str, directory: &Path, words: &[&str], wanted: &str) -> String {
    let output = run(path, directory, words);
    let told = text(&output);
    assert!(output.status.code() == Some(1) && told.contains(wanted), "{words:?}: {}: {told}", output.status);
    assert!(!told.contains("panicked"), "{told}");
    told
}

/// A server, which ends with the test.
struct Server {
    child: Child,
    /// `HOST:PORT:NAME` of its files.
    places: Vec<String>,
}

impl Server {
    fn start(path: &str, directory: &Path, words: &[&str]) -> Server {
        Server::start_at("0", path, directory, words)
    }

    fn start_at(port: &str, path: &str, directory: &Path, words: &[&str]) -> Server {
        let mut command = pagewire(path, directory, &["serve", "--json", "--port", port]);
        let mut child = command.args(words).stderr(Stdio::inherit()).spawn().unwrap();
        let files = words.iter().filter(|word| word.ends_with(".bin") || word.starts_with("--size=")).count();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut place = || -> String {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            line["place"].as_str().unwrap().to_owned()
        };
        let places = (0..files).map(|_| place()).collect();
        Server { child, places }
    }

    /// The place of its first file, and another name at the same server.
    fn place(&self) -> &str {
        &self.places[0]
    }

    fn named(&self, name: &str) -> String {
        let (server, _) = self.place().rsplit_once(':').unwrap();
        if name.is_empty() { server.to_owned() } else { format!("{server}:{name}") }
    }

    fn port(&self) -> u16 {
        self.place().parse::<ServedPlace>().unwrap().port
    }

    fn client(&self) -> Client {
        Client::connect(&self.place().parse().unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended by itself there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contents(length: usize, seed: u32) -> Vec<u8> {
    (0..length as u32).map(|at| ((at ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn new_file(directory: &Path, name: &str, contents: &[u8]) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// The partial file of an output.
fn partial(output: &Path, source: &Path) -> PathBuf {
    let identity = identity(&File::open(source).unwrap()).unwrap();
    PathBuf::from(format!("{}.{identity}.part", output.display()))
}

/// Waits until something holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn files_of_all_lengths_come_whole() {
    for path in PATHS {
        let (there, here) = (directory(), directory());
        let lengths = [0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, LENGTH];
        let names: Vec<String> = lengths.iter().map(|length| format!("{length}.bin")).collect();
        for (name, length) in names.iter().zip(lengths) {
            new_file(there.path(), name, &contents(length, 7));
        }
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        let server = Server::start(path, there.path(), &words);

        let listed = text(&run(path, here.path(), &["get", &server.named("")]));
        for (name, length) in names.iter().zip(lengths) {
            let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
            assert_eq!(line.split_whitespace().collect::<Vec<_>>(), [name, &length.to_string()]);
        }
        for ((name, length), place) in names.iter().zip(lengths).zip(&server.places) {
            let got = json(path, here.path(), &["get", "--json", place]);
            let bytes = fs::read(here.path().join(name)).unwrap();
            assert!(bytes == contents(length, 7), "{path} {name}");
            assert_eq!((&got["bytes"], &got["resumed"]), (&length.into(), &0.into()));
            // Of no bytes none has taken a path.
            assert!(length == 0 || got["path"].as_str().unwrap().starts_with(path), "{got}");
            let sum = Command::new("sha256sum").arg(here.path().join(name)).output().unwrap();
            assert!(text(&sum).starts_with(got["sha256"].as_str().unwrap()), "{got}");
        }
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), names.len(), "nothing else is left");
    }
}

#[test]
fn several_clients_get_several_files_at_once() {
    for path in PATHS {
        let there = directory();
        for name in ["a.bin", "b.bin", "c.bin"] {
            new_file(there.path(), name, &contents(LENGTH, name.as_bytes()[0].into()));
        }
        let server = Server::start(path, there.path(), &["a.bin", "b.bin", "c.bin"]);
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let here = directory();
                let output = here.path().to_str().unwrap().to_owned();
                let mut words = vec!["get", "-o", &output];
                words.extend(server.places.iter().map(String::as_str));
                let child = pagewire(path, there.path(), &words).spawn().unwrap();
                (here, child)
            })
            .collect();
        for (here, child) in clients {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{path}: {}", text(&output));
            for name in ["a.bin", "b.bin", "c.bin"] {
                let bytes = fs::read(here.path().join(name)).unwrap();
                assert!(bytes == contents(LENGTH, name.as_bytes()[0].into()), "{path} {name}");
            }
        }
    }
}

#[test]
fn a_transfer_goes_on_where_it_was() {
    for path in PATHS {
        let (there, here) = (directory(), directory());
        let source = new_file(there.path(), "a.bin", &contents(LENGTH, 1));
        let server = Server::start(path, there.path(), &["a.bin"]);
        let output = here.path().join("a.bin");
        let partial = partial(&output, &source);
        let done = (2 << 20) + 17;
        fs::write(&partial, &contents(LENGTH, 1)[..done]).unwrap();
        let got = json(path, here.path(), &["get", "--json", server.place()]);
        assert_eq!(got["resumed"], done, "{got}");
        assert!(fs::read(&output).unwrap() == contents(LENGTH, 1));
        assert!(!partial.exists());

        // Other bytes than those of the server: nobody takes them for the file, nor tries to go on with them twice.
        fs::write(&partial, &contents(LENGTH, 2)[..done]).unwrap();
        let words = ["get", "--force", "--json", server.place()];
        let text = fails(path, here.path(), &words, "bytes are not those of the server");
        assert!(text.contains(".part were corrupted") && text.contains("run the command again"), "{text}");
        assert!(!partial.exists() && fs::read(&output).unwrap() == contents(LENGTH, 1));
        assert_eq!(json(path, here.path(), &words)["resumed"], 0);

        // What was had of the file as it was is not gone on with.
        fs::write(&partial, &contents(LENGTH, 1)[..done]).unwrap();
        let mut file = File::options().write(true).open(&source).unwrap();
        file.write_all(&contents(LENGTH, 3)).unwrap();
        assert_eq!(json(path, here.path(), &words)["resumed"], 0);
        assert!(fs::read(&output).unwrap() == contents(LENGTH, 3));
    }
}

/// Starts a get of a file that takes a while, and waits until a part of it is there.
fn begin_get(path: &str, here: &Path, server: &Server, partial: &Path) -> Child {
    let child = pagewire(path, here, &["get", server.place()]).spawn().unwrap();
    wait_until("a part of the file comes", || fs::metadata(partial).is_ok_and(|part| part.len() > 0));
    child
}

#[test]
fn an_interrupted_or_lost_transfer_goes_on() {
    const LONG: u64 = 256 << 20;
    for path in PATHS {
        let (there, here) = (directory(), directory());
        let source = new_file(there.path(), "long.bin", b"begin");
        File::options().write(true).open(&source).unwrap().set_len(LONG).unwrap();
        let mut server = Server::start(path, there.path(), &["long.bin"]);
        let output = here.path().join("long.bin");
        let partial = partial(&output, &source);

        let child = begin_get(path, here.path(), &server, &partial);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{path}: {}", text(&ended));
        let had = fs::metadata(&partial).unwrap().len();
        assert!(had > 0 && had < LONG, "{had}");

        let port = server.port().to_string();
        let child = begin_get(path, here.path(), &server, &partial);
        wait_until("more of the file comes", || fs::metadata(&partial).unwrap().len() > had);
        server.child.kill().unwrap();
        let killed = Instant::now();
        let ended = child.wait_with_output().unwrap();
        assert!(killed.elapsed() < PATIENCE);
        let told = text(&ended);
        assert!(
            ended.status.code() == Some(1) && told.contains("run the same command again"),
            "{path}: {told}"
        );
        drop(server);

        let server = Server::start_at(&port, path, there.path(), &["long.bin"]);
        let got = json(path, here.path(), &["get", "--json", server.place()]);
        assert!(got["resumed"].as_u64().unwrap() > had, "{got}");
        assert!(fs::read(&output).unwrap() == fs::read(&source).unwrap());
    }
}

#[test]
fn what_is_put_is_there() {
    for path in PATHS {
        let (there, here) = (directory(), directory());
        let server = Server::start(path, there.path(), &["--writable", "--size", "6M", "result.bin"]);
        let file = new_file(here.path(), "own.bin", &contents(LENGTH, 4));
        let put = ["put", "--json", "own.bin", server.places[0].as_str()];
        assert_eq!(json(path, here.path(), &put)["bytes"], LENGTH);
        let there_now = fs::read(there.path().join("result.bin")).unwrap();
        assert!(there_now[..LENGTH] == contents(LENGTH, 4) && there_now.len() == 6 << 20);
        assert!(there_now[LENGTH..].iter().all(|byte| *byte == 0));
        json(path, here.path(), &["get", "--json", server.place()]);
        assert!(fs::read(here.path().join("result.bin")).unwrap() == there_now);

        // A note of an interrupted put: the rest is put, and the checksum tells whether the beginning is right.
        let upload = identity(&File::open(&file).unwrap()).unwrap();
        let note = |done| {
            let mut client = server.client();
            let name = "result.bin".to_owned();
            client.ask(Ask::Open { name: name.clone(), upload: Some(upload.clone()) }).unwrap();
            assert_eq!(client.ask(Ask::Note { name, upload: upload.clone(), done }).unwrap(), Reply::Noted);
        };
        note(1 << 20);
        assert_eq!(json(path, here.path(), &put)["resumed"], 1 << 20);
        new_file(here.path(), "other.bin", &contents(LENGTH, 5));
        json(path, here.path(), &["put", "--json", "other.bin", server.place()]);
        note(1 << 20);
        fails(path, here.path(), &put, "the server has other bytes");
        assert_eq!(json(path, here.path(), &put)["resumed"], 0);

        new_file(here.path(), "large.bin", &vec![1; (6 << 20) + 1]);
        fails(path, here.path(), &["put", "large.bin", server.place()], "--size 6291457");
        new_file(here.path(), "empty.bin", &[]);
        json(path, here.path(), &["put", "--json", "empty.bin", server.place()]);
        fails(path, here.path(), &["put", "empty.bin", &server.named("")], "no file 'empty.bin' is served");
    }
}

#[test]
fn memory_is_served_as_files_are() {
    let here = directory();
    let server = Server::start("auto", here.path(), &["--writable", "--size=1M"]);
    assert!(server.place().ends_with(":memory"));
    new_file(here.path(), "a.bin", &contents(70_001, 4));
    json("auto", here.path(), &["put", "--json", "a.bin", server.place()]);
    json("auto", here.path(), &["get", "--json", server.place()]);
    let got = fs::read(here.path().join("memory")).unwrap();
    assert!(got[..70_001] == contents(70_001, 4) && got.len() == 1 << 20);
    let listed = json("auto", here.path(), &["get", "--list", "--json", server.place()]);
    assert_eq!((&listed["length"], &listed["writable"]), (&(1 << 20).into(), &true.into()));
}

#[test]
fn a_file_that_is_truncated_harms_nobody_else() {
    let (there, here) = (directory(), directory());
    let source = new_file(there.path(), "a.bin", &contents(LENGTH, 1));
    new_file(there.path(), "b.bin", &contents(LENGTH, 2));
    let server = Server::start("auto", there.path(), &["a.bin", "b.bin"]);
    let open = Ask::Open { name: "a.bin".to_owned(), upload: None };
    let Reply::Opened(opened) = server.client().ask(open).unwrap() else { panic!() };
    let node = Node::alone().unwrap();
    let region = node.open(&opened.token().unwrap()).unwrap();
    File::options().write(true).open(&source).unwrap().set_len(1 << 20).unwrap();
    let error = region.get::<u8>(2 << 20, 4096).unwrap().wait().unwrap_err();
    assert!(matches!(error.failure, Failure::Refused { rule: Rule::Memory, .. }), "{error}");
    let asked = server.client().ask(Ask::Checksum { name: "a.bin".to_owned(), length: LENGTH as u64 });
    assert!(format!("{:#}", asked.unwrap_err()).contains("became shorter"));
    // A part is not taken for the file.
    let text = fails("auto", here.path(), &["get", server.place()], "a.bin became shorter");
    assert!(text.contains(&format!("1048576 of its {LENGTH} bytes")), "{text}");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left here");
    // Others have their files, and so has whoever opened this one before: what is left of it.
    json("auto", here.path(), &["get", "--json", &server.place().replace("a.bin", "b.bin")]);
    let left = region.get::<u8>(0, 1 << 20).unwrap().wait().unwrap();
    assert!(left == contents(LENGTH, 1)[..1 << 20]);
}

/// The file becomes shorter while a client gets it, at any moment: the client says so, and takes no zeros for bytes.
#[test]
fn truncation_midway_is_an_error_of_the_client() {
    for path in PATHS {
        let (there, here) = (directory(), directory());
        let source = there.path().join("a.bin");
        File::create(&source).unwrap().set_len(1 << 31).unwrap();
        let server = Server::start(path, there.path(), &["a.bin"]);
        let partial = partial(&here.path().join("a.bin"), &source);
        let child = begin_get(path, here.path(), &server, &partial);
        File::options().write(true).open(&source).unwrap().set_len((1 << 20) + 5).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = text(&output);
        assert!(output.status.code() == Some(1) && text.contains("a.bin became shorter"), "{path}: {text}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nobody can go on with what was had");
    }
}

#[test]
fn refusals_say_what_and_how_to_mend_it() {
    let here = directory();
    let directory = here.path();
    new_file(directory, "a.bin", b"abc");
    new_file(directory, "b.bin", b"abc");
    let server = Server::start("auto", directory, &["a.bin"]);
    let place = server.place();
    let port = server.port().to_string();
    let told =
        fails("auto", directory, &["get", &server.named("none"), "-o", "x"], "no file 'none' is served");
    assert_eq!(told.matches(&port).count(), 1, "the place is named once: {told}");
    fails("auto", directory, &["get", place], "--force");
    fails("auto", directory, &["get", place, "-o", "no/such/x"], "no/such/x");
    fails("auto", directory, &["get", place, place, "-o", "x"], "--output");
    fails("auto", directory, &["get", &server.named("../x")], "--output");
    fails("auto", directory, &["put", "a.bin", place], "--writable");
    fails("auto", directory, &["put", "none.bin", place], "none.bin");
    nix::unistd::mkfifo(&directory.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fails("auto", directory, &["put", "pipe", place], "no regular file");
    fails("auto", directory, &["get", "--force", place, "-o", "pipe"], "pipe is no regular file");
    fails("auto", directory, &["get", place, "-o", "-"], "standard output");
    std::os::unix::fs::symlink("absent", directory.join("dangling")).unwrap();
    fails("auto", directory, &["get", place, "-o", "dangling"], "dangling is there already");
    let left = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().ends_with(".part")).count(), 0);
    fails("auto", directory, &["put", "a.bin", "b.bin", place], "leave it out");
    fails("auto", directory, &["get", "127.0.0.1:1:a"], "is 'pagewire serve' running there");
    fails("auto", directory, &["get", "no-such-host.invalid:a"], "no-such-host.invalid");
    fails("auto", directory, &["serve", "--port", &port, "b.bin"], "--port 0");
    fails("auto", directory, &["serve", "--port", "0", "--address", "192.0.2.77", "b.bin"], "192.0.2.77");
    fails("auto", directory, &["serve", "--port", "0", "none.bin"], "none.bin");
    fails("auto", directory, &["serve", "--port", "0", "."], "no");
    fails("auto", directory, &["serve", "--port", "0", "/dev/zero"], "no regular file");
    fails("auto", directory, &["serve", "--port", "0", "a.bin", "./a.bin"], "another file has the name");
    for wrong in [
        ["serve", "--size", "1M"].as_slice(),
        &["serve"],
        &["serve", "--writable", "--size", "much"],
        &["serve", "--writable", "--read-only", "a.bin"],
        &["get"],
        &["get", ":x"],
        &["put", "a.bin"],
    ] {
        assert_eq!(run("auto", directory, wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(fs::read(directory.join("a.bin")).unwrap(), b"abc");
    let failed = run("auto", directory, &["get", "--json", &server.named("none")]);
    let line: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert!(line["name"] == "none" && line["error"].as_str().unwrap().contains("no file"), "{line}");
}

#[test]
fn hostile_bytes_end_their_own_connection_only() {
    let here = directory();
    new_file(here.path(), "a.bin", &contents(LENGTH, 1));
    let server = Server::start("auto", here.path(), &["a.bin"]);
    let connect = || TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut many = vec![b'x'; 1 << 20];
    many.push(b'\n');
    let deep = format!("{{\"pagewire_serve\":1,\"ask\":{}\n", "[".repeat(5000));
    for (bytes, wanted) in [
        (b"GET / HTTP/1.0\r\n\r\n".as_slice(), "no request"),
        (b"{\"pagewire_serve\":2,\"ask\":\"list\"}\n", "version 2"),
        (b"{\"pagewire_serve\":1,\"ask\":\"nonsense\"}\n", "makes no sense"),
        (b"{\"pagewire_serve\":1,\"ask\":\"open\",\"name\":7}\n", "makes no sense"),
        (b"{\"pagewire_serve\":1,\"ask\":\"open\",\"name\":\"../a.bin\"}\n", "no file"),
        (b"{\"pagewire_serve\":1,\"ask\":\"checksum\",\"name\":\"a.bin\",\"length\":18446744073709551615}\n", "has"),
        (b"{\"pagewire_serve\":1,\"ask\":\"checksum\",\"name\":\"a.bin\",\"length\":-1}\n", "makes no sense"),
        (deep.as_bytes(), "no request"),
        (&many, "at most"),
        (&[0xFF, 0xFE, 0, b'\n'], "no request"),
        (b"", ""),
        (b"{\"pagewire_serve\":1,", ""),
    ] {
        let mut stream = connect();
        // A refusal may come before all is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let name = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        // Where more was written than is read, the kernel may drop the answer with the connection.
        let may_be_lost = bytes.len() > 1 << 13 && answer.is_empty();
        assert!(answer.contains(wanted) || may_be_lost, "{name}: {answer}");
    }
    // More than there may be: the oldest ones go, and who has something to say is heard.
    let idle: Vec<_> = (0..150).map(|_| connect()).collect();
    wait_until("the oldest go", || {
        idle[0].set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        matches!((&idle[0]).read(&mut [0]), Ok(0))
    });
    wait_until("a client is heard", || {
        run("auto", here.path(), &["get", "--list", server.place()]).status.success()
    });
    json("auto", here.path(), &["get", "--json", server.place(), "-o", "copy.bin"]);
    assert!(fs::read(here.path().join("copy.bin")).unwrap() == contents(LENGTH, 1));
}

#[test]
fn a_server_at_all_addresses_is_reached_by_each() {
    let (there, here) = (directory(), directory());
    new_file(there.path(), "a.bin", &contents(LENGTH, 1));
    for path in PATHS {
        let server = Server::start(path, there.path(), &["--address=0.0.0.0", "a.bin"]);
        for address in ["127.0.0.1", "127.0.0.2", "localhost"] {
            let place = format!("{address}:{}:a.bin", server.port());
            json(path, here.path(), &["get", "--json", "--force", &place]);
            assert!(fs::read(here.path().join("a.bin")).unwrap() == contents(LENGTH, 1), "{address}");
        }
    }
}

#[test]
fn a_server_that_makes_no_sense_is_an_error() {
    let here = directory();
    for answer in [
        "\n",
        "nonsense\n",
        "{\"reply\":\"noted\"}\n",
        "{\"reply\":\"opened\",\"name\":\"a\",\"length\":9,\"writable\":false,\"identity\":\"../../../../x\",\"token\":\"00\",\"done\":0}\n",
        "{\"reply\":\"opened\",\"name\":\"a\",\"length\":9,\"writable\":false,\"identity\":\"0123456789abcdef\",\"token\":\"0é\",\"done\":0}\n",
        "{\"reply\":\"refused\",\"why\":\"\\u001b[2J\"}\n",
        "",
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("127.0.0.1:{}:a", listener.local_addr().unwrap().port());
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let output = run("auto", here.path(), &["get", &place]);
        serving.join().unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{answer}: {told}");
        assert!(!told.contains('\u{1b}') && !told.contains("panicked"), "{answer}: {told}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "{answer}");
    }
}

#[test]
fn a_server_that_is_ended_has_done_what_it_was_to_do() {
    let here = directory();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut server = Server::start("auto", here.path(), &["--writable", "--size", "1M", "a.bin"]);
        new_file(here.path(), "own.bin", &contents(1000, 1));
        json("auto", here.path(), &["put", "--json", "own.bin", server.place()]);
        server.signal(signal);
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{signal}");
        assert!(fs::read(here.path().join("a.bin")).unwrap()[..1000] == contents(1000, 1));
    }
}
