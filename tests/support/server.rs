use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::port::ReservedPort;
use super::process;
use super::time::wait_until;

/// How long a server may take to start, stop or answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a replica may take until it follows its master.
const REPLICATION_PATIENCE: Duration = Duration::from_secs(30);

/// Runs the server ($2 and on) with its log in the directory $1, and tells its pid.
///
/// The server is killed when a line comes in, and also when the input ends, since that is what a
/// test process leaves behind however it dies; nobody is left then to remove the directory either.
/// What ends the tests from a terminal must not end this shell before it has done so.
const WRAPPER: &str = r#"
trap '' HUP INT QUIT TERM
dir=$1
shift
exec 3<&0
"$@" </dev/null >>"$dir/server.log" 2>&1 3<&- &
server=$!
(
    read -r _ <&3 || : >"$dir/abandoned"
    kill -9 "$server"
) >/dev/null &
watcher=$!
echo "$server"
wait "$server"
kill -9 "$watcher"
if [ -e "$dir/abandoned" ]; then
    rm -rf "$dir"
fi
"#;

/// A Redis or Valkey server of its own, on a unix socket and a TCP port of 127.0.0.1, with its data
/// in a temporary directory. It is stopped on drop, and with the test process if that is killed.
pub struct Server {
    port: ReservedPort,
    password: Option<String>,
    extra: Vec<String>,
    /// Whether it reads its configuration file, and may rewrite it.
    configured: bool,
    process: Mutex<Option<Process>>,
    dir: TempDir,
}

/// The one server that the tests of this binary share as long as any of them runs; for tests that
/// need nothing but names of their own.
pub fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

    // Held while the server starts, so that tests starting together get the same one.
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

impl Server {
    /// Starts an empty server that writes nothing to disk by itself.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more configuration, such as `&["--appendonly", "yes"]`.
    ///
    /// After `--requirepass` the password (letters and digits, please) is part of the URLs.
    pub fn start_with(extra: &[&str]) -> Self {
        Self::start_configured(None, extra).unwrap_or_else(|log| panic!("the server did not start: {log}"))
    }

    /// As [`start_with`](Self::start_with), with a configuration file as well, which the server may rewrite: it comes
    /// back from a restart with what stands there by then, such as the master that a Sentinel gave it.
    pub fn start_with_config(config: &str, extra: &[&str]) -> Self {
        Self::try_start_with_config(config, extra).unwrap_or_else(|log| panic!("the server did not start: {log}"))
    }

    /// As `start_with_config`, or the log of a server that does not start.
    pub fn try_start_with_config(config: &str, extra: &[&str]) -> Result<Self, String> {
        Self::start_configured(Some(config), extra)
    }

    fn start_configured(config: Option<&str>, extra: &[&str]) -> Result<Self, String> {
        let password = extra
            .iter()
            .position(|arg| *arg == "--requirepass")
            .map(|at| extra[at + 1].to_owned());
        let dir = tempfile::Builder::new()
            .prefix("redlatch-")
            .tempdir()
            .expect("a temporary directory for the server");
        let mut server = Self {
            port: ReservedPort::reserve().expect("a free TCP port"),
            password,
            extra: extra.iter().map(|arg| (*arg).to_owned()).collect(),
            configured: config.is_some(),
            process: Mutex::new(None),
            dir,
        };
        if let Some(config) = config {
            fs::write(server.config(), config).expect("to write the server's configuration");
        }
        // Another port helps only where a port cannot be reserved.
        for _ in 0..20 {
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(log) if log.contains("Address already in use") => {
                    server.port = ReservedPort::reserve().expect("a free TCP port");
                }
                Err(log) => return Err(log),
            }
        }
        Err("no free TCP port was found in 20 attempts".to_owned())
    }

    /// Starts a replica of this server, and waits until it follows.
    pub fn start_replica(&self) -> Self {
        let port = self.port().to_string();
        let replica = Self::start_with(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
        wait_until("the replica to follow", REPLICATION_PATIENCE, || {
            let info: String = redis::cmd("INFO")
                .arg("replication")
                .query(&mut replica.connection())
                .expect("what a replica tells of its master");
            info.contains("master_link_status:up")
        });
        replica
    }

    /// `redis://127.0.0.1:<port>/`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL of whatever stands in for this server at another port.
    pub(super) fn url_at(&self, port: u16) -> String {
        match &self.password {
            None => format!("redis://127.0.0.1:{port}/"),
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}/"),
        }
    }

    /// `unix://<socket>`, with the password if there is one.
    pub fn unix_url(&self) -> String {
        let socket = self.socket();
        match &self.password {
            None => format!("unix://{}", socket.display()),
            Some(password) => format!("unix://{}?pass={password}", socket.display()),
        }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Whether it was started and not killed since.
    pub fn runs(&self) -> bool {
        self.process.lock().is_some()
    }

    /// The pid of the server itself. Panics if it was killed.
    pub fn pid(&self) -> u32 {
        self.process.lock().as_ref().expect("the server runs").pid
    }

    /// A connection to look and meddle with, on which no read or write takes more than 5 s.
    pub fn connection(&self) -> redis::Connection {
        self.try_connection().expect("a connection to the test server")
    }

    /// As [`connection`](Self::connection), for servers that may be away.
    pub fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        connect(&self.url())
    }

    /// Runs a command given as one line, its words separated by single spaces.
    #[track_caller]
    pub fn run(&self, command: &str) -> redis::Value {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap_or_default());
        cmd.arg(words.collect::<Vec<_>>());
        let outcome = cmd.query(&mut self.connection());
        outcome.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// The string at `key`, or `None` if nothing is there.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<String> {
        let value = redis::cmd("GET").arg(key).query(&mut self.connection());
        value.expect("a string or nothing")
    }

    /// How much longer `key` stays, in whole milliseconds. `None` if it stays for ever, or is not there.
    #[track_caller]
    pub fn ttl(&self, key: &str) -> Option<Duration> {
        let millis: i64 = redis::cmd("PTTL").arg(key).query(&mut self.connection()).expect("PTTL");
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// One field of what `INFO` tells. `None` if it is not there.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        info(&mut self.connection(), section, field).expect("INFO")
    }

    /// As [`info`](Self::info), of servers that may be away.
    pub fn try_info(&self, section: &str, field: &str) -> Option<String> {
        info(&mut self.try_connection().ok()?, section, field).ok()?
    }

    /// How long it has been up, in whole seconds.
    #[track_caller]
    pub fn uptime(&self) -> Duration {
        let seconds = self.info("server", "uptime_in_seconds").expect("an uptime");
        Duration::from_secs(seconds.parse().expect("an uptime in seconds"))
    }

    /// Whether it is a replica that follows its master. False while it is away.
    pub fn is_in_sync(&self) -> bool {
        self.try_info("replication", "master_link_status").as_deref() == Some("up")
    }

    /// How many replicas follow it, and have what it has but for what it is just sending. None while it is away.
    pub fn replicas_in_sync(&self) -> usize {
        let replicas = (0..).map_while(|nth| self.try_info("replication", &format!("slave{nth}")));
        replicas.filter(|replica| replica.contains("state=online")).count()
    }

    /// The keys that match a pattern.
    #[track_caller]
    pub fn keys(&self, pattern: &str) -> Vec<Vec<u8>> {
        let keys = redis::cmd("KEYS").arg(pattern).query(&mut self.connection());
        keys.expect("KEYS")
    }

    /// Deletes the keys that match a pattern, all at once, and returns how many there were.
    #[track_caller]
    pub fn delete(&self, pattern: &str) -> usize {
        let keys = self.keys(pattern);
        if keys.is_empty() {
            return 0;
        }
        redis::cmd("DEL").arg(keys).query(&mut self.connection()).expect("DEL")
    }

    /// How often the server was asked for a command, by its lower-case name (`evalsha`,
    /// `script|load`).
    pub fn command_calls(&self, command: &str) -> u64 {
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection())
            .expect("INFO commandstats");
        let start = format!("cmdstat_{command}:calls=");
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .map_or(0, |rest| {
                let calls = rest.split(',').next().unwrap_or_default();
                calls.trim().parse().expect("a number of calls")
            })
    }

    /// Stops the server process (SIGSTOP): connecting still works, nothing is answered.
    pub fn stop_process(&self) {
        process::stop(self.pid());
    }

    /// Lets a stopped server go on (SIGCONT).
    pub fn continue_process(&self) {
        process::resume(self.pid());
    }

    /// Kills the server (SIGKILL) and waits until it is gone; connecting is refused from then on.
    pub fn kill(&self) {
        if let Some(process) = self.process.lock().take() {
            process.kill();
        }
    }

    /// Kills the server if it runs and starts it on the same port, socket and directory: with what
    /// it had last saved, which is nothing unless it was told to save.
    pub fn restart(&self) {
        self.kill();
        if let Err(log) = self.launch() {
            panic!("the server did not start again: {log}");
        }
    }

    /// Restarts the server without any data.
    pub fn restart_empty(&self) {
        self.kill();
        self.remove_data();
        self.restart();
    }

    /// Saves the data as it is now, for `restart_from_snapshot`.
    pub fn save_snapshot(&self) {
        redis::cmd("SAVE").exec(&mut self.connection()).expect("SAVE");
        fs::copy(self.dump(), self.snapshot()).expect("to keep a copy of the dump");
    }

    /// Restarts the server with the data that `save_snapshot` kept, as an old replica or a restored
    /// backup would. Not for servers with `--appendonly yes`: they read no snapshot.
    pub fn restart_from_snapshot(&self) {
        self.kill();
        self.remove_data();
        fs::copy(self.snapshot(), self.dump()).expect("a snapshot saved before");
        self.restart();
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("server.sock")
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("server.conf")
    }

    fn dump(&self) -> PathBuf {
        self.dir.path().join("dump.rdb")
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.path().join("snapshot.rdb")
    }

    fn remove_data(&self) {
        // Either may be missing.
        let _ = fs::remove_file(self.dump());
        let _ = fs::remove_dir_all(self.dir.path().join("appendonlydir"));
    }

    /// Starts the process and waits until it answers. The error is the server's log.
    fn launch(&self) -> Result<(), String> {
        let log = self.dir.path().join("server.log");
        let _ = fs::remove_file(&log);
        let mut process = Process::spawn(self.dir.path(), &self.arguments());
        let mut answers = false;
        wait_until("the server to answer or to end", PATIENCE, || {
            // The socket's path is ours alone and it opens after the TCP port, so an answer here
            // cannot be that of somebody else's server at our port.
            answers = connect(&self.unix_url())
                .and_then(|mut connection| redis::cmd("PING").exec(&mut connection))
                .is_ok();
            answers || process.ended()
        });
        if answers {
            *self.process.lock() = Some(process);
            Ok(())
        } else {
            process.kill();
            Err(fs::read_to_string(&log).unwrap_or_default())
        }
    }

    fn arguments(&self) -> Vec<String> {
        let port = self.port().to_string();
        let dir = self.dir.path().display().to_string();
        let socket = self.socket().display().to_string();
        #[rustfmt::skip]
        let own = [
            "--port", &port, "--bind", "127.0.0.1", "--unixsocket", &socket, "--dir", &dir,
            "--save", "", "--appendonly", "no", "--daemonize", "no",
        ];
        // The file comes first: what is said here counts more than what stands there.
        let config = self.configured.then(|| self.config().display().to_string());
        let own = config.into_iter().chain(own.map(str::to_owned));
        own.chain(self.extra.iter().cloned()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A running server and the shell that watches over it.
struct Process {
    wrapper: Child,
    pid: u32,
}

impl Process {
    fn spawn(dir: &Path, arguments: &[String]) -> Self {
        let mut wrapper = Command::new("sh")
            .args(["-c", WRAPPER, "sh"])
            .arg(dir)
            .arg(server_binary())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh to start the server with");
        let mut pid = String::new();
        BufReader::new(wrapper.stdout.take().expect("a piped stdout"))
            .read_line(&mut pid)
            .expect("the server's pid");
        Self {
            wrapper,
            pid: pid.trim().parse().expect("the server's pid"),
        }
    }

    fn ended(&mut self) -> bool {
        self.wrapper.try_wait().expect("a child to wait for").is_some()
    }

    /// Has the server killed by its parent, which alone can be sure that the pid is still its own.
    fn kill(mut self) {
        // A line and not just the end of the input: a fork of this process may hold the pipe too.
        // It cannot be written if the server has ended by itself.
        let _ = self.wrapper.stdin.take().expect("a piped stdin").write_all(b"kill\n");
        self.wrapper.wait().expect("a child to wait for");
    }
}

fn connect(url: &str) -> redis::RedisResult<redis::Connection> {
    let timeout = Duration::from_secs(5);
    let connection = redis::Client::open(url)?.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

fn info(connection: &mut redis::Connection, section: &str, field: &str) -> redis::RedisResult<Option<String>> {
    let info: String = redis::cmd("INFO").arg(section).query(connection)?;
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(name, _)| *name == field);
    Ok(found.map(|(_, value)| value.to_owned()))
}

/// The server to run, by the same rules as in `scripts/setup`.
fn server_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("REDLATCH_TEST_SERVER").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = ["redis-server", "valkey-server"]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)));
    let fetched = ["redis-8.2/redis-server", "valkey-9.1/valkey-server"]
        .into_iter()
        .map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers").join(file));
    let is_program = |file: &PathBuf| {
        let permissions = fs::metadata(file).map(|file| (file.is_file(), file.permissions().mode()));
        permissions.is_ok_and(|(is_file, mode)| is_file && mode & 0o111 != 0)
    };
    on_path.chain(fetched).find(is_program).expect(
        "no redis-server or valkey-server was found: run scripts/setup, or set REDLATCH_TEST_SERVER to the path of one",
    )
}
