//! The test support itself: that the proxy's faults are what they say, and that the servers of the
//! tests obey and leave nothing behind.

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, cmd};
use support::{
    Fault, FaultHandle, Proxy, Server, SetOnDrop, is_acquire, is_registration, is_release, is_renew, is_turn,
    is_withdraw, load_scripts, shared, wait_until,
};

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// How long a silent connection is listened to.
const SILENCE: Duration = Duration::from_millis(50);

fn connect(proxy: &Proxy) -> Connection {
    let client = redis::Client::open(proxy.url()).unwrap();
    let connection = client.get_connection_with_timeout(SOON).unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    connection
}

fn is(command: &'static str) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync {
    move |args| args[0].eq_ignore_ascii_case(command.as_bytes())
}

/// A command by name on the given key, so that tests on the shared server do not meet.
fn is_on(command: &'static str, key: &'static str) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync {
    move |args| is(command)(args) && args.get(1).is_some_and(|arg| arg == key.as_bytes())
}

fn set(connection: &mut Connection, key: &str) -> RedisResult<()> {
    cmd("SET").arg(key).arg("x").exec(connection)
}

fn exists(server: &Server, key: &str) -> bool {
    cmd("EXISTS").arg(key).query(&mut server.connection()).unwrap()
}

/// The connection was closed, which a timeout is not.
fn assert_closed(result: RedisResult<()>) {
    let error = result.unwrap_err();
    assert!(error.is_io_error() && !error.is_timeout(), "{error:?}");
}

#[test]
fn the_server_gets_what_a_command_was_rewritten_to() {
    let server = shared();
    let proxy = Proxy::rewriting(&server, |args| {
        let rewritten = args.contains(&b"written".to_vec());
        rewritten.then(|| [&args[..1], &[b"rewritten".to_vec()], &args[2..]].concat())
    });
    let mut proxied = connect(&proxy);
    let sets = proxy.on(is_on("SET", "written")).every().watch();
    set(&mut proxied, "written").unwrap();
    set(&mut proxied, "left as it is").unwrap();
    assert!(exists(&server, "rewritten") && exists(&server, "left as it is"));
    assert!(!exists(&server, "written"));
    assert_eq!(sets.seen(), 1, "a rule sees what the client sent");
}

#[test]
fn commands_and_replies_pass_unchanged() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let mut direct = server.connection();
    let mut proxied = connect(&proxy);
    let big = "v".repeat(1 << 20);
    cmd("SET").arg("pass:big").arg(&big).exec(&mut proxied).unwrap();
    cmd("SET").arg("pass:empty").arg("").exec(&mut proxied).unwrap();
    assert_eq!(cmd("GET").arg("pass:big").query::<String>(&mut proxied).unwrap(), big);

    let nested = "return {1, {'a', {false}, {}}, {ok = 'fine'}, 'b\\r\\nc'}";
    let nested = cmd("EVAL").arg(nested).arg(0).clone();
    let commands = [
        cmd("GET").arg("pass:empty").clone(),
        cmd("GET").arg("pass:missing").clone(),
        cmd("INCR").arg("pass:empty").clone(),
        cmd("COMMAND").clone(),
        nested,
    ];
    for command in commands {
        let through: RedisResult<redis::Value> = command.query(&mut proxied);
        assert_eq!(through, command.query(&mut direct));
    }
}

#[test]
fn resp3_replies_pass_too() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let client = redis::Client::open(format!("{}?protocol=resp3", proxy.url())).unwrap();
    let mut connection = client.get_connection_with_timeout(SOON).unwrap();
    let values: redis::Value = cmd("EVAL")
        .arg("redis.setresp(3); return {{map = {a = 1}}, {double = 0.5}, {set = {x = true}}, true}")
        .arg(0)
        .query(&mut connection)
        .unwrap();
    assert!(
        matches!(&values, redis::Value::Array(items) if items.len() == 4),
        "{values:?}"
    );
    cmd("PING").exec(&mut connection).unwrap();
}

#[test]
fn a_subscriber_hears_messages_and_may_subscribe_further() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    let mut subscriber = connection.as_pubsub();
    subscriber.subscribe("news:1").unwrap();
    subscriber.subscribe("news:2").unwrap();
    for channel in ["news:1", "news:2"] {
        let heard: usize = cmd("PUBLISH")
            .arg(channel)
            .arg("hello")
            .query(&mut server.connection())
            .unwrap();
        assert_eq!(heard, 1);
        assert_eq!(subscriber.get_message().unwrap().get_channel_name(), channel);
    }
}

#[test]
fn swallow_reply_applies_the_command_and_stays_silent() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "swallow")).apply(Fault::SwallowReply);
    let mut connection = connect(&proxy);
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    let error = set(&mut connection, "swallow").unwrap_err();
    // A closed connection would have shown at once, and not as a timeout.
    assert!(error.is_timeout(), "{error:?}");
    fault.wait_hit(SOON);
    assert!(exists(&server, "swallow"));
    assert_eq!((fault.seen(), fault.hits()), (1, 1));
    set(&mut connect(&proxy), "swallow").unwrap();
    assert_eq!((fault.seen(), fault.hits()), (2, 1));
}

#[test]
fn a_silent_connection_closes_at_the_server_with_its_client() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "silent")).apply(Fault::SwallowReply);
    let mut direct = server.connection();
    let mut is_connected = || {
        let clients: String = cmd("CLIENT").arg("LIST").query(&mut direct).unwrap();
        clients.contains("name=silent ")
    };
    let mut connection = connect(&proxy);
    cmd("CLIENT")
        .arg("SETNAME")
        .arg("silent")
        .exec(&mut connection)
        .unwrap();
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    set(&mut connection, "silent").unwrap_err();
    fault.wait_hit(SOON);
    assert!(is_connected());
    drop(connection);
    wait_until("the server to lose the client", SOON, || !is_connected());
}

#[test]
fn cut_after_applies_the_command_and_closes() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "after")).apply(Fault::CutAfter);
    assert_closed(set(&mut connect(&proxy), "after"));
    fault.wait_hit(SOON);
    assert!(exists(&server, "after"));
}

#[test]
fn cut_before_closes_and_applies_nothing() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "before")).apply(Fault::CutBefore);
    let mut connection = connect(&proxy);
    assert_closed(set(&mut connection, "before"));
    fault.wait_hit(SOON);
    assert!(!exists(&server, "before"));
    set(&mut connect(&proxy), "before").unwrap();
    assert!(exists(&server, "before"));
}

#[test]
fn delay_reply_applies_at_once_and_answers_later() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let delay = Duration::from_millis(80);
    let fault = proxy.on(is_on("set", "delay")).apply(Fault::DelayReply(delay));
    let mut connection = connect(&proxy);
    let start = Instant::now();
    set(&mut connection, "delay").unwrap();
    let took = start.elapsed();
    assert!(took >= delay && took < SOON, "{took:?}");
    assert_eq!(fault.hits(), 1);
    set(&mut connection, "delay").unwrap();
}

#[test]
fn answer_applies_the_command_and_says_something_else() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    let _struck = proxy.on(is("SET")).apply(Fault::Answer("-POISON of the test\r\n"));
    let error = set(&mut connection, "k").unwrap_err();
    assert_eq!(error.code(), Some("POISON"));
    assert!(exists(&server, "k"));
    set(&mut connection, "l").unwrap();
}

#[test]
fn a_held_request_runs_after_its_client_has_gone() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "held")).apply(Fault::HoldRequest);
    let mut connection = connect(&proxy);
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(set(&mut connection, "held").unwrap_err().is_timeout());
    drop(connection);
    fault.wait_hit(SOON);
    assert_eq!(proxy.held(), 1);
    assert!(!exists(&server, "held"));
    assert_eq!(proxy.release_held(), [b"+OK\r\n"]);
    assert!(exists(&server, "held"));
    assert_eq!(proxy.held(), 0);
    assert!(proxy.release_held().is_empty());
}

#[test]
fn a_patient_client_gets_the_reply_to_its_held_request() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("set", "patient")).apply(Fault::HoldRequest);
    let mut connection = connect(&proxy);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            set(&mut connection, "patient")?;
            cmd("GET").arg("patient").query::<String>(&mut connection)
        });
        fault.wait_hit(SOON);
        proxy.release_held();
        assert_eq!(client.join().unwrap().unwrap(), "x");
    });
}

#[test]
fn the_nth_of_a_pipeline_is_struck_and_the_ones_before_are_answered() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let fault = proxy.on(is_on("incr", "nth")).nth(3).apply(Fault::CutAfter);
    let mut raw = TcpStream::connect(proxy.url().trim_start_matches("redis://").trim_end_matches('/')).unwrap();
    raw.set_read_timeout(Some(SOON)).unwrap();
    raw.write_all(&b"*2\r\n$4\r\nINCR\r\n$3\r\nnth\r\n".repeat(5)).unwrap();
    let mut replies = String::new();
    raw.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, ":1\r\n:2\r\n");
    fault.wait_hit(SOON);
    assert_eq!(fault.seen(), 3);
    let value: u32 = cmd("GET").arg("nth").query(&mut server.connection()).unwrap();
    assert_eq!(value, 3);
}

#[test]
fn every_match_is_struck_until_the_rule_ends() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let watched = proxy.on(is_on("set", "every")).watch();
    let fault = proxy.on(is_on("set", "every")).every().apply(Fault::CutBefore);
    for _ in 0..3 {
        assert_closed(set(&mut connect(&proxy), "every"));
    }
    fault.wait_hits(3, SOON);
    fault.end();
    set(&mut connect(&proxy), "every").unwrap();
    assert_eq!((fault.seen(), fault.hits()), (3, 3));
    assert_eq!((watched.seen(), watched.hits()), (4, 0));
    watched.wait_seen(4, SOON);
}

#[test]
fn a_script_that_the_server_does_not_know_does_not_count() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let script = redis::Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX') -- noscript");
    let digest = script.get_hash().as_bytes().to_vec();
    let runs_it = move |args: &[Vec<u8>]| is("evalsha")(args) && args[1] == digest;
    let fault = proxy.on(runs_it).apply(Fault::CutAfter);
    let mut connection = connect(&proxy);
    // Sends EVALSHA, loads the script on NOSCRIPT, and sends EVALSHA again.
    let result = script.key("noscript").arg("token").invoke(&mut connection);
    assert_closed(result);
    fault.wait_hit(SOON);
    assert_eq!(fault.seen(), 1);
    assert!(exists(&server, "noscript"));
}

#[test]
fn a_fault_that_has_not_struck_is_told_when_its_handle_goes() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let missed = proxy.on(is("never")).apply(Fault::CutAfter);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(missed)));
    let said = panicked.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains(file!()) && said.contains("has not struck"), "{said}");
    drop(proxy.on(is("never")).may_miss().apply(Fault::CutAfter));
    drop(proxy.on(is("never")).watch());
}

#[test]
fn a_flag_is_set_however_its_scope_ends() {
    let (orderly, panicked) = (AtomicBool::new(false), AtomicBool::new(false));
    drop(SetOnDrop(&orderly));
    let scope = std::panic::AssertUnwindSafe(|| {
        let _panicked = SetOnDrop(&panicked);
        panic!("in the scope");
    });
    std::panic::catch_unwind(scope).unwrap_err();
    assert!(orderly.into_inner() && panicked.into_inner());
}

#[test]
fn the_scripts_of_a_real_client_are_told_apart() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let seen = [is_acquire, is_renew, is_release].map(|which| proxy.on(which).watch());
    let counts = || seen.each_ref().map(FaultHandle::seen);
    let lock = redlatch::Client::open(proxy.url()).unwrap().lock("x");
    // The first round has the texts sent, the second only their digests.
    for round in 0..2 {
        let guard = lock.acquire().unwrap();
        assert_eq!(counts(), [round + 1, round, round]);
        guard.extend(SOON * 60).unwrap();
        assert_eq!(counts(), [round + 1, round + 1, round]);
        guard.release().unwrap();
        assert_eq!(counts(), [round + 1, round + 1, round + 1]);
    }
    assert_eq!(server.command_calls("eval"), 3);
    cmd("SET").arg("x").arg("y").exec(&mut connect(&proxy)).unwrap();
    assert_eq!(counts(), [2, 2, 2]);
}

#[test]
fn the_scripts_of_those_who_wait_are_told_apart() {
    let server = Server::start();
    load_scripts(&server);
    let proxy = Proxy::to(&server);
    let seen = [is_registration, is_turn, is_withdraw].map(|which| proxy.on(which).watch());
    let client = redlatch::Client::open(proxy.url()).unwrap();
    let (lock, other) = (client.lock("x"), client.lock("x").fair(true));
    let guard = lock.acquire().unwrap();
    thread::scope(|scope| {
        let wait = |lock: &redlatch::Lock| {
            let lock = lock.clone();
            scope.spawn(move || lock.acquire_timeout(SOON).unwrap().release().unwrap())
        };
        let fair = wait(&other);
        seen[0].wait_seen(1, SOON);
        guard.release().unwrap();
        fair.join().unwrap();
        // Nobody can see who waits in this process only.
        wait_until("a lease to be asked for again", SOON, || {
            let guard = lock.acquire().unwrap();
            let waiting = wait(&lock);
            thread::sleep(SILENCE);
            guard.release().unwrap();
            waiting.join().unwrap();
            seen[1].seen() > 0
        });
    });
    assert_eq!(server.command_calls("eval"), 0);
}

#[test]
fn down_refuses_and_closes_and_up_serves_again() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy);
    proxy.go_down();
    assert_closed(set(&mut connection, "down"));
    let client = redis::Client::open(proxy.url()).unwrap();
    let start = Instant::now();
    let error = client.get_connection_with_timeout(SOON).err().unwrap();
    // A child of this process that is just being started may have the port for an instant longer, and drop what comes.
    assert!(
        error.is_connection_refusal() || error.is_connection_dropped(),
        "{error:?}"
    );
    assert!(start.elapsed() < SOON / 2);
    proxy.go_down();
    proxy.go_up();
    proxy.go_up();
    set(&mut connect(&proxy), "down").unwrap();
}

#[test]
fn a_black_hole_accepts_everything_and_answers_nothing() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let mut before = connect(&proxy);
    let mut listening = connect(&proxy);
    let mut listening = listening.as_pubsub();
    listening.subscribe("hole").unwrap();
    listening.set_read_timeout(Some(SILENCE)).unwrap();
    proxy.black_hole(true);

    let address = proxy
        .url()
        .trim_start_matches("redis://")
        .trim_end_matches('/')
        .to_owned();
    let mut new = TcpStream::connect(address).unwrap();
    new.set_read_timeout(Some(SILENCE)).unwrap();
    new.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let error = new.read(&mut [0; 16]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));

    before.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(set(&mut before, "hole").unwrap_err().is_timeout());
    assert!(!exists(&server, "hole"));
    cmd("PUBLISH")
        .arg("hole")
        .arg("unheard")
        .exec(&mut server.connection())
        .unwrap();
    assert!(listening.get_message().unwrap_err().is_timeout());

    proxy.black_hole(false);
    set(&mut connect(&proxy), "hole").unwrap();
}

#[test]
fn a_muted_subscriber_hears_nothing_and_others_do() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let (mut muted, mut later) = (connect(&proxy), connect(&proxy));
    let mut muted = muted.as_pubsub();
    muted.subscribe("mute").unwrap();
    muted.set_read_timeout(Some(SILENCE)).unwrap();
    proxy.mute_subscribers();
    // One that asks is not concerned, however old its connection is.
    set(&mut later, "mute").unwrap();
    let mut new = connect(&proxy);
    let mut new = new.as_pubsub();
    new.subscribe("mute").unwrap();
    let publish = cmd("PUBLISH").arg("mute").arg("heard").query(&mut server.connection());
    assert_eq!(publish, Ok(2));
    assert_eq!(new.get_message().unwrap().get_payload::<String>().unwrap(), "heard");
    assert!(muted.get_message().unwrap_err().is_timeout());
    assert!(muted.unsubscribe("mute").unwrap_err().is_timeout());
}

#[test]
fn a_dropped_proxy_lets_go_of_every_kind_of_connection() {
    let server = shared();
    let proxy = Proxy::to(&server);
    let in_state = |key, fault: Option<Fault>| {
        let rule = proxy.on(is_on("set", key));
        let handle = fault.map(|fault| rule.apply(fault));
        let mut connection = connect(&proxy);
        connection.set_read_timeout(Some(SILENCE)).unwrap();
        if let Some(handle) = handle {
            set(&mut connection, key).unwrap_err();
            handle.wait_hit(SOON);
        }
        connection
    };
    let mut idle = in_state("drop:idle", None);
    let _silent = in_state("drop:silent", Some(Fault::SwallowReply));
    let _held = in_state("drop:held", Some(Fault::HoldRequest));
    let _delayed = in_state("drop:delayed", Some(Fault::DelayReply(Duration::from_secs(3600))));
    let mut subscriber = connect(&proxy);
    let mut subscriber = subscriber.as_pubsub();
    subscriber.subscribe("drop").unwrap();

    // Joins all threads: it would hang here.
    drop(proxy);
    assert_closed(set(&mut idle, "drop:idle"));
    assert!(!subscriber.get_message().unwrap_err().is_timeout());
    assert!(!exists(&server, "drop:held"));
}

#[test]
fn a_stopped_server_answers_when_it_goes_on() {
    let server = Server::start();
    let mut connection = server.connection();
    connection.set_read_timeout(Some(SILENCE)).unwrap();
    server.stop_process();
    assert!(set(&mut connection, "stopped").unwrap_err().is_timeout());
    server.continue_process();
    // What it was sent meanwhile it runs, although nobody waits for the answer any more.
    wait_until("the stalled SET", SOON, || exists(&server, "stopped"));
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_at_its_port() {
    let server = Server::start();
    let url = server.url();
    set(&mut server.connection(), "lost").unwrap();
    server.kill();
    let error = redis::Client::open(url).unwrap().get_connection().err().unwrap();
    assert!(error.is_connection_refusal(), "{error:?}");
    server.restart();
    assert!(!exists(&server, "lost"));
}

#[test]
fn a_restart_keeps_what_was_saved_and_a_snapshot_brings_back_the_past() {
    let server = Server::start();
    let value = || {
        cmd("GET")
            .arg("n")
            .query::<Option<u32>>(&mut server.connection())
            .unwrap()
    };
    let put = |n: u32| cmd("SET").arg("n").arg(n).exec(&mut server.connection()).unwrap();
    put(1);
    server.save_snapshot();
    put(2);
    cmd("SAVE").exec(&mut server.connection()).unwrap();
    put(3);
    server.restart();
    assert_eq!(value(), Some(2));
    server.restart_from_snapshot();
    assert_eq!(value(), Some(1));
    server.restart_empty();
    assert_eq!(value(), None);
}

#[test]
fn an_append_only_server_forgets_nothing_unless_it_is_told_to() {
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    set(&mut server.connection(), "kept").unwrap();
    server.restart();
    assert!(exists(&server, "kept"));
    server.restart_empty();
    assert!(!exists(&server, "kept"));
}

#[test]
fn a_password_is_part_of_the_urls() {
    let server = Server::start_with(&["--requirepass", "sesame"]);
    let proxy = Proxy::to(&server);
    set(&mut server.connection(), "open").unwrap();
    set(&mut connect(&proxy), "open").unwrap();
    let mut unix = redis::Client::open(server.unix_url())
        .unwrap()
        .get_connection()
        .unwrap();
    set(&mut unix, "open").unwrap();
    let bare = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let refused = bare
        .get_connection()
        .and_then(|mut connection| set(&mut connection, "open"));
    assert_eq!(refused.unwrap_err().code(), Some("NOAUTH"));
}

#[test]
fn the_server_tells_its_pid_and_counts_its_commands() {
    let server = Server::start();
    let info: String = cmd("INFO").arg("server").query(&mut server.connection()).unwrap();
    assert!(info.contains(&format!("process_id:{}\r\n", server.pid())));
    assert_eq!(server.command_calls("set"), 0);
    set(&mut server.connection(), "counted").unwrap();
    set(&mut server.connection(), "counted").unwrap();
    assert_eq!(server.command_calls("set"), 2);
}

/// Runs itself as another process, which is killed with its server running.
#[test]
fn the_server_ends_with_a_test_process_that_is_killed() {
    const VICTIM: &str = "REDLATCH_TEST_VICTIM";
    if std::env::var_os(VICTIM).is_some() {
        let server = Server::start();
        println!("\nserver {} {}", server.pid(), server.unix_url());
        // For ever, or as long as there is somebody to kill it.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_server_ends_with_a_test_process_that_is_killed",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map(|line| line.unwrap())
        .find(|line| line.starts_with("server "))
        .expect("a server in the other process");
    let (pid, url) = line["server ".len()..].split_once(' ').unwrap();
    let client = redis::Client::open(url).unwrap();
    client.get_connection().expect("the other process's server to answer");
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the orphaned server to end", SOON, || {
        // SAFETY: signal 0 only asks whether the process is there.
        unsafe { libc::kill(pid.parse().unwrap(), 0) != 0 }
    });
    let directory = std::path::Path::new(url.trim_start_matches("unix://"))
        .parent()
        .unwrap();
    wait_until("its directory to go", SOON, || !directory.exists());
}
