use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use redis::{RedisResult, cmd};

use super::server::Server;
use super::time::{SECOND, wait_patiently_until};

/// How long a topology may take to come up, or to fail over, on a busy machine.
const PATIENCE: Duration = SECOND.saturating_mul(60);

/// After how much silence a master is down. Sentinels ask every second, and begin anew when the master has changed:
/// hardly more than a second, and they would now and then fail over once more for no reason.
const SILENCE: Duration = SECOND.saturating_mul(3);

/// What the Sentinels call the master.
const MASTER: &str = "main";

/// How many of them must agree that the master is down.
const QUORUM: usize = 2;

/// How many servers there are, and how many Sentinels.
const EACH: usize = 3;

/// A master, two replicas, and three Sentinels that watch over them.
pub struct Sentinels {
    sentinels: Vec<Server>,
    servers: Vec<Server>,
}

impl Sentinels {
    /// Those that the tests of this binary share: for tests that need nothing but names of their own. They never fail
    /// over: a server that a busy machine does not run for seconds is waited for.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Sentinels> = LazyLock::new(|| Sentinels::start_noticing_after(SECOND * 600));
        &SHARED
    }

    /// Starts all six, and returns when they know one another. A master is taken to be down after 3 s of silence.
    pub fn start() -> Self {
        Self::start_noticing_after(SILENCE)
    }

    fn start_noticing_after(silence: Duration) -> Self {
        let servers = three(|| Server::start_with_config("", &["--repl-diskless-sync-delay", "0"]));
        let master = servers[0].port();
        for replica in &servers[1..] {
            replica.run(&format!("REPLICAOF 127.0.0.1 {master}"));
            replica.run("CONFIG REWRITE");
        }
        // A Sentinel learns of replicas from what the master says of them, and asks that every 10 s only.
        wait_patiently_until("the replicas to be in sync", PATIENCE, || {
            servers[1..].iter().all(Server::is_in_sync) && servers[0].replicas_in_sync() == EACH - 1
        });

        let silence = silence.as_millis();
        let config = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {master} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER} {silence}\n\
             sentinel failover-timeout {MASTER} 3000\n\
             sentinel announce-ip 127.0.0.1\n"
        );
        let sentinels = three(|| Server::start_with_config(&config, &["--sentinel"]));
        let started = Self { sentinels, servers };
        wait_patiently_until("the Sentinels to know one another", PATIENCE, || {
            started.running().all(|sentinel| knows_all(sentinel).unwrap_or(false))
        });
        started
    }

    /// `redis-sentinel://` with all Sentinels.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/0#{MASTER}", addresses.join(","))
    }

    /// The master and its replicas, in no order.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The master, by the first Sentinel that answers.
    #[track_caller]
    pub fn master(&self) -> &Server {
        let port = self.running().find_map(|sentinel| master_by(sentinel).ok());
        self.server_at(port.expect("a Sentinel that answers"))
    }

    /// The servers that are not the master.
    #[track_caller]
    pub fn replicas(&self) -> Vec<&Server> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master).collect()
    }

    /// Kills the master, and returns what was it.
    #[track_caller]
    pub fn kill_master(&self) -> &Server {
        let master = self.master();
        master.kill();
        master
    }

    /// Waits until all Sentinels name the same master, which is another one than `former` and says so itself.
    #[track_caller]
    pub fn wait_for_new_master(&self, former: &Server) -> &Server {
        let mut new = None;
        wait_patiently_until("a new master", PATIENCE, || {
            new = self.agreed_master().filter(|new| {
                new.port() != former.port() && new.try_info("replication", "role").as_deref() == Some("master")
            });
            new.is_some()
        });
        new.expect("a new master")
    }

    /// Has the Sentinels make another server the master, though the one there is works, and returns it.
    #[track_caller]
    pub fn failover(&self) -> &Server {
        let former = self.master();
        let sentinel = self.running().next().expect("a Sentinel");
        // They refuse while another failover is under way, and as long as they have not heard of a good replica.
        wait_patiently_until("the Sentinels to begin a failover", PATIENCE, || {
            let mut connection = sentinel.connection();
            cmd("SENTINEL")
                .arg("FAILOVER")
                .arg(MASTER)
                .exec(&mut connection)
                .is_ok()
        });
        self.wait_for_new_master(former)
    }

    /// Waits until all servers run and follow the same master, so that they are what they were before a failover. A
    /// former master that was restarted takes the Sentinels some 10 s to put right.
    #[track_caller]
    pub fn wait_until_settled(&self) {
        wait_patiently_until("all to follow one master", PATIENCE, || {
            let Some(master) = self.agreed_master() else {
                return false;
            };
            let knows_all = |sentinel: &Server| knows_all(sentinel).unwrap_or(false);
            master.try_info("replication", "role").as_deref() == Some("master")
                && master.replicas_in_sync() == EACH - 1
                && self.sentinels.iter().all(knows_all)
        });
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.runs())
    }

    /// The master, if all running Sentinels name the same.
    fn agreed_master(&self) -> Option<&Server> {
        let mut named = self.running().map(|sentinel| master_by(sentinel).ok());
        let first = named.next()??;
        named.all(|port| port == Some(first)).then(|| self.server_at(first))
    }

    #[track_caller]
    fn server_at(&self, port: u16) -> &Server {
        let mut servers = self.servers.iter();
        servers.find(|server| server.port() == port).expect("a server of ours")
    }
}

/// Starts three servers at a time.
fn three(start: impl Fn() -> Server + Sync) -> Vec<Server> {
    thread::scope(|scope| {
        let servers = [(); EACH].map(|()| scope.spawn(&start));
        servers.map(|server| server.join().expect("a server")).into()
    })
}

/// The port of the master, as this Sentinel says.
fn master_by(sentinel: &Server) -> RedisResult<u16> {
    let mut ask = cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER);
    let (_, port): (String, u16) = ask.query(&mut sentinel.try_connection()?)?;
    Ok(port)
}

/// Whether this Sentinel knows the master, both replicas and the other Sentinels, and finds all of them well.
fn knows_all(sentinel: &Server) -> RedisResult<bool> {
    let mut connection = sentinel.try_connection()?;
    let mut ask = |what: &str| -> RedisResult<Vec<BTreeMap<String, String>>> {
        cmd("SENTINEL").arg(what).arg(MASTER).query(&mut connection)
    };
    let others = ask("SENTINELS")?;
    let replicas = ask("REPLICAS")?;
    let master: BTreeMap<String, String> = cmd("SENTINEL").arg("MASTER").arg(MASTER).query(&mut connection)?;
    let is = |seen: &BTreeMap<String, String>, what: &str| seen.get("flags").is_some_and(|flags| flags == what);
    let follows = |replica: &BTreeMap<String, String>| {
        is(replica, "slave")
            && replica.get("master-link-status").is_some_and(|status| status == "ok")
            && replica.get("master-port") == master.get("port")
    };
    // What else may stand there is what the other said of a former master.
    let answers = |other: &BTreeMap<String, String>| {
        let flags = other.get("flags").map_or("", String::as_str);
        !flags.split(',').any(|flag| ["s_down", "disconnected"].contains(&flag))
    };
    Ok(is(&master, "master")
        && others.len() == EACH - 1
        && others.iter().all(answers)
        && replicas.len() == EACH - 1
        && replicas.iter().all(follows))
}
