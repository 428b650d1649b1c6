//! What each function of the C API does with good and with bad arguments, as C programs state it: see `programs/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
};

use libtest_mimic::Trial;

use crate::{
    header::listed_symbols,
    sanitized,
    support::{self, Fault, Proxy, SECOND, Server, Worker, is_acquire, wait_until},
    toolchain::{compile, prefix, repository, succeed, trial, with_library, workshop},
};

/// What a program needs to be built and run, and to be ended if it hangs.
const NEEDS: [&str; 3] = ["gcc", "pkg-config", "timeout"];

/// The programs of which the checks may find more than they state themselves. (Those of a child, and of what there is
/// no room for, do not go with the checks.)
const CHECKED_IN_RUST_CODE: [&str; 6] = ["arguments", "messages", "callbacks", "handles", "several", "signals"];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![trial(
        "each_status_has_a_text_of_its_own",
        &NEEDS,
        each_status_has_a_text_of_its_own,
    )];
    let mut programs = vec!["settings", "sigpipe", "statuses"];
    macro_rules! on_a_server_and_in_memory {
        ($($scenario:ident: $program:literal, $server:ident, $memory:ident;)*) => {
            $(
                let on_server = concat!(stringify!($scenario), "_on_a_server");
                let in_memory = concat!(stringify!($scenario), "_in_memory");
                programs.push($program);
                trials.push(trial(on_server, &NEEDS, || $server($program)));
                trials.push(trial(in_memory, &NEEDS, || $memory($program)));
            )*
        };
    }
    on_a_server_and_in_memory! {
        every_c_function_does_what_it_says: "calls", calls_on_a_server, calls_in_memory;
        bad_arguments_are_refused_and_change_nothing: "arguments", on_a_server, in_memory;
        each_status_comes_of_its_cause: "codes", codes_on_a_server, in_memory;
        the_last_message_is_whole_and_has_no_password: "messages", on_a_server, in_memory;
        callbacks_get_what_is_theirs_and_end_in_time: "callbacks", on_a_server, in_memory;
        handles_go_on_without_one_another: "handles", on_a_server, in_memory;
        a_storm_of_signals_changes_nothing: "signals", on_a_server, in_memory;
        a_cancelled_thread_ends_after_its_call: "cancelled_threads", on_a_server, in_memory;
        several_locks_are_held_as_one: "several", on_a_server, in_memory;
        a_forked_child_has_nothing_of_its_parents: "fork", fork_on_a_server, fork_in_memory;
    }
    trials.push(trial(
        "every_exported_function_is_called_by_a_c_program",
        &["gcc", "pkg-config", "nm"],
        move || every_exported_function_is_called_by(&programs),
    ));
    for name in CHECKED_IN_RUST_CODE {
        let trial_name = format!("the_c_program_{name}_finds_nothing_with_rust_code_checked");
        trials.push(sanitized::trial_with_rust_code(&trial_name, &["timeout"], move || {
            let program = workshop(&format!("program_{name}_checked")).join(name);
            sanitized::compile(&["-std=c99"], &[&source(name)], &program);
            // Of its own: the same names are in use on the one that is shared.
            succeed(bounded(program).arg(Server::start().url()));
        }));
    }
    trials.push(trial("each_setting_is_acted_on", &NEEDS, || {
        let server = Server::start();
        let _replica = server.start_replica();
        succeed(bounded(program("settings")).args([server.url(), server.pid().to_string()]));
    }));
    trials.push(trial("a_server_that_goes_away_raises_no_sigpipe", &NEEDS, || {
        goes_on_without(Server::start(), Server::url);
        goes_on_without(Server::start(), Server::unix_url);
    }));
    trials.push(trial(
        "a_library_that_is_closed_while_a_lock_is_held_goes_on_renewing",
        &NEEDS,
        a_library_that_is_closed_while_a_lock_is_held_goes_on_renewing,
    ));
    trials
}

fn source(program: &str) -> String {
    format!("tests/capi/programs/{program}.c")
}

/// A C program of `programs/`, built once for this run.
fn program(name: &'static str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, &OnceLock<PathBuf>>> = Mutex::new(BTreeMap::new());
    let built = *BUILT
        .lock()
        .unwrap()
        .entry(name)
        .or_insert_with(|| Box::leak(Box::default()));
    let build = || {
        let program = workshop(&format!("program_{name}")).join(name);
        compile("gcc", &["-std=c99", "-g"], &[&source(name)], &program);
        program
    };
    built.get_or_init(build).clone()
}

/// Has a program ended if it hangs.
fn bounded(program: impl AsRef<Path>) -> Command {
    let mut command = with_library("timeout");
    command.args(["--kill-after=5", "120"]).arg(program.as_ref());
    command
}

/// Has "ended: " and its exit status as the last line of a program's output.
fn telling_its_end(program: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$@\"; echo \"ended: $?\"", "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        command.env(name, value.expect("only set"));
    }
    command
}

fn on_a_server(name: &'static str) {
    succeed(bounded(program(name)).arg(support::shared().url()));
}

fn in_memory(name: &'static str) {
    succeed(bounded(program(name)).arg("memory://"));
}

fn calls_on_a_server(name: &'static str) {
    let server = support::shared();
    server.run("SET calls:audited:string abandoned");
    server.run("HSET calls:audited:hash abandoned 1");
    server.run("SET calls:audited:leased held PX 600000");
    succeed(bounded(program(name)).args([&server.url(), "2"]));
}

fn calls_in_memory(name: &'static str) {
    succeed(bounded(program(name)).args(["memory://", "0"]));
}

fn codes_on_a_server(name: &'static str) {
    let server = Server::start();
    server.run("ACL SETUSER nobody on >secret -@all");
    let refusing = format!("redis://nobody:secret@127.0.0.1:{}/", server.port());
    let silent = Proxy::to(&server);
    let swallowed = silent.on(is_acquire).apply(Fault::SwallowReply);
    succeed(bounded(program(name)).args([&server.url(), &refusing, silent.url()]));
    assert_eq!(swallowed.hits(), 1);
}

fn fork_on_a_server(name: &'static str) {
    let server = support::shared();
    let mut parent = Worker::start(&mut telling_its_end(bounded(program(name)).arg(server.url())));
    let told = parent.receive_within(SECOND * 120);
    let token = server.get("lock:fork:held");
    assert!(token.is_some_and(|token| told.contains(&token)), "{told}");
    // The child's own, all of them.
    for given_back in ["lock:fork:child", "lock:fork:own"] {
        assert_eq!(server.get(given_back), None);
    }
    assert_eq!(parent.ask(""), "released");
    assert_eq!(parent.receive(), "ended: 0");
    assert_eq!(server.get("lock:fork:held"), None);
}

fn fork_in_memory(name: &'static str) {
    let mut parent = Worker::start(&mut telling_its_end(bounded(program(name)).arg("memory://")));
    let told = parent.receive_within(SECOND * 120);
    assert!(told.starts_with("the children are gone"), "{told}");
    assert_eq!(parent.ask(""), "released");
    assert_eq!(parent.receive(), "ended: 0");
}

/// Kills the server while a program uses it.
fn goes_on_without(server: Server, url: fn(&Server) -> String) {
    let mut program = Worker::start(&mut telling_its_end(bounded(program("sigpipe")).arg(url(&server))));
    assert_eq!(program.receive(), "at work");
    server.kill();
    assert_eq!(program.receive(), "ended: 0");
}

fn a_library_that_is_closed_while_a_lock_is_held_goes_on_renewing() {
    let server = support::shared();
    let program = workshop("program_unload").join("unload");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(repository())
        .args([
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Iinclude",
            "tests/capi/programs/unload.c",
        ])
        // Not linked with the library, which would keep it open.
        .args(["-ldl", "-o"])
        .arg(&program);
    succeed(&mut gcc);
    let mut command = bounded(program);
    command.arg(prefix().join("lib/libredlatch.so")).arg(server.url());
    let mut host = Worker::start(&mut telling_its_end(&command));
    assert_eq!(host.receive(), "closed");
    let mut before = server.ttl("lock:unload").expect("a lease");
    let mut renewals = 0;
    wait_until("three renewals", SECOND * 30, || {
        let left = server.ttl("lock:unload").expect("a lease that goes on");
        if left > before {
            renewals += 1;
        }
        before = left;
        renewals == 3
    });
    assert_eq!(host.ask(""), "returning");
    // Its threads are still there when it ends.
    assert_eq!(host.receive(), "ended: 0");
}

/// As the linker sees it: what is in a comment does not count.
fn every_exported_function_is_called_by(programs: &[&'static str]) {
    let mut called = BTreeSet::new();
    for name in programs {
        let undefined = succeed(Command::new("nm").arg("-u").arg(program(name)));
        called.extend(undefined.split_whitespace().map(str::to_owned));
    }
    let exported = listed_symbols();
    let uncalled: Vec<&String> = exported.iter().filter(|symbol| !called.contains(*symbol)).collect();
    assert!(uncalled.is_empty(), "no C program calls {uncalled:?}");
}

/// As the header lists them: whatever is added there has to be added to redlatch_status_str().
fn each_status_has_a_text_of_its_own() {
    let header = fs::read_to_string(repository().join("include/redlatch.h")).unwrap();
    let statuses: BTreeMap<i32, &str> = header
        .lines()
        .filter_map(|line| {
            let (name, number) = line.strip_prefix("#define REDLATCH_")?.split_once(' ')?;
            let number = number.parse().ok()?;
            // Lengths, reasons and types are positive, and not losing is no status.
            (number <= 0 && name != "LOST_NOT" && !name.starts_with("VERSION_")).then_some((number, name))
        })
        .collect();
    assert!(statuses.len() >= 19, "{statuses:?}");

    let said = succeed(&mut bounded(program("statuses")));
    let mut texts: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for line in said.lines() {
        let (number, text) = line.split_once(' ').unwrap();
        texts.entry(text).or_default().push(number.parse().unwrap());
    }
    let none = texts.remove("not a status code of this version").unwrap();
    let own: Vec<i32> = texts.values().flatten().copied().collect();
    assert!(texts.values().all(|numbers| numbers.len() == 1), "{texts:?}");
    assert_eq!(
        BTreeSet::from_iter(own),
        BTreeSet::from_iter(statuses.keys().copied()),
        "{statuses:?}"
    );
    assert!(none.contains(&1) && none.contains(&-100));
}
