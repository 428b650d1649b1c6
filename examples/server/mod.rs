//! The server that an example runs on: the one that `REDIS_URL` names, or one of its own.

use std::{
    env,
    error::Error,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Redis or Valkey server. One that was started for the example is stopped on drop.
pub struct Server {
    url: String,
    /// Only held for its drop.
    _own: Option<Own>,
}

/// A server with its socket in a temporary directory, without a TCP port, that writes nothing to disk. Stopped on drop.
struct Own {
    process: Child,
    directory: TempDir,
}

impl Server {
    /// The server that `REDIS_URL` names. If that is unset or empty, starts one, and returns once it answers.
    pub fn from_env_or_start() -> Result<Self, Box<dyn Error>> {
        let url = env::var("REDIS_URL").unwrap_or_default();
        if url.is_empty() {
            let own = Own::start()?;
            return Ok(Server {
                url: own.url(),
                _own: Some(own),
            });
        }
        // The URL is not shown: it may hold a password.
        ping(&url).map_err(|error| format!("the server that REDIS_URL names cannot be used: {error}"))?;
        Ok(Server { url, _own: None })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Own {
    fn start() -> Result<Self, Box<dyn Error>> {
        let program = find_program().ok_or(
            "this example needs a Redis or Valkey server, and found neither redis-server nor valkey-server: \
             run scripts/setup, which installs one, or set REDIS_URL to the URL of one that runs",
        )?;
        let directory = tempfile::Builder::new().prefix("redlatch-example-").tempdir()?;
        let log = File::create(directory.path().join("log"))?;
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--unixsocket")
            .arg(directory.path().join("socket"))
            .arg("--dir")
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        let mut own = Own { process, directory };
        own.wait_until_it_answers()?;
        Ok(own)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = ping(&self.url()) {
            if self.process.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                return Err(format!("the server did not start: {error}\n{log}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn url(&self) -> String {
        format!("unix://{}", self.directory.path().join("socket").display())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to save, and then the directory is removed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ping(url: &str) -> redis::RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    redis::cmd("PING").exec(&mut connection)
}

/// By the same rules as `scripts/setup --print-server`.
fn find_program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("REDLATCH_TEST_SERVER").filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = ["redis-server", "valkey-server"]
        .into_iter()
        .flat_map(|name| env::split_paths(&path).map(move |directory| directory.join(name)));
    let fetched = ["redis-8.2/redis-server", "valkey-9.1/valkey-server"]
        .into_iter()
        .map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers").join(file));
    on_path.chain(fetched).find(|file| file.is_file())
}
